// viaduct ping: the way to another host, and what it carries.
#include <fmt/format.h>

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

struct PingResult {
  net::Route route;
  std::string peer;
  std::size_t frame_size = 0;
  std::vector<std::uint64_t> polling, sleeping;  // ns, sorted
  double put_bytes_per_second = 0, get_bytes_per_second = 0;
  net::SessionCounters counters;
};

Result<PingResult> measure(const Options& options) {
  const auto timeout = static_cast<std::uint64_t>(options.timeout * 1e9);
  const auto bulk_time = static_cast<std::uint64_t>(options.seconds * 1e9);
  VIADUCT_TRY(const auto pinger, net::Pinger::open(options.host, timeout));
  PingResult result;
  VIADUCT_TRY(result.polling, pinger->round_trips(options.count, true));
  VIADUCT_TRY(result.sleeping, pinger->round_trips(options.count, false));
  std::sort(result.polling.begin(), result.polling.end());
  std::sort(result.sleeping.begin(), result.sleeping.end());
  const auto bulk = [&](net::Pinger::Way way) {
    return pinger->bulk(way, net::Pinger::kMemory, UINT64_MAX, bulk_time);
  };
  VIADUCT_TRY(result.put_bytes_per_second, bulk(net::Pinger::Way::put));
  VIADUCT_TRY(result.get_bytes_per_second, bulk(net::Pinger::Way::get));
  result.route = pinger->route();
  result.peer = pinger->peer();
  result.frame_size = pinger->frame_size();
  result.counters = pinger->counters();
  return result;
}

nlohmann::json as_json(const PingResult& result) {
  const auto times = [](const std::vector<std::uint64_t>& sorted) {
    return nlohmann::json{{"p50", at(sorted, 0.5)}, {"p99", at(sorted, 0.99)}, {"least", at(sorted, 0)}};
  };
  const net::SessionCounters& counters = result.counters;
  return {{"path", "udp"},
          {"asked", result.route.peer},
          {"peer", result.peer},
          {"from", result.route.from},
          {"mtu", result.route.mtu},
          {"frame_bytes", result.frame_size},
          {"round_trip_us", {{"polling", times(result.polling)}, {"sleeping", times(result.sleeping)}}},
          {"put_bytes_per_second", result.put_bytes_per_second},
          {"get_bytes_per_second", result.get_bytes_per_second},
          {"frames_sent", counters.frames_sent},
          {"frames_received", counters.frames_received},
          {"frames_lost", counters.lost_by_number + counters.lost_by_time - counters.needless},
          {"repaired_needlessly", counters.needless}};
}

std::string as_text(const PingResult& result) {
  std::string text =
      fmt::format("{}: over UDP from {} (MTU {}, frames of {} bytes); its process is {}\n", result.route.peer,
                  result.route.from, result.route.mtu, result.frame_size, result.peer);
  using Align = Column::Align;
  Table table({{"WHAT"}, {"MEDIAN", Align::right}, {"99 %", Align::right}, {"LEAST", Align::right}});
  const auto row = [&](const char* what, const std::vector<std::uint64_t>& times) {
    table.add({what, fmt::format("{:.1f} us", at(times, 0.5)), fmt::format("{:.1f} us", at(times, 0.99)),
               fmt::format("{:.1f} us", at(times, 0))});
  };
  row("4 bytes there and back, polling", result.polling);
  row("4 bytes there and back, sleeping", result.sleeping);
  table.add({"bulk to its memory", fmt::format("{:.2f} Gbit/s", result.put_bytes_per_second * 8 / 1e9), "", ""});
  table.add({"bulk from its memory", fmt::format("{:.2f} Gbit/s", result.get_bytes_per_second * 8 / 1e9), "", ""});
  text += table.text(Screen::standard_output());
  const net::SessionCounters& counters = result.counters;
  const std::uint64_t lost = counters.lost_by_number + counters.lost_by_time - counters.needless;
  return text + fmt::format("{} of {} frames were lost on the way there, {} repaired needlessly\n", lost,
                            counters.frames_sent, counters.needless);
}

ExitCode answer(const Options& options) {
  auto answerer = net::PingAnswerer::open(options.port);
  if (!answerer) return failure(answerer.error().message());
  StopSignals stop;
  fmt::print("answering at UDP port {}; Ctrl-C ends it\n", options.port);
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
