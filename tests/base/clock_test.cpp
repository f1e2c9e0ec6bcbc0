#include "base/clock.hpp"

#include <gtest/gtest.h>

namespace viaduct {
namespace {

TEST(Clock, TheSteadyOneNeverGoesBack) {
  std::uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t now = Clock::steady().now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, TheMockStandsStillUntilMoved) {
  MockClock clock;
  const std::uint64_t start = clock.now_ns();
  EXPECT_EQ(clock.now_ns(), start);
  clock.advance_ns(5);
  EXPECT_EQ(clock.now_ns(), start + 5);
}

TEST(Deadline, ExpiresAtItsMoment) {
  MockClock clock;
  const Deadline deadline = Deadline::after_ns(clock, 10);
  EXPECT_EQ(deadline.left_ns(clock.now_ns()), 10u);
  clock.advance_ns(9);
  EXPECT_FALSE(deadline.expired(clock.now_ns()));
  EXPECT_EQ(deadline.left_ns(clock.now_ns()), 1u);
  clock.advance_ns(1);
  EXPECT_TRUE(deadline.expired(clock.now_ns()));
  clock.advance_ns(1);
  EXPECT_EQ(deadline.left_ns(clock.now_ns()), 0u) << "not a huge number";
  EXPECT_TRUE(Deadline::after_ns(clock, 0).expired(clock.now_ns()));
}

TEST(Deadline, NeverIsNever) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_FALSE(Deadline::never().expired(UINT64_MAX - 1));
}

TEST(Deadline, ADelayTooLongToAddIsNever) {
  MockClock clock;
  clock.advance_ns(1'000'000);
  const std::uint64_t now = clock.now_ns();
  EXPECT_TRUE(Deadline::after_ns(clock, UINT64_MAX).is_never());
  EXPECT_TRUE(Deadline::after_ns(clock, UINT64_MAX - now).is_never());
  const Deadline last = Deadline::after_ns(clock, UINT64_MAX - 1 - now);
  EXPECT_FALSE(last.is_never());
  EXPECT_EQ(last.left_ns(now), UINT64_MAX - 1 - now);
}

TEST(Timespec, SplitsSecondsAndNanoseconds) {
  const timespec split = to_timespec(3'000'000'007);
  EXPECT_EQ(split.tv_sec, 3);
  EXPECT_EQ(split.tv_nsec, 7);
  EXPECT_LT(to_timespec(UINT64_MAX).tv_nsec, 1'000'000'000);
}

}  // namespace
}  // namespace viaduct
