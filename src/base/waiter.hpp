// Waits for a condition that another thread or process brings about: spins within an adaptive budget, then sleeps by
// the protocol of wait_word.hpp, on the futex or in poll() on a descriptor that the waker writes to.
//
// A Waiter belongs to one thread. The machine it runs on (clock, yield) is injected.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/spinner.hpp"
#include "base/wait_word.hpp"

namespace viaduct {

enum class WaitResult {
  ready,
  timeout,
  interrupted,  // a signal arrived; the caller decides whether that ends its call
};

// Where S4 of the protocol happens.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  virtual SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) = 0;
};

class FutexSleeper final : public Sleeper {
 public:
  SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    return word.sleep(armed, deadline, clock);
  }
};

// Sleeps until a descriptor is readable: an eventfd, a pipe, a socket. The waker writes where it would wake the futex.
// An eventfd is drained on waking; any other descriptor is left to its owner.
class FdSleeper final : public Sleeper {
 public:
  enum class Drain { eventfd, none };
  FdSleeper(int fd, Drain drain) : fd_(fd), drain_(drain) {}
  SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) override;

 private:
  int fd_;
  Drain drain_;
};

// W5 for a sleeper in FdSleeper on an eventfd.
void wake_eventfd(int fd);

class Waiter {
 public:
  explicit Waiter(std::uint64_t spin_bound_ns, const Clock& clock = Clock::steady(),
                  const CoreProbe& probe = CoreProbe::machine());

  // `ready()` is called often: it must be cheap and must not block.
  template <class Ready>
  WaitResult wait(WaitWord& word, Sleeper& sleeper, Deadline deadline, Ready&& ready) {
    if (ready()) return WaitResult::ready;
    const std::uint64_t start = clock_.now_ns();
    if (spinner_.spin(start, deadline, ready)) return WaitResult::ready;
    for (bool look_again_soon = true;;) {
      const std::uint32_t armed = word.arm();
      if (ready()) break;
      const std::uint64_t now = clock_.now_ns();
      if (deadline.expired(now)) return WaitResult::timeout;
      const bool nap = look_again_soon && deadline.left_ns(now) > kSecondLookNs;
      const SleepResult slept =
          sleeper.sleep(word, armed, nap ? Deadline::at_ns(now + kSecondLookNs) : deadline, clock_);
      look_again_soon = slept != SleepResult::timeout;
      if (ready()) break;
      if (slept == SleepResult::interrupted) return WaitResult::interrupted;
    }
    spinner_.learn(clock_.now_ns() - start);
    return WaitResult::ready;
  }

  std::uint64_t spin_budget_ns() const { return spinner_.budget_ns(clock_.now_ns()); }

 private:
  // A heavy fence may miss a processor of another process (fence.cpp). What was then in its store buffer is in memory
  // long before this, and whoever publishes later sees the armed word: one more look is enough.
  static constexpr std::uint64_t kSecondLookNs = 1'000'000;
  const Clock& clock_;
  Spinner spinner_;
};

}  // namespace viaduct
