// What a Waiter decides, in virtual time: the clock moves only when the condition is looked at or somebody sleeps.
#include "base/waiter.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace viaduct {
namespace {

constexpr std::uint64_t kBoundNs = 50'000;
constexpr std::uint64_t kLookNs = 100;
constexpr std::uint64_t kTimeCheckNs = 32 * kLookNs;  // the clock is read every 32 looks: no decision is finer

class FakeProbe final : public CoreProbe {
 public:
  bool core_is_wanted() const override { return ++asked, wanted; }
  bool wanted = false;
  mutable int asked = 0;
};

class FakeSleeper final : public Sleeper {
 public:
  SleepResult sleep(WaitWord&, std::uint32_t, Deadline until, const Clock&) override {
    ++sleeps;
    untils.push_back(until);
    return on_sleep ? on_sleep() : SleepResult::woken;
  }
  int sleeps = 0;
  std::vector<Deadline> untils;
  std::function<SleepResult()> on_sleep;
};

class WaiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (processors_online() < 2) GTEST_SKIP() << "with one processor nobody ever spins";
  }

  // Waits for something that happens `delay_ns` from now, whether spun or slept through; returns the time spun.
  std::uint64_t wait_for_event_after(std::uint64_t delay_ns) {
    const std::uint64_t start = clock.now_ns();
    std::uint64_t fell_asleep = 0;
    sleeper.on_sleep = [&] {
      fell_asleep = clock.now_ns();
      if (start + delay_ns > clock.now_ns()) clock.advance_ns(start + delay_ns - clock.now_ns());
      clock.advance_ns(SpinBudget::kSleepCostNs);
      return SleepResult::woken;
    };
    EXPECT_EQ(wait(Deadline::never(), [&] { return clock.now_ns() >= start + delay_ns; }), WaitResult::ready);
    return (fell_asleep != 0 ? fell_asleep : clock.now_ns()) - start;
  }

  template <class Ready>
  WaitResult wait(Deadline deadline, Ready ready) {
    return waiter.wait(word, sleeper, deadline, [&] { return ++looks, clock.advance_ns(kLookNs), ready(); });
  }

  MockClock clock;
  FakeProbe probe;
  FakeSleeper sleeper;
  WaitWord word;
  Waiter waiter{kBoundNs, clock, probe};
  int looks = 0;
};

TEST_F(WaiterTest, ReadyAtOnceNeitherSpinsNorArms) {
  EXPECT_EQ(wait(Deadline::at_ns(0), [] { return true; }), WaitResult::ready) << "even when it is already late";
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(sleeper.sleeps, 0);
  EXPECT_FALSE(word.must_wake());
}

