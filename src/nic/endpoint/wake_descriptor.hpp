// What an endpoint sleeps on: an epoll descriptor over an eventfd (rung by whoever has something for the sleeper, only
// while it is armed), a timer, and descriptors of a MAC.
//
// The wake-up protocol is that of base/wait_word.hpp with a full fence on both sides: a sleep here costs system calls
// anyway, and the word may lie in memory that two processes share. Arming and disarming belong to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/fd.hpp"
#include "base/wait_word.hpp"

namespace viaduct::nic {

struct FullFences {
  using Word = std::atomic<std::uint32_t>;
  static std::uint32_t fetch_or(Word& word, std::uint32_t bits) { return word.fetch_or(bits); }
  static std::uint32_t load(Word& word) { return word.load(std::memory_order_relaxed); }
  static bool compare_exchange(Word& word, std::uint32_t from, std::uint32_t to) {
    return word.compare_exchange_strong(from, to);
  }
  static void heavy_fence() { fence::full(); }
  static void light_fence(Word&) { fence::full(); }
};

class WakeDescriptor {
 public:
  using Word = FullFences::Word;

  static Result<WakeDescriptor> create();

  int get() const { return set_.get(); }
  int bell() const { return bell_.get(); }
  // `events` of epoll; 0: no longer. Watching a descriptor that cannot be watched changes nothing.
  void watch(int fd, std::uint32_t events);

  // The sleeper: arm, look again, sleep on get(), disarm. `due_ns` on CLOCK_MONOTONIC; UINT64_MAX: none.
  void arm(Word& word, std::uint64_t due_ns);
  void disarm(Word& word);
  // The waker, after publishing. From any thread.
  void ring(Word& word) const { ring(word, bell_.get()); }
  static void ring(Word& word, int bell);

 private:
  void set_timer(std::uint64_t due_ns);

  Fd set_, bell_, timer_;
  std::uint64_t due_ns_ = UINT64_MAX;  // as the timer has it
};

}  // namespace viaduct::nic
