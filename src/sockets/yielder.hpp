// Where both ends of a connection share a processor, who waits gives it to the peer: that costs less than to sleep and
// be woken, as long as the peer is the one who gets it, and answers. A third process would keep it for milliseconds.
// So the first turn that brings nothing, or takes longer than an answer does, is the last for many times as long as it
// took; for longer and longer, where it was followed by another before many went well.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

namespace viaduct::sockets {

class Yielder {
 public:
  template <class Ready>
  bool spin(std::uint64_t now, Ready& ready) {
    if (now < rests_until_ns_) return false;
    bool found = false;
    for (int turn = 0; turn < kTurns && !found; ++turn) {
      ::sched_yield();
      found = ready();
    }
    const std::uint64_t end = Clock::steady().now_ns(), took = end - now;
    if (!found || took > kQuickNs) {
      rests_until_ns_ = end + std::min(took * rest_, kLongestRestNs);
      rest_ = std::min(2 * rest_, kMostRest);
      went_well_ = 0;
    } else if (++went_well_ == kMany) {
      rest_ = kLeastRest;
    }
    return found;
  }

 private:
  static constexpr int kTurns = 2;
  static constexpr std::uint64_t kQuickNs = 50'000;
  static constexpr std::uint64_t kLeastRest = 32, kMostRest = 1024;  // times what was lost in vain
  static constexpr std::uint64_t kLongestRestNs = 10'000'000'000;
  static constexpr std::uint32_t kMany = 1000;
  std::uint64_t rest_ = kLeastRest;
  std::uint32_t went_well_ = 0;
  std::uint64_t rests_until_ns_ = 0;
};

}  // namespace viaduct::sockets