TEST_F(WaiterTest, ReadyWhileSpinningNeverArms) {
  wait_for_event_after(20'000);
  EXPECT_EQ(sleeper.sleeps, 0);
  EXPECT_FALSE(word.must_wake());
}

TEST_F(WaiterTest, SpinsForItsBudgetThenSleeps) {
  const std::uint64_t budget = waiter.spin_budget_ns();
  ASSERT_GT(budget, 0u);
  ASSERT_LE(budget, kBoundNs);
  const std::uint64_t spun = wait_for_event_after(500'000);
  EXPECT_EQ(sleeper.sleeps, 1);
  EXPECT_GE(spun, budget);
  EXPECT_LE(spun, budget + 2 * kTimeCheckNs);
}

TEST_F(WaiterTest, ABoundOfNothingNeverSpins) {
  Waiter never_spins(0, clock, probe);
  sleeper.on_sleep = [&] { return SleepResult::woken; };
  int seen = 0;
  EXPECT_EQ(never_spins.wait(word, sleeper, Deadline::never(), [&] { return ++seen == 3; }), WaitResult::ready);
  EXPECT_EQ(sleeper.sleeps, 1) << "one look, one look again after arming, and to bed";
}

TEST_F(WaiterTest, SleepsAgainWhenWokenForNothing) {
  sleeper.on_sleep = [&] { return clock.advance_ns(1000), SleepResult::woken; };
  EXPECT_EQ(wait(Deadline::never(), [&] { return sleeper.sleeps == 5; }), WaitResult::ready);
}

TEST_F(WaiterTest, IsArmedWheneverItSleeps) {
  sleeper.on_sleep = [&] {
    EXPECT_TRUE(word.must_wake());
    EXPECT_FALSE(word.must_wake()) << "one waker wins";
    return SleepResult::woken;
  };
  EXPECT_EQ(wait(Deadline::never(), [&] { return sleeper.sleeps == 3; }), WaitResult::ready);
}

TEST_F(WaiterTest, GivesUpAtTheDeadline) {
  const auto never = [] { return false; };
  EXPECT_EQ(wait(Deadline::at_ns(0), never), WaitResult::timeout);
  EXPECT_EQ(sleeper.sleeps, 0) << "already late";

  const Deadline soon = Deadline::after_ns(clock, 1'000'000);
  sleeper.on_sleep = [&] { return clock.advance_ns(soon.left_ns(clock.now_ns())), SleepResult::timeout; };
  EXPECT_EQ(wait(soon, never), WaitResult::timeout);
  EXPECT_EQ(sleeper.sleeps, 1);
}

TEST_F(WaiterTest, DoesNotSpinPastTheDeadline) {
  const std::uint64_t start = clock.now_ns();
  EXPECT_EQ(wait(Deadline::after_ns(clock, 10'000), [] { return false; }), WaitResult::timeout);
  EXPECT_LE(clock.now_ns() - start, 10'000 + 2 * kTimeCheckNs);
  EXPECT_EQ(sleeper.sleeps, 0);
}

TEST_F(WaiterTest, ReportsASignalUnlessItIsReady) {
  sleeper.on_sleep = [] { return SleepResult::interrupted; };
  EXPECT_EQ(wait(Deadline::never(), [] { return false; }), WaitResult::interrupted);
  EXPECT_EQ(wait(Deadline::never(), [&] { return sleeper.sleeps == 2; }), WaitResult::ready);
}

TEST_F(WaiterTest, ReadyAtTheLastMomentIsReady) {
  const Deadline soon = Deadline::after_ns(clock, 1'000'000);
  sleeper.on_sleep = [&] { return clock.advance_ns(2'000'000), SleepResult::timeout; };
  EXPECT_EQ(wait(soon, [&] { return sleeper.sleeps == 1; }), WaitResult::ready);
}

// A fence that misses a processor must cost a moment, not hang: after each wake-up the first sleep is a nap.
TEST_F(WaiterTest, LooksOnceMoreSoonAfterFallingAsleepAndThenSleepsSoundly) {
  sleeper.on_sleep = [&] {
    if (sleeper.untils.back().is_never()) return SleepResult::woken;
    clock.advance_ns(sleeper.untils.back().left_ns(clock.now_ns()));
    return SleepResult::timeout;
  };
  EXPECT_EQ(wait(Deadline::never(), [&] { return sleeper.sleeps == 4; }), WaitResult::ready);
  ASSERT_EQ(sleeper.untils.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(sleeper.untils[i].is_never(), i % 2 == 1) << i;

  sleeper.sleeps = 0;
  EXPECT_EQ(wait(Deadline::never(), [&] { return sleeper.sleeps == 1; }), WaitResult::ready)
      << "published, and nobody woke us";
}

TEST_F(WaiterTest, LearnsHowLongToSpin) {
  const auto settle = [&](std::uint64_t delay) {
    for (int i = 0; i < 60; ++i) wait_for_event_after(delay);
    return waiter.spin_budget_ns();
  };
  const std::uint64_t for_short = settle(5'000);
  EXPECT_GE(for_short, 5'000u) << "long enough for what it has seen";
  EXPECT_LE(for_short, kBoundNs);
  const std::uint64_t for_long = settle(2'000'000);
  EXPECT_EQ(for_long, SpinBudget::kLeastNs) << "hopeless: hardly at all";
  ASSERT_GT(sleeper.sleeps, 0);
  sleeper.sleeps = 0;
  EXPECT_EQ(settle(5'000), for_short) << "it found its way back, though every wait had to be slept at first";
  EXPECT_GT(sleeper.sleeps, 0);
  EXPECT_LT(sleeper.sleeps, 60);
}

TEST_F(WaiterTest, LeavesACoreThatSomebodyElseWants) {
  probe.wanted = true;
  EXPECT_LT(wait_for_event_after(200'000), kBoundNs / 4) << "at the first sign";
  EXPECT_EQ(probe.asked, 1);
  EXPECT_EQ(sleeper.sleeps, 1);

  EXPECT_EQ(waiter.spin_budget_ns(), 0u);
  EXPECT_LE(wait_for_event_after(200'000), 2 * kLookNs) << "does not spin at all for the back-off";
  EXPECT_EQ(probe.asked, 1);

  clock.advance_ns(SpinBudget::kMostBackOffNs);
  EXPECT_GT(waiter.spin_budget_ns(), 0u);
}

TEST(Spinner, GlancesOnlyWhereTheLastWaitWasOverAtOnce) {
  MockClock clock;
  FakeProbe probe;
  Spinner spinner(kBoundNs, clock, probe);
  int looks = 0;
  const auto at_look = [&](int which) { return [&looks, which] { return ++looks >= which; }; };
  const auto never = [&] { return ++looks, false; };
  const auto soon = at_look(3);
  EXPECT_FALSE(spinner.glance(soon)) << "nothing is known yet";
  EXPECT_EQ(looks, 0);
  if (!spinner.spin(clock.now_ns(), Deadline::never(), soon)) GTEST_SKIP() << "one processor: nobody spins";
  looks = 0;
  EXPECT_TRUE(spinner.glance(soon));
  EXPECT_EQ(looks, 3);
  looks = 0;
  EXPECT_FALSE(spinner.glance(never)) << "a few looks only";
  EXPECT_GT(looks, 10);
  looks = 0;
  EXPECT_FALSE(spinner.glance(soon)) << "not again before an answer has come at once";
  EXPECT_EQ(looks, 0);
}

TEST(SpinBudget, BacksOffLongerEachTimeUntilTheCoreIsFree) {
  SpinBudget budget(kBoundNs);
  // How long after a contention at `now` nothing is spun.
  std::uint64_t now = 1;
  const auto back_off = [&] {
    budget.core_contended(now);
    const std::uint64_t start = now;
    while (budget.budget_ns(now) == 0) now += SpinBudget::kLeastBackOffNs / 4;
    return now - start;
  };
  const std::uint64_t first = back_off(), second = back_off();
  EXPECT_EQ(first, SpinBudget::kLeastBackOffNs);
  EXPECT_GT(second, first);
  for (int i = 0; i < 20; ++i) EXPECT_LE(back_off(), SpinBudget::kMostBackOffNs);
  budget.core_free();
  EXPECT_EQ(back_off(), first);
}

TEST(WakeCost, IsNearlyTheLeastThatWasMeasured) {
  WakeCost cost;
  EXPECT_EQ(cost.ns(), WakeCost::kAtFirstNs);
  cost.note(9'000);
  EXPECT_EQ(cost.ns(), 9'000U);
  for (int i = 0; i < 10; ++i) cost.note(5'000'000);
  EXPECT_LT(cost.ns(), 12'000U) << "a processor that others have for a while";
  for (int i = 0; i < 10'000; ++i) cost.note(30'000);
  EXPECT_NEAR(static_cast<double>(cost.ns()), 30'000, 300) << "but if it stays so, it is so";
}

TEST(SpinBudget, WhereProcessorsAreShortItSpinsNoLongerThanAWakeUpTakes) {
  WakeCost cost;
  cost.note(9'000);
  SpinBudget budget(kBoundNs, cost);
  std::uint64_t now = 1;
  EXPECT_EQ(budget.budget_ns(now), kBoundNs) << "nobody wants the processor";
  budget.core_contended(now);
  now += SpinBudget::kLeastBackOffNs;
  EXPECT_EQ(budget.budget_ns(now), kBoundNs / 2 <= 9'000 ? 9'000U : 0U);
  for (int i = 0; i < 50; ++i) budget.learn(2'000, false);
  EXPECT_EQ(budget.budget_ns(now), 9'000U);
  for (int i = 0; i < 50; ++i) budget.learn(20'000, false);
  EXPECT_EQ(budget.budget_ns(now), 0U) << "nearly all come later";
  now += SpinBudget::kShortNs;
  EXPECT_EQ(budget.budget_ns(now), kBoundNs);
}

TEST_F(WaiterTest, AsksForTheCoreNowAndThenOnly) {
  wait_for_event_after(500'000);
  EXPECT_GT(probe.asked, 0);
  EXPECT_LE(probe.asked, 1 + static_cast<int>(kBoundNs / 10'000)) << "a yield is not free";
}

}  // namespace
}  // namespace viaduct
