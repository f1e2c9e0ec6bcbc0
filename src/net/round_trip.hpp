// The round trip to a peer, from samples that are never ambiguous (RFC 6298's smoothing; the minimum of the last
// while).
#pragma once

#include <algorithm>
#include <cstdint>

namespace viaduct::net {

class RoundTrip {
 public:
  void sample(std::uint64_t ns, std::uint64_t now) {
    latest_ = ns;
    if (smoothed_ == 0) {
      smoothed_ = ns;
      deviation_ = ns / 2;
    } else {
      const std::uint64_t off = ns > smoothed_ ? ns - smoothed_ : smoothed_ - ns;
      deviation_ = (3 * deviation_ + off) / 4;
      smoothed_ = (7 * smoothed_ + ns) / 8;
    }
    // The least of this period and the one before: a route that becomes longer is believed after two periods.
    if (now - period_start_ > kPeriod) {
      least_before_ = least_;
      least_ = ns;
      period_start_ = now;
    }
    least_ = std::min(least_, ns);
    ++samples_;
  }

  bool known() const { return samples_ > 0; }
  std::uint64_t smoothed() const { return known() ? smoothed_ : kAssumed; }
  std::uint64_t latest() const { return known() ? latest_ : kAssumed; }
  std::uint64_t deviation() const { return known() ? deviation_ : kAssumed / 2; }
  std::uint64_t least() const { return known() ? std::min(least_, least_before_) : kAssumed; }

 private:
  static constexpr std::uint64_t kAssumed = 1'000'000;      // 1 ms, before anything is known
  static constexpr std::uint64_t kPeriod = 10'000'000'000;  // 10 s
  std::uint64_t smoothed_ = 0;
  std::uint64_t latest_ = 0;
  std::uint64_t deviation_ = 0;
  std::uint64_t least_ = UINT64_MAX;
  std::uint64_t least_before_ = UINT64_MAX;
  std::uint64_t period_start_ = 0;
  std::uint64_t samples_ = 0;
};

}  // namespace viaduct::net
