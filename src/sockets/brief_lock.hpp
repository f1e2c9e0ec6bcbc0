// A lock inside one process, held for a few instructions. A thread that finds its own mark in it was thrown out of such
// a stretch by a jump from a signal handler, and goes on.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/spin.hpp"
#include "sockets/thread_state.hpp"

namespace viaduct::sockets {

class BriefLock {
 public:
  class Hold {
   public:
    explicit Hold(BriefLock& lock) : lock_(lock) { lock_.acquire(); }
    ~Hold() { lock_.release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    BriefLock& lock_;
  };

  void acquire() {
    const std::uint32_t mine = thread_mark();
    for (unsigned turn = 0;; ++turn) {
      std::uint32_t holder = 0;
      if (word_.compare_exchange_weak(holder, mine, std::memory_order_acquire) || holder == mine) return;
      if (turn % 64 == 63)
        ::sched_yield();
      else
        cpu_relax();
    }
  }
  bool try_acquire() {
    std::uint32_t holder = 0;
    const std::uint32_t mine = thread_mark();
    return word_.compare_exchange_strong(holder, mine, std::memory_order_acquire) || holder == mine;
  }
  // Held further up the stack, or left behind by a jump: in either case by nobody else.
  bool is_mine() const { return word_.load(std::memory_order_relaxed) == thread_mark(); }
  void release() { word_.store(0, std::memory_order_release); }

  // In a forked child, where other threads' marks mean nobody.
  void reset() { word_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace viaduct::sockets
