// viaduct nic stat: what the adapters of this machine count, live. viaduct nic trace: the last events of one.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "cli/adapter_readings.hpp"
#include "cli/command_nic.hpp"
#include "cli/live_terminal.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

// Adds to the newer reading how fast its packets came since the older.
void add_rates(std::vector<AdapterReading>& now, const std::vector<AdapterReading>& before, double seconds) {
  for (AdapterReading& reading : now)
    for (const AdapterReading& older : before) {
      if (older.adapter.pid != reading.adapter.pid || older.adapter.name != reading.adapter.name) continue;
      const auto rate = [&](std::uint64_t nic::Totals::*count) {
        return static_cast<double>(reading.adapter.totals.*count - older.adapter.totals.*count) / seconds;
      };
      reading.sent_per_second = rate(&nic::Totals::packets_sent);
      reading.received_per_second = rate(&nic::Totals::packets_received);
    }
}

ExitCode watch(const WatchOptions& options, std::vector<AdapterReading> reading) {
  const Clock& clock = Clock::steady();
  const auto delay = std::chrono::nanoseconds(std::llround(options.interval * 1e9));
  {
    LiveTerminal terminal;
    std::uint64_t before_ns = clock.now_ns();
    while (!reading.empty()) {
      if (!terminal.show(options.json ? in_json(reading) : in_text(reading))) return ExitCode::failed;
      if (!terminal.wait(delay)) return ExitCode::ok;
      std::vector<Error> ended;
      auto next = read_adapters_of(options.pids, ended);
      const std::uint64_t now_ns = clock.now_ns();
      add_rates(next, reading, static_cast<double>(now_ns - before_ns) / 1e9);
      before_ns = now_ns;
      reading = std::move(next);
    }
  }
  if (!options.json) fmt::print("the last of them has ended\n");
  return ExitCode::ok;
}

ExitCode stat(const WatchOptions& options) {
  std::vector<Error> faults;
  auto reading = read_adapters_of(options.pids, faults);
  for (const Error& fault : faults) (void)failure(fault.message());
  const ExitCode code = faults.empty() ? ExitCode::ok : ExitCode::failed;
  if (!faults.empty() && reading.empty()) return code;
  if (!options.once && !reading.empty()) {
    const ExitCode watched = watch(options, std::move(reading));
    return code == ExitCode::ok ? watched : code;
  }
  fmt::print("{}", options.json ? in_json(reading) : in_text(reading));
  return code;
}

struct TraceOptions {
  bool json = false;
  std::size_t count = 40;
  std::string adapter;
  std::vector<int> pids;
};

ExitCode trace(const TraceOptions& options) {
  auto readings = read_adapters_of(options.pids);
  if (!readings) return failure(readings.error().message());
  if (!options.adapter.empty())
    std::erase_if(*readings, [&](const AdapterReading& reading) { return reading.adapter.name != options.adapter; });
  if (readings->empty())
    return failure(options.adapter.empty() ? "no adapter runs here that this user may look at"
                                           : fmt::format("no adapter is called {}", options.adapter));
  if (readings->size() > 1) return failure("several adapters run here: name the process, or one with --adapter");
  const nic::Reading& adapter = readings->front().adapter;
  std::vector<nic::TraceEntry> entries = nic::read_trace(adapter.pid, adapter.name);
  if (entries.size() > options.count) entries.erase(entries.begin(), entries.end() - static_cast<long>(options.count));
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const nic::TraceEntry& entry : entries)
      list.push_back({{"ns", entry.ns},
                      {"processor", entry.processor},
                      {"event", nic::name_of(entry.event)},
                      {"items", entry.items}});
    fmt::print("{}\n",
               nlohmann::ordered_json({{"pid", adapter.pid}, {"name", adapter.name}, {"events", std::move(list)}})
                   .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return ExitCode::ok;
  }
  constexpr auto kRight = Column::Align::right;
  Table table({{"US", kRight}, {"PROCESSOR", kRight}, {"ITEMS", kRight}, {"EVENT"}});
  for (const nic::TraceEntry& entry : entries)
    table.add({fmt::format("{:.3f}", static_cast<double>(entry.ns) / 1e3), std::to_string(entry.processor),
               std::to_string(entry.items), std::string(nic::name_of(entry.event))});
  fmt::print("{}", table.empty() ? "no event yet\n" : table.text(Screen::standard_output()));
  return ExitCode::ok;
}

}  // namespace

void add_nic_stat(CLI::App& nic) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* const command = nic.add_subcommand("stat", "What the adapters of this machine count, live; q ends it");
  add_watch_options(*command, *options, "Show the adapters of these processes only");
  on_run(*command, [options] { return stat(*options); });
}

void add_nic_trace(CLI::App& nic) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* const command =
      nic.add_subcommand("trace", "The last events of an adapter, and which processor handled them");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--count", options->count, "At most so many")
      ->type_name("N")
      ->check(number_between(1, 1e6))
      ->capture_default_str();
  command->add_option("--adapter", options->adapter, "The adapter of that name")->type_name("NAME");
  command->add_option("PID", options->pids, "The process it runs in")
      ->type_name("")
      ->check(number_between(1, kHighestPid))
      ->expected(0, 1);
  on_run(*command, [options] { return trace(*options); });
}

}  // namespace viaduct::cli
