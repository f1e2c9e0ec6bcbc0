// A lock for a few instructions: taken by one atomic exchange, given back by a plain store. Whoever finds it held looks
// again for a while and then offers its processor, because the holder may not be running.
#pragma once

#include <sched.h>

#include <atomic>

#include "base/spin.hpp"

namespace viaduct {

class SpinLock {
 public:
  void lock() {
    while (!try_lock()) wait_until_free();
  }
  bool try_lock() { return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  void wait_until_free() {
    constexpr int kLooks = 64;
    for (int look = 0; held_.load(std::memory_order_relaxed); ++look) {
      if (look < kLooks)
        cpu_relax();
      else
        ::sched_yield();
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace viaduct
