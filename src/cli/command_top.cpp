// viaduct top: programs under `viaduct run` and what goes over their rings; processes that publish counters, what they
// have counted and how fast.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "cli/command.hpp"
#include "cli/counter_rates.hpp"
#include "cli/host_list.hpp"
#include "cli/live_terminal.hpp"
#include "cli/socket_rates.hpp"
#include "cli/table.hpp"
#include "cli/top_picture.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

namespace {

struct Reading {
  std::vector<sockets_view::Socket> sockets;
  std::vector<ProcessCounters> counters;
  std::vector<Error> faults;  // one for each process named that shows neither
};

Error explain(int pid, const Error& fault) {
  if (::access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0)
    return {ESRCH, fmt::format("there is no process {} (viaduct top without a number shows those it can read)", pid)};
  if (fault.code() == EACCES || fault.code() == EPERM)
    return {EACCES, fmt::format("process {} belongs to somebody else: run viaduct top as its user or as root", pid)};
  if (fault.code() != ENOENT) return fault;
  if (sockets_view::has_library(pid))
    return {ENOENT, fmt::format("process {} runs under `viaduct run`, and has had no TCP socket so far", pid)};
  return {ENOENT, fmt::format("process {} publishes no counters and no sockets: it does not use Viaduct (start it as "
                              "`viaduct run -- PROGRAM`), or VIADUCT_COUNTERS is off",
                              pid)};
}

// All that can be read, or exactly those asked for.
Reading read(const std::vector<int>& pids) {
  Reading reading;
  if (pids.empty()) {
    reading = {sockets_view::read_all_sockets(), read_all_counters(), {}};
    add_host_counters(net::read_engines(0), reading.counters);
    return reading;
  }
  for (const int pid : pids) {
    auto counters = read_counters(pid);
    auto sockets = sockets_view::read_sockets(pid);
    if (sockets) reading.sockets.insert(reading.sockets.end(), sockets->begin(), sockets->end());
    if (counters) reading.counters.push_back(std::move(*counters));
    const auto engines = net::read_engines(pid);
    add_host_counters(engines, reading.counters);
    if (sockets || counters || !engines.empty()) continue;
    reading.faults.push_back(explain(pid, counters.error().code() == ENOENT ? sockets.error() : counters.error()));
  }
  return reading;
}

bool nobody_is_left(const std::vector<int>& pids, const Reading& reading) {
  return pids.empty() ? reading.sockets.empty() && reading.counters.empty() : reading.faults.size() == pids.size();
}

// Turns readings into pictures, with how fast things went since the one before.
class Painter {
 public:
  explicit Painter(const WatchOptions& options) : options_(options) {}

  std::string paint(const Reading& reading) {
    const std::uint64_t now = Clock::steady().now_ns();
    TopPicture picture;
    picture.traffic = sockets_.update(reading.sockets, now);
    picture.counters = counters_.update(reading.counters, now);
    picture.connections = !options_.pids.empty();
    picture.rates = !options_.once;
    return options_.json ? in_json(picture) : in_table(picture, Screen::standard_output());
  }

 private:
  const WatchOptions& options_;
  SocketRates sockets_;
  CounterRates counters_;
};

ExitCode watch(const WatchOptions& options, Reading reading) {
  const auto delay = std::chrono::nanoseconds(std::llround(options.interval * 1e9));
  Painter painter(options);
  {
    LiveTerminal terminal;
    do {
      if (!terminal.show(painter.paint(reading))) return ExitCode::failed;
      if (!terminal.wait(delay)) return ExitCode::ok;
      reading = read(options.pids);
    } while (!nobody_is_left(options.pids, reading));
  }
  if (!options.json) fmt::print("the last of them has ended\n");
  return ExitCode::ok;
}

ExitCode top(const WatchOptions& options) {
  Reading reading = read(options.pids);
  for (const Error& fault : reading.faults) (void)failure(fault.message());
  const ExitCode code = reading.faults.empty() ? ExitCode::ok : ExitCode::failed;
  if (!options.pids.empty() && nobody_is_left(options.pids, reading)) return code;
  if (options.once || nobody_is_left(options.pids, reading)) {
    fmt::print("{}", Painter(options).paint(reading));
    return code;
  }
  const ExitCode watched = watch(options, std::move(reading));
  return code == ExitCode::ok ? watched : code;
}

}  // namespace

void add_top(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* const command = app.add_subcommand(
      "top", "What programs under `viaduct run` send over rings, and what processes count, live; q ends it");
  add_watch_options(*command, *options, "Show these processes only, with each of their connections");
  on_run(*command, [options] { return top(*options); });
}

}  // namespace viaduct::cli
