// viaduct ls: the TCP sockets of programs under `viaduct run`, like ss(8): who, where, over what, how much, and why
// not; peers on other hosts; and message endpoints.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/endpoint_list.hpp"
#include "cli/host_list.hpp"
#include "cli/live_terminal.hpp"
#include "cli/process_fault.hpp"
#include "cli/socket_filter.hpp"
#include "cli/socket_list.hpp"
#include "cli/table.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

namespace {

using sockets_view::Socket;

struct Options {
  bool json = false;
  bool watch = false;
  double interval = 1;
  SocketFilter filter;
  std::vector<int> pids;
};

struct Reading {
  std::vector<Socket> sockets;
  std::vector<net::EngineReading> engines;  // none where only some sockets are asked for
  std::vector<mx::EndpointReading> endpoints;
  std::vector<Error> faults;  // one for each process named that cannot be read
};

Reading read(const Options& options) {
  Reading reading;
  if (options.pids.empty()) {
    reading.sockets = sockets_view::read_all_sockets();
    if (!options.filter.is_narrow()) reading.engines = net::read_engines(0);
    if (!options.filter.is_narrow()) reading.endpoints = mx::read_endpoints(0);
  }
  for (const int pid : options.pids) {
    const auto engines = options.filter.is_narrow() ? std::vector<net::EngineReading>() : net::read_engines(pid);
    reading.engines.insert(reading.engines.end(), engines.begin(), engines.end());
    const auto endpoints = options.filter.is_narrow() ? std::vector<mx::EndpointReading>() : mx::read_endpoints(pid);
    reading.endpoints.insert(reading.endpoints.end(), endpoints.begin(), endpoints.end());
    auto some = sockets_view::read_sockets(pid);
    if (some)
      reading.sockets.insert(reading.sockets.end(), some->begin(), some->end());
    else if (engines.empty() && endpoints.empty())
      reading.faults.push_back(explain_unread_sockets(pid, some.error(), "ls"));
  }
  std::erase_if(reading.sockets, [&](const Socket& socket) { return !options.filter.passes(socket); });
  return reading;
}

bool nobody_is_left(const Options& options, const Reading& reading) {
  return !options.pids.empty() && reading.faults.size() == options.pids.size();
}

std::string nothing_to_show(const Options& options) {
  const std::string who = options.pids.empty()       ? "no program under `viaduct run` has"
                          : options.pids.size() == 1 ? fmt::format("process {} has no", options.pids[0])
                                                     : "none of these processes has";
  const char* const article = options.pids.size() == 1 ? "" : " a";
  const std::string_view besides = options.pids.empty() ? whose_are_seen() : "";
  if (options.filter.is_narrow()) return fmt::format("{}{} TCP socket that is asked for{}\n", who, article, besides);
  if (options.filter.all) return fmt::format("{}{} TCP socket{}\n", who, article, besides);
  return fmt::format("{}{} TCP connection (--all shows sockets that listen or are not connected too){}\n", who, article,
                     besides);
}

std::string sockets_in_words(const Options& options, const Reading& reading, const Screen& screen) {
  const std::string table = sockets_in_table(reading.sockets, screen);
  const std::string summary = sockets_in_short(reading.sockets, screen);
  if (summary.empty()) return table;
  // A live picture is cut at the bottom.
  return options.watch ? summary + "\n" + table : table + "\n" + summary;
}

std::string in_words(const Options& options, const Reading& reading) {
  const Screen screen = Screen::standard_output();
  std::string text;
  const auto add = [&](const std::string& table) {
    if (!text.empty() && !table.empty()) text += '\n';
    text += table;
  };
  if (!reading.sockets.empty()) add(sockets_in_words(options, reading, screen));
  add(hosts_in_table(reading.engines, screen));
  add(endpoints_in_table(reading.endpoints, screen));
  return text.empty() ? nothing_to_show(options) : text;
}

ExitCode watch(const Options& options, Reading reading) {
  const auto delay = std::chrono::nanoseconds(std::llround(options.interval * 1e9));
  {
    LiveTerminal terminal;
    while (!nobody_is_left(options, reading)) {
      if (!terminal.show(options.json ? in_json(reading.sockets, reading.engines, reading.endpoints, true)
                                      : in_words(options, reading)))
        return ExitCode::failed;
      if (!terminal.wait(delay)) return ExitCode::ok;
      reading = read(options);
    }
  }
  if (!options.json) fmt::print("the last of them has ended\n");
  return ExitCode::ok;
}

ExitCode list(const Options& options) {
  const Reading reading = read(options);
  for (const Error& fault : reading.faults) (void)failure(fault.message());
  const ExitCode code = reading.faults.empty() ? ExitCode::ok : ExitCode::failed;
  if (nobody_is_left(options, reading)) return code;
  if (options.watch) {
    const ExitCode watched = watch(options, reading);
    return code == ExitCode::ok ? watched : code;
  }
  fmt::print("{}", options.json ? in_json(reading.sockets, reading.engines, reading.endpoints, false)
                                : in_words(options, reading));
  return code;
}

}  // namespace

void add_ls(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const command =
      app.add_subcommand("ls", "TCP connections of programs under `viaduct run`: ring or TCP, and why");
  command->add_flag("--json", options->json, "Print one JSON object instead of a table");
  command->add_flag("-a,--all", options->filter.all, "Also sockets that listen or are not connected");
  command->add_option("--port", options->filter.port, "Only sockets with this port at either end")
      ->type_name("PORT")
      ->check(number_between(0, 65535));
  command->add_option("--state", options->filter.state, "Only sockets in this state: ESTAB, CLOSE-WAIT, LISTEN, ...")
      ->type_name("STATE")
      ->transform(CLI::Validator(
          [](std::string& word) -> std::string {
            const auto state = state_named(word);
            if (!state) return state.error().message();
            word = *state;
            return "";
          },
          ""));
  command
      ->add_option("--path", options->filter.path,
                   "Only connections on rings both ways (ring), or only the others (tcp)")
      ->type_name("PATH")
      ->check(CLI::IsMember({"ring", "tcp"}));
  CLI::Option* const again = command->add_flag("--watch", options->watch, "Show them again and again; q ends it");
  command->add_option("--interval", options->interval, "Seconds between readings, with --watch")
      ->type_name("SECONDS")
      ->check(number_between(0.05, 3600))
      ->needs(again)
      ->capture_default_str();
  command->add_option("PID", options->pids, "Show these processes only")
      ->type_name("")
      ->check(number_between(1, kHighestPid));
  on_run(*command, [options] { return list(*options); });
}

}  // namespace viaduct::cli
