#include "cli/socket_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/compact.hpp"
#include "cli/endpoint_list.hpp"
#include "cli/host_list.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;
using sockets_view::Flow;
using sockets_view::Socket;

struct Summary {
  std::size_t connected = 0, on_rings = 0;
  std::vector<std::pair<std::string, std::size_t>> reasons;  // the most frequent first
};

Summary summary_of(const std::vector<Socket>& sockets) {
  Summary summary;
  std::map<std::string, std::size_t> reasons;
  for (const Socket& socket : sockets) {
    if (!socket.connected()) continue;
    ++summary.connected;
    if (socket.on_rings()) ++summary.on_rings;
    if (!socket.why.empty()) ++reasons[socket.why];
  }
  summary.reasons.assign(reasons.begin(), reasons.end());
  std::stable_sort(summary.reasons.begin(), summary.reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return summary;
}

Json flow_json(const Flow& flow) {
  return {{"path", sockets_view::word_for(flow.route)},
          {"bytes", flow.bytes},
          {"messages", flow.messages},
          {"wakes", flow.wakes}};
}

Json measured(std::uint64_t ns) {
  return ns == 0 ? Json(nullptr) : Json(ns);
}

Json socket_json(const Socket& socket) {
  return {{"process", socket.command},
          {"pid", socket.pid},
          {"fd", socket.fd},
          {"local", socket.local},
          {"peer", socket.peer},
          {"state", socket.state},
          {"attached", socket.attached},
          {"peer_pid", socket.attached ? Json(socket.peer_pid) : Json(nullptr)},
          {"out", flow_json(socket.out)},
          {"in", flow_json(socket.in)},
          {"ring_cost_ns", measured(socket.ring_cost_ns)},
          {"tcp_cost_ns", measured(socket.tcp_cost_ns)},
          {"why", socket.why}};
}

Cell path_cell(const Flow& flow) {
  const bool ring = flow.route == sockets_view::Route::ring;
  return {sockets_view::word_for(flow.route), ring ? Tone::good : Tone::plain};
}

std::string both(const Socket& socket, std::uint64_t Flow::*what) {
  if (!socket.attached) return "";
  return fmt::format("{}/{}", compact(static_cast<double>(socket.out.*what)),
                     compact(static_cast<double>(socket.in.*what)));
}

}  // namespace

std::string sockets_in_table(const std::vector<Socket>& sockets, const Screen& screen) {
  constexpr auto kRight = Column::Align::right;
  constexpr auto kLeft = Column::Align::left;
  Table table({{"PROCESS"},
               {"PID", kRight},
               {"FD", kRight},
               {"LOCAL", kLeft, 4},
               {"PEER"},
               {"STATE", kLeft, 3},
               {"OUT"},
               {"IN"},
               {"BYTES", kRight, 5},
               {"MESSAGES", kRight, 2},
               {"WAKES", kRight, 1},
               {"WHY"}},
              Table::Last::beneath);
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

std::string sockets_in_short(const std::vector<Socket>& sockets, const Screen& screen) {
  const Summary summary = summary_of(sockets);
  if (summary.connected == 0) return "";
  std::string text = fmt::format("{} of {} connected sockets {} on rings", summary.on_rings, summary.connected,
                                 summary.on_rings == 1 ? "is" : "are");
  for (const auto& [why, count] : summary.reasons) text += fmt::format("; {}: {}", count, why);
  std::string lines;
  for (const std::string& line : wrapped(text, screen.width)) lines += line + '\n';
  return lines;
}

std::string in_json(const std::vector<Socket>& sockets, const std::vector<net::EngineReading>& engines,
                    const std::vector<mx::EndpointReading>& endpoints, bool one_line) {
  Json list = Json::array(), reasons = Json::array();
  for (const Socket& socket : sockets) list.push_back(socket_json(socket));
  const Summary summary = summary_of(sockets);
  for (const auto& [why, count] : summary.reasons) reasons.push_back({{"why", why}, {"sockets", count}});
  const Json whole = {
      {"sockets", std::move(list)},
      {"summary", {{"connected", summary.connected}, {"on_rings", summary.on_rings}, {"reasons", std::move(reasons)}}},
      {"hosts", hosts_in_json(engines)},
      {"endpoints", endpoints_in_json(endpoints)}};
  return whole.dump(one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace viaduct::cli
