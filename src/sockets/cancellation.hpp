// A thread that is cancelled (pthread_cancel) leaves at the beginning of a call or where it sleeps, as in libc's own,
// and nowhere else: half of a change to shared memory would be worse. What a sleep has armed is disarmed by destructors
// on the way out.
#pragma once

#include <pthread.h>
#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>

namespace viaduct::sockets {

inline thread_local int tls_cancel_state [[gnu::tls_model("initial-exec")]] = -1;  // for sleeps; -1: not inside
inline thread_local int tls_cancel_before [[gnu::tls_model("initial-exec")]] = 0;  // the program's
inline thread_local const void* tls_cancel_frame [[gnu::tls_model("initial-exec")]] = nullptr;  // the outermost one

class Uncancelled {
 public:
  enum class Sleeps { are_left, too };  // `too`: not even there, as in calls of which the program expects no such thing
  explicit Uncancelled(Sleeps sleeps = Sleeps::are_left)
      : outermost_(__libc_single_threaded == 0 && tls_cancel_state < 0) {
    if (!outermost_) return;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &tls_cancel_before);
    tls_cancel_frame = this;
    tls_cancel_state = sleeps == Sleeps::too ? PTHREAD_CANCEL_DISABLE : tls_cancel_before;
  }
  // A thread that may be cancelled anywhere is cancelled right here.
  ~Uncancelled() noexcept(false) {
    if (outermost_) leave();
  }
  // The thread jumps (longjmp) out of all that is on its stack before `target`.
  static void jump(const void* target) {
    if (tls_cancel_state >= 0 && tls_cancel_frame < target) leave();
  }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  static void leave() {
    tls_cancel_state = -1;
    int ours;
    ::pthread_setcancelstate(tls_cancel_before, &ours);
  }
  bool outermost_;
};

// At the beginning of a call that libc ends a cancelled thread in: there it does so whether or not the call would
// sleep.
[[gnu::always_inline]] inline void act_on_cancellation() {
  if (__libc_single_threaded == 0) [[unlikely]]
    ::pthread_testcancel();
}

// Inside it: around what sleeps.
class Cancellable {
 public:
  Cancellable() : inside_(tls_cancel_state >= 0) {
    int ours;
    if (inside_) ::pthread_setcancelstate(tls_cancel_state, &ours);
  }
  ~Cancellable() noexcept(false) {
    int theirs;
    if (inside_) ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &theirs);
  }
  Cancellable(const Cancellable&) = delete;
  Cancellable& operator=(const Cancellable&) = delete;

 private:
  bool inside_;
};

// One more for as long as it lives.
class Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& count) : count_(&count) {
    count.fetch_add(1, std::memory_order_seq_cst);
  }
  struct Already {};
  Counted(std::atomic<std::uint32_t>& count, Already) : count_(&count) {}
  ~Counted() { end(); }
  void end() {
    if (count_ != nullptr) count_->fetch_sub(1);
    count_ = nullptr;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>* count_;
};

}  // namespace viaduct::sockets
