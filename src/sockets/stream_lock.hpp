// The lock of one half of a direction, in the shared memory: between threads, processes, and signal handlers of both
// sides.
#pragma once

#include <atomic>
#include <cstdint>

#include "sockets/stream.hpp"
#include "sockets/thread_state.hpp"

namespace viaduct::sockets {

// One that the calling thread holds, or is about to (ThreadState::locks).
struct HeldLock {
  [[gnu::always_inline]] explicit HeldLock(std::atomic<std::uint32_t>& lock) : word(lock), outer(this_thread.locks) {
    this_thread.locks = this;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  [[gnu::always_inline]] ~HeldLock() {
    this_thread.locks = outer;
    mark = 0;
  }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  // The thread jumps (longjmp) out of all that is on its stack before `target`.
  static void jump(const void* target) {
    while (this_thread.locks != nullptr && this_thread.locks < target) this_thread.locks = this_thread.locks->outer;
  }

  // Of one that is there, and not what another call left on the stack.
  static constexpr std::uint32_t kMark = 0x6b636f4c;
  std::atomic<std::uint32_t>& word;
  HeldLock* outer;
  std::uint32_t mark = kMark;
  std::uint32_t believed = 0;  // how often it was taken for one that will go on
};

// Held for a few copies, never across a wait. A holder that died, or jumped out of a signal handler, is replaced.
// Letting go is a full fence: what was published under the lock is seen by whoever armed before our next look (F1, F2).
// `alone`: nobody else of this side can be here. A process of the other side may still come (serve_in_place_of_peer(),
// send_unread_before_leaving(), take_held()), long after it has asked for it: the word is taken by a plain store, and
// whoever took it so looks at what was asked.
class StreamLock {
 public:
  [[gnu::always_inline]] explicit StreamLock(std::atomic<std::uint32_t>& word, bool alone = false)
      : held_(word), word_(word), alone_(alone) {
    std::uint32_t free = 0;
    if (alone_ && word_.load(std::memory_order_relaxed) == 0) {
      word_.store(thread_mark(), std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return;
    }
    alone_ = false;
    if (!word_.compare_exchange_strong(free, thread_mark(), std::memory_order_acquire)) [[unlikely]]
      contend();
  }
  [[gnu::always_inline]] ~StreamLock() {
    if (!is_refused()) [[likely]]
      let_go();
  }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

  // In a signal handler: what it has interrupted is in the middle of something under this lock, and will go on. Who
  // does not ask gets in all the same.
  bool is_refused() const { return taken_ == Taken::not_at_all; }
  // Whoever held it before died, or jumped away.
  bool was_left_behind() const { return taken_ == Taken::from_the_gone; }
  bool is_usual() const { return taken_ == Taken::as_usual; }

 private:
  bool interrupted_code_holds_it() const;
  [[gnu::always_inline]] void let_go() {
    const bool mine = word_.load(std::memory_order_relaxed) == thread_mark();  // or taken over meanwhile
    if (mine && !alone_) {
      word_.exchange(0, std::memory_order_seq_cst);
      return;
    }
    if (mine) word_.store(0, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  [[gnu::cold, gnu::noinline]] void contend();
  HeldLock held_;
  std::atomic<std::uint32_t>& word_;
  enum class Taken : std::uint8_t { as_usual, from_the_gone, not_at_all };
  Taken taken_ = Taken::as_usual;
  bool alone_;
};

// The usual case of a StreamLock, where every instruction counts: beside a HeldLock, so that it is registers only. Who
// does not get it goes the long way.
enum class LettingGo { is_a_fence, is_none };

template <LettingGo letting_go>
class QuickLock {
 public:
  [[gnu::always_inline]] QuickLock(std::atomic<std::uint32_t>& word, bool alone, std::uint32_t mark = thread_mark())
      : word_(word), mine_(mark), alone_(alone), taken_(take()) {}
  [[gnu::always_inline]] ~QuickLock() {
    if (!taken_) [[unlikely]]
      return;
    constexpr bool fence = letting_go == LettingGo::is_a_fence;
    const bool mine = word_.load(std::memory_order_relaxed) == mine_;  // or taken over meanwhile
    if (mine && fence && !alone_) {
      word_.exchange(0, std::memory_order_seq_cst);
      return;
    }
    if (mine) word_.store(0, std::memory_order_release);
    if (fence) std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  QuickLock(const QuickLock&) = delete;
  QuickLock& operator=(const QuickLock&) = delete;

  bool is_taken() const { return taken_; }

 private:
  [[gnu::always_inline]] bool take() {
    std::uint32_t free = 0;
    if (!alone_) return word_.compare_exchange_strong(free, mine_, std::memory_order_acquire);
    if (word_.load(std::memory_order_relaxed) != 0) return false;
    word_.store(mine_, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  }

  std::atomic<std::uint32_t>& word_;
  std::uint32_t mine_;
  bool alone_, taken_;
};

// Of a sending half: what was left in the middle is put right first.
class SendingLock : public StreamLock {
 public:
  [[gnu::always_inline]] SendingLock(const StreamMemory& memory, int direction, bool alone = false)
      : StreamLock(memory.direction(direction).sending.lock, alone) {
    if (was_left_behind()) [[unlikely]]
      Sender(memory, direction).recover();
  }
  [[gnu::always_inline]] ~SendingLock() {}  // so that nothing of it is left in the usual case
};

}  // namespace viaduct::sockets
