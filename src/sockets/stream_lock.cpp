#include "sockets/stream_lock.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/spin.hpp"

namespace viaduct::sockets {

namespace {

// Somebody of this user has stopped it (SIGSTOP, a debugger) in the middle of what it does here, and will let it go on.
bool is_stopped(std::uint32_t thread) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/stat", thread);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info {};
  const bool own = ::fstat(fd, &info) == 0 && info.st_uid == ::geteuid();
  char text[256] = {};
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  const char* const state = got > 0 ? std::strrchr(text, ')') : nullptr;  // "number (name) state"
  return own && state != nullptr && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}

}  // namespace

// The locks of this thread that are further up on its stack are those of code that this one has interrupted. By another
// way than longjmp it may have left them without notice: what is found there is looked at with care, and not believed
// too often.
bool StreamLock::interrupted_code_holds_it() const {
  constexpr std::uint32_t kMostBelieved = 1000;
  constexpr int kDeepest = 8;
  stack_t stack{};
  const bool on_other_stack = ::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
  const HeldLock* const here = on_other_stack ? nullptr : &held_;
  HeldLock* one = held_.outer;
  for (int depth = 0; one != nullptr && depth < kDeepest; ++depth, one = one->outer) {
    if (one <= here || one->mark != HeldLock::kMark) break;
    if (&one->word == &word_) return ++one->believed < kMostBelieved;
  }
  return false;
}

void StreamLock::contend() {
  constexpr unsigned kLooks = 200, kYields = 2000, kMilliseconds = 1000;  // of a live holder that does not go on
  const std::uint32_t mine = thread_mark();
  for (unsigned turn = 0;; ++turn) {
    std::uint32_t holder = word_.load(std::memory_order_relaxed);
    if (holder == 0) {
      if (word_.compare_exchange_weak(holder, mine, std::memory_order_acquire)) return;
      continue;
    }
    if (holder == mine) {  // we are in a signal handler; or have jumped out of one
      taken_ = interrupted_code_holds_it() ? Taken::not_at_all : Taken::from_the_gone;
      return;
    }
    if (turn < kLooks) {
      cpu_relax();
      continue;
    }
    // Whoever held it is gone, or never was: the word is shared memory. A live one is waited for, but not for ever:
    // unless it is stopped, for then it will go on where it was.
    const bool too_long = turn > kLooks + kYields + kMilliseconds;
    if (too_long && is_stopped(holder)) {
      turn = kLooks + kYields;
    } else if ((too_long || thread_is_gone(holder)) &&
               word_.compare_exchange_strong(holder, mine, std::memory_order_acquire)) {
      taken_ = Taken::from_the_gone;
      return;
    }
    if (turn < kLooks + kYields) {
      ::sched_yield();
    } else {
      const timespec nap{0, 1'000'000};
      ::syscall(SYS_nanosleep, &nap, nullptr);
    }
  }
}

}  // namespace viaduct::sockets
