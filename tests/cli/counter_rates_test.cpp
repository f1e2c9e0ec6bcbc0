#include "cli/counter_rates.hpp"

#include <gtest/gtest.h>

namespace viaduct::cli {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(CounterRates, HasNoRateInTheFirstReading) {
  CounterRates rates;
  const auto lines = rates.update({{7, "prog", {{"a", 10}}}}, kSecond);
  ASSERT_EQ(lines.size(), 1u);
  ASSERT_EQ(lines[0].counters.size(), 1u);
  EXPECT_EQ(lines[0].counters[0].per_second, std::nullopt);
}

TEST(CounterRates, DividesTheGrowthByTheTime) {
  CounterRates rates;
  (void)rates.update({{7, "prog", {{"a", 10}, {"b", 0}}}}, kSecond);
  const auto lines = rates.update({{7, "prog", {{"a", 30}, {"b", 5}}}}, kSecond + kSecond / 2);
  ASSERT_EQ(lines[0].counters.size(), 2u);
  EXPECT_EQ(lines[0].counters[0].per_second, 40);
  EXPECT_EQ(lines[0].counters[1].per_second, 10) << "a counter that was zero is known, though not shown";
}

TEST(CounterRates, LeavesZerosOut) {
  CounterRates rates;
  const auto lines = rates.update({{7, "prog", {{"a", 0}}}}, kSecond);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].counters.empty());
}

TEST(CounterRates, StartsAnewWhereAValueFell) {
  CounterRates rates;
  (void)rates.update({{7, "prog", {{"a", 100}}}}, kSecond);
  const auto lines = rates.update({{7, "other", {{"a", 3}}}}, 2 * kSecond);
  EXPECT_EQ(lines[0].counters[0].per_second, std::nullopt);
}

}  // namespace
}  // namespace viaduct::cli
