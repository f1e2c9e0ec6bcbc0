// viaduct ping: the way to another host, and what it carries.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <viaduct/net.hpp>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/stop_signals.hpp"
#include "cli/table.hpp"
#include "net/ping.hpp"

namespace viaduct::cli {

namespace {

struct Options {
  std::string host;
  bool answer = false;
  bool json = false;
  std::uint16_t port = net::kWellKnownPort;
  std::uint32_t count = 1000;
  double seconds = 0.5;
  double timeout = 3;
};

double at(const std::vector<std::uint64_t>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1));
  return static_cast<double>(sorted[index]) / 1e3;
}

// What one way to the host carries; or why it was not measured.
struct PathResult {
  std::string path;
  std::string why = {};
  std::string peer = {};
  std::size_t frame_size = 0;
  std::vector<std::uint64_t> polling = {}, sleeping = {};  // ns, sorted
  double put_bytes_per_second = 0, get_bytes_per_second = 0;
  net::SessionCounters counters = {};
};

struct PingResult {
  net::Route route;
  std::string taken, why;  // what a connection to that host goes by
  std::vector<PathResult> paths;
};

Result<PathResult> measure(const std::string& path, net::Pinger& pinger, const Options& options) {
  const auto bulk_time = static_cast<std::uint64_t>(options.seconds * 1e9);
  PathResult result{.path = path};
  VIADUCT_TRY(result.polling, pinger.round_trips(options.count, true));
  VIADUCT_TRY(result.sleeping, pinger.round_trips(options.count, false));
  std::sort(result.polling.begin(), result.polling.end());
  std::sort(result.sleeping.begin(), result.sleeping.end());
  const auto bulk = [&](net::Pinger::Way way) { return pinger.bulk(way, net::Pinger::kMemory, UINT64_MAX, bulk_time); };
  VIADUCT_TRY(result.put_bytes_per_second, bulk(net::Pinger::Way::put));
  VIADUCT_TRY(result.get_bytes_per_second, bulk(net::Pinger::Way::get));
  result.peer = pinger.peer();
  result.frame_size = pinger.frame_size();
  result.counters = pinger.counters();
  return result;
}

// Whether they are there depends on both sides: that they are not is no fault.
PathResult measure_frames(const net::Route& route, bool own, const Options& options) {
  constexpr std::uint64_t kPatience = 1'000'000'000;
  if (own) return {.path = "packet", .why = "no interface is between a host and itself"};
  auto pinger = net::Pinger::by_frames(route, kPatience);
  if (!pinger) return {.path = "packet", .why = pinger.error().message()};
  auto result = measure("packet", **pinger, options);
  return result ? *result : PathResult{.path = "packet", .why = result.error().message()};
}

Result<PingResult> measure(const Options& options) {
  VIADUCT_TRY(const auto pinger, net::Pinger::open(options.host, static_cast<std::uint64_t>(options.timeout * 1e9)));
  PingResult result;
  result.route = pinger->route();
  const bool own = net::Engine::is_this_host(options.host);
  result.taken = own ? "shared memory" : "udp";
  result.why = own ? "it is this host" : "it is another host; UDP needs no privilege";
  VIADUCT_TRY(PathResult udp, measure("udp", *pinger, options));
  result.paths.push_back(std::move(udp));
  result.paths.push_back(measure_frames(result.route, own, options));
  return result;
}

std::uint64_t lost(const net::SessionCounters& counters) {
  return counters.lost_by_number + counters.lost_by_time - counters.needless;
}

nlohmann::json as_json(const PathResult& result) {
  if (!result.why.empty()) return {{"path", result.path}, {"there", false}, {"why", result.why}};
  const auto times = [](const std::vector<std::uint64_t>& sorted) {
    return nlohmann::json{{"p50", at(sorted, 0.5)}, {"p99", at(sorted, 0.99)}, {"least", at(sorted, 0)}};
  };
  const net::SessionCounters& counters = result.counters;
  return {{"path", result.path},
          {"there", true},
          {"peer", result.peer},
          {"frame_bytes", result.frame_size},
          {"round_trip_us", {{"polling", times(result.polling)}, {"sleeping", times(result.sleeping)}}},
          {"put_bytes_per_second", result.put_bytes_per_second},
          {"get_bytes_per_second", result.get_bytes_per_second},
          {"frames_sent", counters.frames_sent},
          {"frames_received", counters.frames_received},
          {"frames_lost", lost(counters)},
          {"repaired_needlessly", counters.needless}};
}

