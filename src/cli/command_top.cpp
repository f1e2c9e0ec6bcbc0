// viaduct top: the processes that publish counters, what they have counted and how fast.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "cli/command.hpp"
#include "cli/counter_rates.hpp"
#include "cli/live_terminal.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;
using Reading = std::vector<ProcessCounters>;

constexpr std::string_view kNobody = "no process publishes counters (VIADUCT_COUNTERS=off stops a program doing so)";

Error explain(int pid, const Error& fault) {
  if (::access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0)
    return {ESRCH, fmt::format("there is no process {} (viaduct top without a number shows those it can read)", pid)};
  if (fault.code() == EACCES || fault.code() == EPERM)
    return {EACCES, fmt::format("process {} belongs to somebody else: run viaduct top as its user or as root", pid)};
  if (fault.code() == ENOENT)
    return {ENOENT,
            fmt::format("process {} publishes no counters: it does not use Viaduct, or VIADUCT_COUNTERS is off", pid)};
  return fault;
}

// All that can be read, or exactly those asked for.
Result<Reading> read(const std::vector<int>& pids) {
  if (pids.empty()) return read_all_counters();
  Reading reading;
  for (const int pid : pids) {
    auto counters = read_counters(pid);
    if (!counters) return explain(pid, counters.error());
    reading.push_back(std::move(*counters));
  }
  return reading;
}

// Afterwards: those asked for that are still there.
Reading read_again(const std::vector<int>& pids) {
  if (pids.empty()) return read_all_counters();
  Reading reading;
  for (const int pid : pids)
    if (auto counters = read_counters(pid)) reading.push_back(std::move(*counters));
  return reading;
}

std::string in_json(const std::vector<ProcessLines>& processes) {
  Json list = Json::array();
  for (const ProcessLines& process : processes) {
    Json counters = Json::array();
    for (const CounterLine& counter : process.counters) {
      Json entry = {{"name", counter.name}, {"value", counter.value}};
      if (counter.per_second) entry["per_second"] = *counter.per_second;
      counters.push_back(std::move(entry));
    }
    list.push_back({{"pid", process.pid}, {"command", process.command}, {"counters", std::move(counters)}});
  }
  return Json({{"processes", std::move(list)}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string in_table(const std::vector<ProcessLines>& processes, bool rates, const Screen& screen) {
  if (processes.empty()) return fmt::format("{}\n", kNobody);
  constexpr auto kRight = Column::Align::right;
  std::vector<Column> columns = {{"PID", kRight}, {"COMMAND"}, {"COUNTER"}, {"VALUE", kRight}};
  if (rates) columns.push_back({"PER SECOND", kRight});
  Table table(columns);
  const auto add = [&](std::vector<Cell> cells, const std::optional<double>& rate) {
    if (rates) cells.emplace_back(rate ? fmt::format("{:.0f}", *rate) : "");
    table.add(std::move(cells));
  };
  for (const ProcessLines& process : processes) {
    std::string pid = std::to_string(process.pid), command = printable(process.command);
    for (const CounterLine& counter : process.counters) {
      add({pid, command, counter.name, std::to_string(counter.value)}, counter.per_second);
      pid.clear(), command.clear();
    }
    if (process.counters.empty()) add({pid, command, {"nothing counted yet", Tone::faint}, ""}, std::nullopt);
  }
  return table.text(screen);
}

ExitCode watch(const WatchOptions& options, Reading reading) {
  const Clock& clock = Clock::steady();
  const auto delay = std::chrono::nanoseconds(std::llround(options.interval * 1e9));
  CounterRates rates;
  {
    LiveTerminal terminal;
    do {
      const auto lines = rates.update(reading, clock.now_ns());
      if (!terminal.show(options.json ? in_json(lines) : in_table(lines, true, Screen::standard_output())))
        return ExitCode::failed;
      if (!terminal.wait(delay)) return ExitCode::ok;
      reading = read_again(options.pids);
    } while (!reading.empty());
  }
  if (!options.json) fmt::print("the last of them has ended\n");
  return ExitCode::ok;
}

ExitCode top(const WatchOptions& options) {
  auto reading = read(options.pids);
  if (!reading) return failure(reading.error().message());
  if (!options.once && !reading->empty()) return watch(options, std::move(*reading));
  const auto lines = CounterRates().update(*reading, Clock::steady().now_ns());
  fmt::print("{}", options.json ? in_json(lines) : in_table(lines, false, Screen::standard_output()));
  return ExitCode::ok;
}

}  // namespace

void add_top(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* const command = app.add_subcommand("top", "What processes that use Viaduct count, live; q ends it");
  add_watch_options(*command, *options, "Show these processes only");
  on_run(*command, [options] { return top(*options); });
}

}  // namespace viaduct::cli
