#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/bench.hpp"

namespace viaduct::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report report_of(double bound, double ratio) {
  Report report;
  report.goals.push_back({{"8 B", "round trip", "viaduct", "TCP", Better::lower, bound}, ratio, ratio <= bound});
  return report;
}

TEST(BenchReport, SmallRatiosShowWhyAGoalWasMissed) {
  EXPECT_THAT(to_table(report_of(1.0 / 300, 1.0 / 290)),
              HasSubstr("MISSED  8 B, round trip: viaduct at most 0.00333x TCP: 0.00345x"));
}

TEST(BenchReport, SaysWhereNobodyCouldReachAGoal) {
  Report report = report_of(1.0 / 300, 1.0 / 120);
  EXPECT_THAT(to_table(report), Not(HasSubstr("out of reach")));
  report.goals.front().floor = 1.0 / 130;
  EXPECT_THAT(to_table(report), HasSubstr("TCP: 0.00833x (out of reach this time: the floor is at 0.00769x)"));
}

TEST(BenchReport, LargerOnesHaveThreeDigitsBehindThePoint) {
  EXPECT_THAT(to_table(report_of(2, 1.3741)), HasSubstr("met     8 B, round trip: viaduct at most 2.000x TCP: 1.374x"));
}

}  // namespace
}  // namespace viaduct::bench
