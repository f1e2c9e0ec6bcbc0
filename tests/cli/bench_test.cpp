// Every benchmark there is, quickly: that it runs, and that what it reports is numbers. How large they are is not a
// matter of tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/child.hpp"
#include "bench/bench.hpp"
#include "cli/demo_lines.hpp"
#include "cli/run_command.hpp"

namespace viaduct::cli {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const bench::Benchmark& benchmark : bench::benchmarks()) all.emplace_back(benchmark.name);
  return all;
}

// Of an overlap noise may leave nothing; lines that do not move, and sleeps that nobody ends, are the best there is.
bool may_be_none(const nlohmann::json& row) {
  const std::string metric = row.at("metric");
  return metric == "overlap" || metric == "lines moved" || metric == "wakes";
}

class Bench : public ::testing::TestWithParam<std::string> {};

TEST_P(Bench, RunsQuicklyAndReportsNumbers) {
  if (viaduct::testing::kSanitized) GTEST_SKIP() << "under a sanitizer a benchmark measures the sanitizer";
  const std::string file = ::testing::TempDir() + "bench-" + GetParam() + "-" + std::to_string(::getpid()) + ".json";
  const Outcome outcome = run_command({"bench", GetParam(), "--quick", "--json", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");

  const auto report = nlohmann::json::parse(std::ifstream(file));
  ::unlink(file.c_str());
  EXPECT_EQ(report.at("benchmark"), GetParam());
  // Only what cannot be had here may report nothing, and then it says why.
  EXPECT_TRUE(!report.at("rows").empty() || !report.at("notes").empty());
  for (const auto& row : report.at("rows")) {
    ASSERT_TRUE(row.at("median").is_number()) << row;
    const auto median = row.at("median").get<double>();
    EXPECT_TRUE(std::isfinite(median)) << row;
    EXPECT_TRUE(may_be_none(row) || row.at("p90").get<double>() > 0) << row;  // a short round may see no turn at all
  }
  for (const auto& ratio : report.at("ratios"))
    EXPECT_TRUE(may_be_none(ratio) || ratio.at("ratio").is_number()) << ratio;
}

INSTANTIATE_TEST_SUITE_P(All, Bench, ::testing::ValuesIn(names()), [](const auto& tested) {
  std::string name = tested.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

// A line whose row has another name would be missing from the demo without a word.
TEST(Demo, ComparesRowsThatTheRingsHave) {
  if (viaduct::testing::kSanitized) GTEST_SKIP() << "under a sanitizer a benchmark measures the sanitizer";
  const std::string file = ::testing::TempDir() + "demo-" + std::to_string(::getpid()) + ".json";
  ASSERT_EQ(run_command({"bench", "ring", "--quick", "--json", file}).code, 0);
  const auto report = nlohmann::json::parse(std::ifstream(file));
  ::unlink(file.c_str());
  for (const DemoLine& line : kDemoLines) {
    if (line.benchmark != "ring") continue;
    for (const std::string_view who : {line.before, line.after})
      EXPECT_TRUE(std::any_of(report["rows"].begin(), report["rows"].end(),
                              [&](const nlohmann::json& row) {
                                return row["case"] == line.case_name && row["metric"] == line.metric &&
                                       row["who"] == who;
                              }))
          << line.job << ": " << who;
  }
}

TEST(BenchList, NamesThemAll) {
  const Outcome outcome = run_command({"bench", "--list"});
  EXPECT_EQ(outcome.code, 0);
  for (const std::string& name : names()) EXPECT_THAT(outcome.out, ::testing::HasSubstr("\n" + name + " "));
}

}  // namespace
}  // namespace viaduct::cli
