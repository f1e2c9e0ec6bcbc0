// The wake-up protocol: how one side sleeps without ever missing what the other side publishes.
//
// A WaitWord lives in shared memory on a line of its own. Its state counts in twos; bit 0 says that somebody sleeps or
// is about to. Sleepers (any number) and wakers (any number) follow
//
//   sleeper                                   waker
//   S1  state |= armed                        W1  publish (release store of an index, a slot, a flag)
//   S2  heavy fence                           W2  light fence
//   S3  look again: published? then go on     W3  state armed?  no: done, nothing was paid
//   S4  sleep while state is what S1 left     W4  state: armed -> not armed, one further (one waker wins)
//                                             W5  wake everybody who sleeps
//
// S1 before S2 before S3, W1 before W2 before W3: the fences forbid the one bad outcome, in which S3 misses W1 and W3
// misses S1. A waker that clears the bit has moved the count on, so a sleeper between S3 and S4 does not fall asleep. A
// sleeper that finds something at S3 leaves the bit set (another may sleep on it); the next waker pays one useless
// wake. The steps are written once, over a Platform, so that tests/base explores every interleaving of this very code.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/fence.hpp"

namespace viaduct {

constexpr std::size_t kCacheLine = 64;

template <class Platform>
struct WakeProtocol {
  using Word = typename Platform::Word;

  // S1, S2. Returns the state to sleep on.
  static std::uint32_t arm(Word& word) {
    const std::uint32_t armed = Platform::fetch_or(word, 1) | 1;
    Platform::heavy_fence();
    return armed;
  }

  // W2..W4. True: the caller must do W5.
  static bool must_wake(Word& word) {
    Platform::light_fence(word);
    std::uint32_t state = Platform::load(word);
    if ((state & 1) == 0) return false;
    return Platform::compare_exchange(word, state, state + 1);
  }
};

enum class SleepResult { woken, timeout, interrupted };

class alignas(kCacheLine) WaitWord {
 public:
  // The sleeping side says once, before the other side uses the word, that it arms with membarrier.
  void promise_heavy_fence() { promise_.store(fence::asymmetric() ? 1 : 0, std::memory_order_relaxed); }

  std::uint32_t arm() { return Protocol::arm(*this); }
  bool must_wake() { return Protocol::must_wake(*this); }
  // Whether nobody has done W4 since arm() returned `armed`.
  bool is_armed() const { return (state_.load(std::memory_order_acquire) & 1) != 0; }
  bool is_still(std::uint32_t armed) const { return state_.load(std::memory_order_acquire) == armed; }

  // S4 and W5 by futex, across processes.
  SleepResult sleep(std::uint32_t armed, Deadline deadline, const Clock& clock);
  void wake_sleepers();

  // W2..W5 in one: what a producer calls after publishing when its peer sleeps on the futex.
  void wake_if_armed() {
    if (must_wake()) wake_sleepers();
  }

 private:
  struct Hardware {
    using Word = WaitWord;
    static std::uint32_t fetch_or(Word& word, std::uint32_t bits) {
      return word.state_.fetch_or(bits, std::memory_order_seq_cst);
    }
    static std::uint32_t load(Word& word) { return word.state_.load(std::memory_order_relaxed); }
    static bool compare_exchange(Word& word, std::uint32_t from, std::uint32_t to) {
      return word.state_.compare_exchange_strong(from, to, std::memory_order_seq_cst);
    }
    static void heavy_fence() { fence::heavy(); }
    // Light only where the sleeper promised membarrier and this process is registered for it.
    static void light_fence(Word& word) {
      if (word.promise_.load(std::memory_order_relaxed) != 0 && fence::asymmetric())
        fence::compiler_only();
      else
        fence::full();
    }
  };
  using Protocol = WakeProtocol<Hardware>;

  std::atomic<std::uint32_t> state_{0};    // written by both sides
  std::atomic<std::uint32_t> promise_{0};  // written by the sleeping side, once
};
static_assert(sizeof(WaitWord) == kCacheLine);

}  // namespace viaduct
