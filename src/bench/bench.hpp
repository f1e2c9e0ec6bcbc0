// The door of the bench room: the benchmarks there are, running one, and its report as a table or as JSON.
//
// A benchmark is a list of measurements. Those of one case compare us with peers and with a floor that nothing can beat
// (a bare cache line, one memcpy). All of them run interleaved in one process tree, pinned, over several rounds; a
// report gives medians and spread, and ratios taken round by round, so that a machine that slows down for a while slows
// everybody.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace viaduct::bench {

enum class Kind { us, peer, floor };
enum class Better { lower, higher };

struct Row {
  std::string case_name;
  std::string who;
  Kind kind = Kind::us;
  std::string metric;
  std::string unit;
  Better better = Better::lower;
  std::vector<double> samples;  // one per round

  double percentile(double share) const;
  double median() const { return percentile(0.5); }
};

struct Ratio {
  std::string case_name;
  std::string metric;
  std::string us;
  std::string against;
  double ratio = 0;  // the median over the rounds of us / against
};

// What a benchmark must show: our ratio against somebody, bounded.
struct Goal {
  std::string case_name;
  std::string metric;
  std::string us;
  std::string against;
  Better better = Better::lower;  // lower: at most `bound`; higher: at least
  double bound = 0;
};

struct GoalResult {
  Goal goal;
  double ratio = 0;
  bool met = false;
  std::optional<double> floor{};  // what stands between us and the goal where even the floor does not reach it
};

struct Report {
  std::string benchmark;
  std::string title;
  std::vector<Row> rows;
  std::vector<Ratio> ratios;
  std::vector<GoalResult> goals;
  std::vector<std::string> notes;  // what could not be measured here, and why
};

struct Options {
  bool quick = false;  // few rounds: shows that it works, not how fast
  int rounds = 0;      // 0: the benchmark's own number
  bool progress = false;
};

struct Benchmark {
  std::string_view name;
  std::string_view summary;
  Result<Report> (*run)(const Options&);
};

std::span<const Benchmark> benchmarks();

// Not for people: the process behind the peer "memcpy, tuned" (tuned_memcpy.hpp). Returns its exit code.
int serve_tuned_memcpy(std::size_t buffer_size, int processor);

std::string to_table(const Report& report);
std::string to_json(const std::vector<Report>& reports);  // docs/benchmarks.md has the schema

}  // namespace viaduct::bench