nlohmann::json as_json(const PingResult& result) {
  nlohmann::json paths = nlohmann::json::array();
  for (const PathResult& path : result.paths) paths.push_back(as_json(path));
  return {{"asked", result.route.peer},
          {"taken", result.taken},
          {"why", result.why},
          {"from", result.route.from},
          {"interface", result.route.interface},
          {"mtu", result.route.mtu},
          {"paths", paths}};
}

std::string as_text(const PingResult& result) {
  std::string text = fmt::format("{}: {}, so connections go over {}; the way there is {}\n", result.route.peer,
                                 result.why, result.taken, result.route.text());
  using Align = Column::Align;
  Table table({{"PATH"}, {"WHAT"}, {"MEDIAN", Align::right}, {"99 %", Align::right}, {"LEAST", Align::right}});
  std::string remarks;
  for (const PathResult& path : result.paths) {
    if (!path.why.empty()) {
      remarks += fmt::format("{}: not measured: {}\n", path.path, path.why);
      continue;
    }
    const auto row = [&](const char* what, const std::vector<std::uint64_t>& times) {
      table.add({path.path, what, fmt::format("{:.1f} us", at(times, 0.5)), fmt::format("{:.1f} us", at(times, 0.99)),
                 fmt::format("{:.1f} us", at(times, 0))});
    };
    const auto bulk = [&](const char* what, double rate) {
      table.add({path.path, what, fmt::format("{:.2f} Gbit/s", rate * 8 / 1e9), "", ""});
    };
    row("4 bytes there and back, polling", path.polling);
    row("4 bytes there and back, sleeping", path.sleeping);
    bulk("bulk to its memory", path.put_bytes_per_second);
    bulk("bulk from its memory", path.get_bytes_per_second);
    remarks += fmt::format(
        "{}: frames of {} bytes to {}; {} of {} were lost on the way there, {} repaired needlessly\n", path.path,
        path.frame_size, path.peer, lost(path.counters), path.counters.frames_sent, path.counters.needless);
  }
  return text + table.text(Screen::standard_output()) + remarks;
}

ExitCode answer(const Options& options) {
  auto answerer = net::PingAnswerer::open(options.port);
  if (!answerer) return failure(answerer.error().message());
  std::string why;
  const std::vector<std::string> interfaces = (*answerer)->answer_frames(options.port, why);
  StopSignals stop;
  fmt::print(
      "answering at UDP port {}; {}; Ctrl-C ends it\n", options.port,
      interfaces.empty() ? "not by frames: " + why : fmt::format("by frames on {}", fmt::join(interfaces, ", ")));
  std::fflush(stdout);
  while (!stop.wait(std::chrono::milliseconds(0))) (*answerer)->turn(50'000'000);
  return ExitCode::ok;
}

ExitCode run_ping(const Options& options) {
  if (options.answer) {
    if (!options.host.empty()) return usage_error("ping: --answer takes no HOST");
    return answer(options);
  }
  if (options.host.empty()) return usage_error("ping: which HOST? (or --answer, at the other end)");
  const auto result = measure(options);
  if (!result) return failure(result.error().message());
  if (options.json) {
    fmt::print("{}\n", as_json(*result).dump(2));
  } else {
    fmt::print("{}", as_text(*result));
  }
  return ExitCode::ok;
}

}  // namespace

void add_ping(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("ping", "Measure the way to another host");
  command->add_option("HOST", options->host, "HOST or HOST:PORT, where `viaduct ping --answer` runs");
  command->add_flag("--answer", options->answer, "Answer those who ask, until Ctrl-C");
  command->add_option("--port", options->port, "With --answer: the UDP port")
      ->capture_default_str()
      ->check(number_between(1, 65535));
  command->add_option("--count", options->count, "Round trips of each kind")
      ->capture_default_str()
      ->check(number_between(1, 1e6));
  command->add_option("--seconds", options->seconds, "How long bulk data go each way")
      ->capture_default_str()
      ->check(number_between(0.01, 60));
  command->add_option("--timeout", options->timeout, "Seconds to wait for an answer")
      ->capture_default_str()
      ->check(number_between(0.1, 600));
  command->add_flag("--json", options->json, "Print JSON");
  on_run(*command, [options] { return run_ping(*options); });
}

}  // namespace viaduct::cli
