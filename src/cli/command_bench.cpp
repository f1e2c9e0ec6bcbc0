// `viaduct bench`: runs benchmarks by name, prints their tables, and writes the JSON that plots and comparisons read.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "cli/command.hpp"
#include "cli/nearest_name.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

struct BenchOptions {
  std::vector<std::string> names;
  std::string json_file;
  bool list = false;
  bool quick = false;
  bool check = false;
  int rounds = 0;
  std::string serve_tuned_memcpy;  // hidden: "buffer size:processor"
};

ExitCode list_benchmarks() {
  Table table({{"benchmark"}, {"what it measures"}});
  for (const bench::Benchmark& benchmark : bench::benchmarks())
    table.add({std::string(benchmark.name), std::string(benchmark.summary)});
  fmt::print("{}", table.text(Screen::standard_output()));
  return ExitCode::ok;
}

// All of them where none is named; otherwise in the order given. An unknown name is left in `unknown`.
std::vector<const bench::Benchmark*> choose(const std::vector<std::string>& names, std::string& unknown) {
  std::vector<const bench::Benchmark*> chosen;
  const auto all = bench::benchmarks();
  if (names.empty())
    for (const bench::Benchmark& benchmark : all) chosen.push_back(&benchmark);
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
    if (found == all.end()) return unknown = name, chosen;
    chosen.push_back(&*found);
  }
  return chosen;
}

std::string unknown_benchmark(const std::string& name) {
  std::vector<std::string> names;
  for (const bench::Benchmark& benchmark : bench::benchmarks()) names.emplace_back(benchmark.name);
  const auto nearest = nearest_name(name, names);
  return fmt::format("there is no benchmark '{}'{} (viaduct bench --list)", name,
                     nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
}

ExitCode run_benchmarks(const BenchOptions& options) {
  if (options.list) return list_benchmarks();
  if (unsigned long size = 0; !options.serve_tuned_memcpy.empty()) {
    int processor = 0;
    if (std::sscanf(options.serve_tuned_memcpy.c_str(), "%lu:%d", &size, &processor) != 2) return ExitCode::usage;
    return bench::serve_tuned_memcpy(size, processor) == 0 ? ExitCode::ok : ExitCode::failed;
  }
  std::string unknown;
  const auto chosen = choose(options.names, unknown);
  if (!unknown.empty()) return usage_error(unknown_benchmark(unknown));

  std::ofstream json;
  if (!options.json_file.empty()) {
    json.open(options.json_file);
    if (!json) return failure(fmt::format("{} cannot be written", options.json_file));
  }
  std::vector<bench::Report> reports;
  bool all_met = true;
  for (const bench::Benchmark* benchmark : chosen) {
    auto report = benchmark->run({options.quick, options.rounds, ::isatty(STDERR_FILENO) == 1});
    if (!report) return failure(report.error().because(fmt::format("benchmark {}", benchmark->name)).message());
    fmt::print("{}\n", bench::to_table(*report));
    std::fflush(stdout);
    for (const bench::GoalResult& goal : report->goals) all_met = all_met && goal.met;
    reports.push_back(std::move(*report));
  }
  if (json.is_open()) {
    json << bench::to_json(reports) << "\n";
    if (!json.flush()) return failure(fmt::format("{} cannot be written", options.json_file));
  }
  if (options.check && !all_met) return failure("a goal was missed");
  return ExitCode::ok;
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure us, our peers and the floor in one run");
  command->add_option("NAME", options->names, "Benchmarks to run; all when none is named")->type_name("");
  command->add_flag("--list", options->list, "List the benchmarks");
  command->add_option("--json", options->json_file, "Also write the results to this file")->type_name("FILE");
  command->add_flag("--quick", options->quick, "Few rounds: shows that it works, not how fast");
  command
      ->add_option("--rounds", options->rounds, "Rounds to take medians over; each benchmark's own number if not given")
      ->type_name("N")
      ->check(number_between(1, 1000));
  command->add_flag("--check", options->check, "Exit with 1 when a goal is missed");
  command->add_option("--serve-tuned-memcpy", options->serve_tuned_memcpy)->group("");  // started by ourselves only
  on_run(*command, [options] { return run_benchmarks(*options); });
}

}  // namespace viaduct::cli
