// The wake-up protocol on the real machine: futex and eventfd, threads and processes.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <thread>
#include <tuple>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "base/guarded_memory.hpp"
#include "base/waiter.hpp"

namespace viaduct {
namespace {

using testing::Child;
using testing::GuardedMemory;
using testing::HangGuard;

TEST(WaitWord, CostsAWakerNothingUnlessArmed) {
  WaitWord word;
  EXPECT_FALSE(word.must_wake());
  word.arm();
  word.arm();
  EXPECT_TRUE(word.must_wake());
  EXPECT_FALSE(word.must_wake()) << "disarmed by the first";
}

TEST(WaitWord, DoesNotFallAsleepAfterAWakeItHasNotSeen) {
  const HangGuard guard;
  WaitWord word;
  const std::uint32_t armed = word.arm();
  word.wake_if_armed();
  EXPECT_EQ(word.sleep(armed, Deadline::never(), Clock::steady()), SleepResult::woken);
  const std::uint32_t again = word.arm();
  EXPECT_NE(again, armed) << "the count has moved on";
}

enum class By { futex, eventfd };

// A sleeper of the kind asked for, with what it sleeps on.
struct Bed {
  explicit Bed(By kind) : by(kind), event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  Sleeper& sleeper() { return by == By::futex ? static_cast<Sleeper&>(futex) : descriptor; }
  void wake(WaitWord& word) {
    if (!word.must_wake()) return;
    if (by == By::futex)
      word.wake_sleepers();
    else
      wake_eventfd(event.get());
  }

  By by;
  Fd event;
  FutexSleeper futex;
  FdSleeper descriptor{event.get(), FdSleeper::Drain::eventfd};
};

class Sleeping : public ::testing::TestWithParam<By> {
 protected:
  HangGuard guard_;
  WaitWord word_;
  Bed bed_{GetParam()};
  Waiter waiter_{0};
};

TEST_P(Sleeping, EndsAtTheDeadline) {
  const Deadline soon = Deadline::after_ns(Clock::steady(), 1'000'000);
  EXPECT_EQ(waiter_.wait(word_, bed_.sleeper(), soon, [] { return false; }), WaitResult::timeout);
  EXPECT_TRUE(soon.expired(Clock::steady().now_ns())) << "not before";
}

TEST_P(Sleeping, EndsBySignal) {
  struct sigaction quiet {
  }, before{};
  quiet.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGVTALRM, &quiet, &before), 0);
  // Sent again and again until one falls into the sleep: no moment has to be guessed.
  std::atomic<bool> woke{false};
  const pthread_t self = ::pthread_self();
  std::thread caller([&] {
    while (!woke.load()) ::pthread_kill(self, SIGVTALRM), std::this_thread::yield();
  });
  EXPECT_EQ(waiter_.wait(word_, bed_.sleeper(), Deadline::never(), [] { return false; }), WaitResult::interrupted);
  woke = true;
  caller.join();
  ::sigaction(SIGVTALRM, &before, nullptr);
}

TEST_P(Sleeping, AnOldWakeUpIsNotMistakenForANewOne) {
  word_.arm();
  bed_.wake(word_);  // for somebody who did not sleep after all
  const Deadline soon = Deadline::after_ns(Clock::steady(), 1'000'000);
  EXPECT_EQ(waiter_.wait(word_, bed_.sleeper(), soon, [] { return false; }), WaitResult::timeout);
}

INSTANTIATE_TEST_SUITE_P(By, Sleeping, ::testing::Values(By::futex, By::eventfd),
                         [](const auto& test) { return test.param == By::futex ? "Futex" : "Eventfd"; });

TEST(FdSleeper, LeavesADescriptorThatIsNotItsOwnAlone) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  ASSERT_EQ(::write(pipe->second.get(), "x", 1), 1);
  FdSleeper sleeper(pipe->first.get(), FdSleeper::Drain::none);
  WaitWord word;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(sleeper.sleep(word, word.arm(), Deadline::never(), Clock::steady()), SleepResult::woken);
  char c = 0;
  EXPECT_EQ(::read(pipe->first.get(), &c, 1), 1);
}

enum class Between { threads, processes };
enum class Fences { symmetric, promised };

// Two players who never spin: every single turn needs a wake-up, and one lost hangs the game.
class PingPong : public ::testing::TestWithParam<std::tuple<Between, By, Fences>> {
 protected:
  struct Table {
    WaitWord words[2];
    std::atomic<int> turn;
  };

  int play(int me) {
    Waiter waiter(0);
    WaitWord& mine = table_.words[me];
    if (std::get<Fences>(GetParam()) == Fences::promised) mine.promise_heavy_fence();
    for (int i = 0; i < kTurns; ++i) {
      const auto my_turn = [&] { return table_.turn.load(std::memory_order_acquire) % 2 == me; };
      if (waiter.wait(mine, beds_[me].sleeper(), Deadline::never(), my_turn) != WaitResult::ready) return 1;
      // A plain release store, not a read-modify-write: only the protocol's own fences order it before the look.
      table_.turn.store(table_.turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      beds_[1 - me].wake(table_.words[1 - me]);
    }
    return 0;
  }

  static constexpr int kTurns = 2000;
  HangGuard guard_;
  GuardedMemory memory_{sizeof(Table), testing::Touching::front_guard};
  Table& table_ = *reinterpret_cast<Table*>(memory_.bytes().data());
  Bed beds_[2] = {Bed(std::get<By>(GetParam())), Bed(std::get<By>(GetParam()))};
};

TEST_P(PingPong, NeverLosesAWakeUp) {
  if (std::get<Between>(GetParam()) == Between::threads) {
    int other = -1;
    std::thread opponent([&] { other = play(1); });
    EXPECT_EQ(play(0), 0);
    opponent.join();
    EXPECT_EQ(other, 0);
  } else {
    Child opponent([&] { return play(1); });
    EXPECT_EQ(play(0), 0);
    EXPECT_EQ(opponent.wait(), 0);
  }
  EXPECT_EQ(table_.turn.load(), 2 * kTurns);
}

INSTANTIATE_TEST_SUITE_P(Game, PingPong,
                         ::testing::Combine(::testing::Values(Between::threads, Between::processes),
                                            ::testing::Values(By::futex, By::eventfd),
                                            ::testing::Values(Fences::symmetric, Fences::promised)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) == Between::threads ? "Threads" : "Processes") +
                                  (std::get<1>(test.param) == By::futex ? "Futex" : "Eventfd") +
                                  (std::get<2>(test.param) == Fences::symmetric ? "Symmetric" : "Promised");
                         });

}  // namespace
}  // namespace viaduct
