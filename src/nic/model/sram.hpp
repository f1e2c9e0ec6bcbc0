// The card's external SRAM, shared by processors, DMA channels and MAC channels.
//
// Nobody's accesses are simulated one by one: each user's share of the SRAM's time is measured over short windows. The
// MAC cannot wait, so it goes first; then DMA, whose queues are short; then the processors. Who goes later gets the
// time that is left, so its words take 1 / (1 - share of those before it) as long. Processors take turns: one that
// finds another's words under way waits, on average, for half of them.
#pragma once

#include <algorithm>
#include <array>

#include "nic/model/calendar.hpp"

namespace viaduct::nic::model {

class Sram {
 public:
  static constexpr unsigned kDma = 0, kMac = 1, kProcessors = 2;  // user kProcessors + i: processor i

  Sram(double bytes_per_s, double per_transfer)
      : picoseconds_per_byte_(1e12 / bytes_per_s), picoseconds_per_moved_byte_(per_transfer * 1e12 / bytes_per_s) {}

  void moved(Time now, unsigned user, std::uint32_t bytes) { used(now, user, bytes * picoseconds_per_moved_byte_); }
  // The least that DMA needs for so many bytes.
  Time dma_time(Time now, std::uint32_t bytes) {
    roll(now);
    return static_cast<Time>(bytes * picoseconds_per_moved_byte_ / left_by(share(kMac)) + 0.5);
  }

  // What so many words of eight bytes take a processor; accounts for them.
  double processor_time(Time now, unsigned processor, double words) {
    const double undisturbed = words * 8 * picoseconds_per_byte_;
    used(now, kProcessors + processor, undisturbed);
    double others = 0;
    for (unsigned other = kProcessors; other < kUsers; ++other)
      if (other != kProcessors + processor) others += share(other);
    const double left = left_by(share(kMac) + share(kDma));
    return undisturbed / left * (1 + std::min(1.0, others / left) / 2);
  }
  double total(unsigned user) const { return total_[user]; }

 private:
  static constexpr Time kWindow = 50 * kMicrosecond;
  static constexpr unsigned kUsers = kProcessors + 64;

  static double left_by(double share) { return std::max(0.1, 1 - share); }
  double share(unsigned user) const { return last_[user] / kWindow; }
  void used(Time now, unsigned user, double picoseconds) {
    roll(now);
    current_[user] += picoseconds;
    total_[user] += picoseconds;
  }
  void roll(Time now) {
    const Time window = now / kWindow;
    if (window <= window_) return;  // a processor's own time may be a little ahead
    last_ = window == window_ + 1 ? current_ : std::array<double, kUsers>{};
    current_ = {};
    window_ = window;
  }

  const double picoseconds_per_byte_, picoseconds_per_moved_byte_;
  Time window_ = 0;
  std::array<double, kUsers> current_{}, last_{}, total_{};
};

}  // namespace viaduct::nic::model
