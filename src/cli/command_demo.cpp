// `viaduct demo`: the main job shown to a newcomer, as a table of before and after.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.hpp"
#include "cli/command.hpp"
#include "cli/demo_lines.hpp"
#include "cli/redis_demo.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

std::string amount(const bench::Row& row) {
  const double value = row.median();
  if (row.unit == "share") return fmt::format("{:.0f} % hidden", std::max(value, 0.0) * 100);
  if (row.unit == "ns" && value >= 1000) return fmt::format("{:.1f} us", value / 1000);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 0, row.unit);
}

const bench::Row* find(const bench::Report& report, const DemoLine& line, std::string_view who) {
  for (const bench::Row& row : report.rows)
    if (row.case_name == line.case_name && row.metric == line.metric && row.who == who) return &row;
  return nullptr;
}

Result<bench::Report> measure(std::string_view name) {
  for (const bench::Benchmark& benchmark : bench::benchmarks())
    if (benchmark.name == name) return benchmark.run({name != "ring", 5, ::isatty(STDERR_FILENO) == 1});
  return Error(ENOENT, fmt::format("there is no benchmark '{}'", name));
}

Cell gain_cell(double gain, bool at_least = false) {
  return {fmt::format("{}{:.1f}x", at_least ? "> " : "", gain), gain >= 1 ? Tone::good : Tone::bad};
}

// redis-benchmark cannot tell shorter ones apart.
constexpr double kShortestToldUs = 10;

std::string latency(double us) {
  return us < kShortestToldUs ? fmt::format("< {:.0f} us", kShortestToldUs) : fmt::format("{:.0f} us", us);
}

// The main job, on a program that knows nothing of us.
void show_redis() {
  fmt::print(
      "redis-server and redis-benchmark, as their authors built them: first on kernel TCP, then under `viaduct "
      "run`.\n\n");
  std::fflush(stdout);
  const auto comparisons = compare_on_redis();
  if (!comparisons) {
    fmt::print("SKIPPED: {}{}\n\n", comparisons.error().message(),
               comparisons.error().code() == ENOENT ? "; install the package redis-tools to see it" : "");
    return;
  }
  Table table(
      {{"redis"}, {""}, {"kernel TCP", Column::Align::right}, {"with Viaduct", Column::Align::right}, {"gain"}});
  for (const RedisComparison& each : *comparisons) {
    const RedisFigures &before = each.kernel, &after = each.viaduct;
    table.add({each.job, "requests/s", fmt::format("{:.0f}", before.requests_per_second),
               fmt::format("{:.0f}", after.requests_per_second),
               gain_cell(after.requests_per_second / before.requests_per_second)});
    table.add(
        {"", "median latency", latency(before.median_us), latency(after.median_us),
         gain_cell(before.median_us / std::max(after.median_us, kShortestToldUs), after.median_us < kShortestToldUs)});
    table.add({"", "CPU per request", fmt::format("{:.1f} us", before.cpu_us_per_request),
               fmt::format("{:.1f} us", after.cpu_us_per_request),
               gain_cell(before.cpu_us_per_request / after.cpu_us_per_request)});
  }
  fmt::print("{}\nCPU time is that of server and benchmark together.\n\n", table.text(Screen::standard_output()));
}

ExitCode run_demo() {
  show_redis();
  fmt::print(
      "Two processes on this machine talk: first through the kernel, then through Viaduct. Then memory is copied: "
      "first with\n"
      "memcpy, then with the engine.\n\n");
  std::fflush(stdout);
  Table table({{"job"}, {"before"}, {""}, {"with Viaduct", Column::Align::right}, {"gain"}});
  std::vector<bench::Report> reports;
  for (const DemoLine& line : kDemoLines) {
    auto known =
        std::find_if(reports.begin(), reports.end(), [&](const auto& r) { return r.benchmark == line.benchmark; });
    if (known == reports.end()) {
      auto report = measure(line.benchmark);
      if (!report) return failure(report.error().message());
      known = reports.insert(reports.end(), std::move(*report));
    }
    const bench::Row* before = find(*known, line, line.before);
    const bench::Row* after = find(*known, line, line.after);
    if (before == nullptr || after == nullptr) continue;  // not to be had on this machine
    const bool lower = after->better == bench::Better::lower;
    const double gain = lower ? before->median() / after->median() : after->median() / before->median();
    const bool share = after->unit == "share";  // from next to nothing: a factor would say nothing
    table.add({std::string(line.job), std::string(line.before), amount(*before), amount(*after),
               share ? Cell("") : Cell(fmt::format("{:.1f}x", gain), gain >= 1 ? Tone::good : Tone::bad)});
  }
  fmt::print("{}\n", table.text(Screen::standard_output()));
  fmt::print(
      "A message is answered: half a round trip. By itself a pipe or a socket sleeps until it comes; a ring spins for "
      "a\n"
      "while first, and then sleeps too. Of the last copy it is said how much of its time passes while the program\n"
      "computes: with memcpy it does nothing else meanwhile, the engine's workers copy beside it.\n"
      "Medians of five rounds, everybody interleaved, each process on its own processor.\n\n"
      "viaduct bench NAME      the same with spread, floor and goals (--list names them)\n"
      "viaduct run -- PROGRAM  a program of yours; viaduct ls shows its connections meanwhile\n"
      "viaduct info            what this machine offers\n");
  return ExitCode::ok;
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* command = app.add_subcommand("demo", "Show what it does: a table of before and after");
  on_run(*command, run_demo);
}

}  // namespace viaduct::cli
