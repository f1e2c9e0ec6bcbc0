// How many frames may be under way. Decided once a round trip, when a frame is acknowledged that was sent after the
// last decision: congestion marks, more than a few losses, or a round trip that has become long shrink the window; a
// timeout never does, for then the peer may only not be looking. Losing a few frames of very many is a bad wire, not a
// full one.
#pragma once

#include <algorithm>
#include <cstdint>

namespace viaduct::net {

class Congestion {
 public:
  static constexpr std::uint32_t kStart = 32;
  static constexpr std::uint32_t kLeast = 2;

  explicit Congestion(std::uint32_t most) : most_(std::max(most, kLeast)), window_(std::min(kStart, most_)) {}

  std::uint32_t window() const { return window_; }

  void acknowledged(bool window_was_full) {
    ++acknowledged_;
    limited_ |= window_was_full;
  }
  void lost() { ++lost_; }
  void was_needless() {
    if (lost_ > 0) --lost_;
  }
  void marked(std::uint32_t frames) { marked_ += frames; }
  void round_trip(std::uint64_t ns) { shortest_ = std::min(shortest_, ns); }

  // Acknowledged: the frame `number`; `next_number` will be sent next.
  void maybe_end_round(std::uint64_t number, std::uint64_t next_number, std::uint64_t least_round_trip) {
    if (number < round_ends_at_) return;
    const bool losing = lost_ > 4 && lost_ * 20 > lost_ + acknowledged_;
    const bool queueing = shortest_ != UINT64_MAX && shortest_ > 2 * least_round_trip + kShortQueue;
    if (losing || marked_ > 0 || queueing) {
      window_ = std::max(kLeast, losing ? window_ / 2 : window_ - window_ / 4);
      slow_start_ = false;
    } else if (limited_) {
      window_ = std::min(most_, slow_start_ ? window_ * 2 : window_ + 1 + window_ / 16);
    }
    acknowledged_ = lost_ = marked_ = 0;
    limited_ = false;
    shortest_ = UINT64_MAX;
    round_ends_at_ = next_number;
  }

 private:
  static constexpr std::uint64_t kShortQueue = 50'000;  // ns: below it, queueing is nobody's harm

  std::uint32_t most_;
  std::uint32_t window_;
  bool slow_start_ = true;
  bool limited_ = false;
  std::uint32_t acknowledged_ = 0;
  std::uint32_t lost_ = 0;
  std::uint32_t marked_ = 0;
  std::uint64_t shortest_ = UINT64_MAX;
  std::uint64_t round_ends_at_ = 0;
};

}  // namespace viaduct::net
