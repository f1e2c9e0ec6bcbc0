// viaduct ls: the TCP sockets of programs under `viaduct run`, like ss(8): who, where, over what, how much, and why
// not.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/process_fault.hpp"
#include "cli/table.hpp"
#include "sockets_view/view.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;
using sockets_view::Flow;
using sockets_view::Socket;

struct Options {
  bool json = false;
  bool all = false;
  std::vector<int> pids;
};

std::string nobody(const std::vector<int>& pids) {
  const std::string who = pids.empty()       ? "no program under `viaduct run` has"
                          : pids.size() == 1 ? fmt::format("process {} has no", pids[0])
                                             : "none of these processes has";
  return fmt::format("{}{} TCP connection (--all shows sockets that listen or are not connected too)\n", who,
                     pids.size() == 1 ? "" : " a");
}

Result<std::vector<Socket>> read(const std::vector<int>& pids) {
  if (pids.empty()) return sockets_view::read_all_sockets();
  std::vector<Socket> sockets;
  for (const int pid : pids) {
    auto some = sockets_view::read_sockets(pid);
    if (!some) return explain_unread_sockets(pid, some.error(), "ls");
    sockets.insert(sockets.end(), some->begin(), some->end());
  }
  return sockets;
}

Json flow_json(const Flow& flow) {
  return {{"path", sockets_view::word_for(flow.route)},
          {"bytes", flow.bytes},
          {"messages", flow.messages},
          {"wakes", flow.wakes}};
}

std::string in_json(const std::vector<Socket>& sockets) {
  Json list = Json::array();
  for (const Socket& socket : sockets)
    list.push_back({{"process", socket.command},
                    {"pid", socket.pid},
                    {"fd", socket.fd},
                    {"local", socket.local},
                    {"peer", socket.peer},
                    {"state", socket.state},
                    {"attached", socket.attached},
                    {"peer_pid", socket.attached ? Json(socket.peer_pid) : Json(nullptr)},
                    {"out", flow_json(socket.out)},
                    {"in", flow_json(socket.in)},
                    {"why", socket.why}});
  return Json({{"sockets", std::move(list)}}).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string compact(std::uint64_t number) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  auto amount = static_cast<double>(number);
  while (amount >= 999.95 && unit + 1 < std::size(kUnits)) amount /= 1000, ++unit;
  return fmt::format("{:.{}f}{}", amount, unit == 0 ? 0 : 1, kUnits[unit]);
}

Cell path_cell(const Flow& flow) {
  const bool ring = flow.route == sockets_view::Route::ring;
  return {sockets_view::word_for(flow.route), ring ? Tone::good : Tone::plain};
}

std::string both(const Socket& socket, std::uint64_t Flow::*what) {
  return socket.attached ? fmt::format("{}/{}", compact(socket.out.*what), compact(socket.in.*what)) : "";
}

std::string in_table(const std::vector<Socket>& sockets, const Screen& screen) {
  constexpr auto kRight = Column::Align::right;
  Table table({{"PROCESS"},
               {"PID", kRight},
               {"FD", kRight},
               {"LOCAL"},
               {"PEER"},
               {"STATE"},
               {"OUT"},
               {"IN"},
               {"BYTES", kRight},
               {"MESSAGES", kRight},
               {"WAKES", kRight},
               {"WHY"}});
  for (const Socket& socket : sockets)
    table.add({printable(socket.command),
               std::to_string(socket.pid),
               std::to_string(socket.fd),
               socket.local,
               socket.peer,
               socket.state,
               path_cell(socket.out),
               path_cell(socket.in),
               both(socket, &Flow::bytes),
               both(socket, &Flow::messages),
               both(socket, &Flow::wakes),
               {socket.why, Tone::faint}});
  return table.text(screen);
}

ExitCode list(const Options& options) {
  auto sockets = read(options.pids);
  if (!sockets) return failure(sockets.error().message());
  if (!options.all) std::erase_if(*sockets, [](const Socket& socket) { return !socket.connected(); });
  fmt::print("{}", options.json       ? in_json(*sockets)
                   : sockets->empty() ? nobody(options.pids)
                                      : in_table(*sockets, Screen::standard_output()));
  return ExitCode::ok;
}

}  // namespace

void add_ls(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const command =
      app.add_subcommand("ls", "TCP connections of programs under `viaduct run`: ring or TCP, and why");
  command->add_flag("--json", options->json, "Print one JSON object instead of a table");
  command->add_flag("--all", options->all, "Also sockets that listen or are not connected");
  command->add_option("PID", options->pids, "Show these processes only")
      ->type_name("")
      ->check(number_between(1, kHighestPid));
  on_run(*command, [options] { return list(*options); });
}

}  // namespace viaduct::cli
