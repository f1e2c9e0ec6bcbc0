// The lock of an engine: a mutex at which those who only look for something to do step back for those who have it.
// Threads that spin on progress() would otherwise take it again and again before a thread that sleeps in lock() is
// there.
#pragma once

#include <atomic>
#include <mutex>

namespace viaduct::net {

class EngineLock {
 public:
  void lock() {
    if (mutex_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  // For looking: false as well where somebody waits.
  bool try_lock() { return waiting_.load(std::memory_order_relaxed) == 0 && mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

}  // namespace viaduct::net
