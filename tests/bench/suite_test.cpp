#include "bench/suite.hpp"

#include <gtest/gtest.h>

namespace viaduct::bench {
namespace {

// One case, lower is better: a bound of ours against a peer that takes 100.
GoalResult goal_of(double floor, double ours, double bound) {
  Suite suite("made-up", "Made up");
  const auto add = [&](const char* who, Kind kind, double value) {
    suite.add({"8 B", who, kind, "round trip", "us", Better::lower, [value] { return value; }});
  };
  add("line", Kind::floor, floor);
  add("TCP", Kind::peer, 100);
  add("viaduct", Kind::us, ours);
  suite.expect({"8 B", "round trip", "viaduct", "TCP", Better::lower, bound});
  const Report report = suite.run({}, 3);
  EXPECT_EQ(report.goals.size(), 1U);
  return report.goals.at(0);
}

TEST(BenchSuite, AMissedGoalIsOutOfReachOnlyWhereTheFloorMissesItToo) {
  const GoalResult met = goal_of(8, 9, 0.1);
  EXPECT_TRUE(met.met);
  EXPECT_DOUBLE_EQ(met.ratio, 0.09);
  EXPECT_FALSE(met.floor);

  const GoalResult missed = goal_of(8, 11, 0.1);
  EXPECT_FALSE(missed.met);
  EXPECT_FALSE(missed.floor);

  const GoalResult beyond = goal_of(10.5, 11, 0.1);
  EXPECT_FALSE(beyond.met);
  ASSERT_TRUE(beyond.floor);
  EXPECT_DOUBLE_EQ(*beyond.floor, 0.105);
}

}  // namespace
}  // namespace viaduct::bench
