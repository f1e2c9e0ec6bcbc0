// The card's external SRAM, shared by processors, DMA channels and MAC channels.
//
// Nobody's accesses are simulated one by one. Each user's share of the SRAM's time is measured over short windows; who
// stalls on the SRAM waits, besides its own access, as a queue with one server and constant service makes it wait for
// the others' load: 1 + r / (2 (1 - r)).
#pragma once

#include <algorithm>
#include <array>

#include "nic/model/calendar.hpp"

namespace viaduct::nic::model {

class Sram {
 public:
  static constexpr unsigned kTransfers = 0;  // user 0: DMA and MAC; user 1 + i: processor i
  explicit Sram(double bytes_per_s) : picoseconds_per_byte_(1e12 / bytes_per_s) {}

  void moved(Time now, std::uint64_t bytes) {
    used(now, kTransfers, static_cast<double>(bytes) * picoseconds_per_byte_);
  }
  void used(Time now, unsigned user, double picoseconds) {
    roll(now);
    current_[user] += picoseconds;
    total_[user] += picoseconds;
  }

  // By how much the stalls of that processor grow.
  double slowdown(Time now, unsigned user) {
    roll(now);
    double load = 0;
    for (unsigned other = 0; other < kUsers; ++other)
      if (other != user) load += last_[other] / kWindow;
    load = std::min(load, 0.9);
    return 1 + load / (2 * (1 - load));
  }
  double total(unsigned user) const { return total_[user]; }

 private:
  static constexpr Time kWindow = 50 * kMicrosecond;
  static constexpr unsigned kUsers = 1 + 64;

  void roll(Time now) {
    const Time window = now / kWindow;
    if (window <= window_) return;  // a processor's own time may be a little ahead
    last_ = window == window_ + 1 ? current_ : std::array<double, kUsers>{};
    current_ = {};
    window_ = window;
  }

  const double picoseconds_per_byte_;
  Time window_ = 0;
  std::array<double, kUsers> current_{}, last_{}, total_{};
};

}  // namespace viaduct::nic::model
