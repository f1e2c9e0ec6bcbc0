#include "cli/top_picture.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/compact.hpp"
#include "cli/process_fault.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;
using sockets_view::Flow;
using sockets_view::Socket;
constexpr auto kRight = Column::Align::right;
constexpr auto kLeft = Column::Align::left;

// "1.2M/3.4k": out and in, per second in a series of readings, otherwise so far.
std::string both(const TopPicture& picture, const Flow& out, const Flow& in, const std::optional<Rates>& rates,
                 std::uint64_t Flow::*total, double FlowRates::*rate) {
  if (!picture.rates)
    return fmt::format("{}/{}", compact(static_cast<double>(out.*total)), compact(static_cast<double>(in.*total)));
  return rates ? fmt::format("{}/{}", compact(rates->out.*rate), compact(rates->in.*rate)) : "";
}

void add_amounts(std::vector<Cell>& cells, const TopPicture& picture, const Flow& out, const Flow& in,
                 const std::optional<Rates>& rates) {
  cells.emplace_back(both(picture, out, in, rates, &Flow::bytes, &FlowRates::bytes));
  cells.emplace_back(both(picture, out, in, rates, &Flow::messages, &FlowRates::messages));
  cells.emplace_back(both(picture, out, in, rates, &Flow::wakes, &FlowRates::wakes));
}

void add_amount_columns(std::vector<Column>& columns, const TopPicture& picture) {
  const std::string each = picture.rates ? "/S" : "";
  columns.push_back({"BYTES" + each + " OUT/IN", kRight});
  columns.push_back({"MESSAGES" + each, kRight, 3});
  columns.push_back({"WAKES" + each, kRight, 2});
}

std::string processes_table(const TopPicture& picture, const Screen& screen) {
  std::vector<Column> columns = {{"PID", kRight}, {"COMMAND"}, {"RINGS", kRight}, {"TCP", kRight}};
  add_amount_columns(columns, picture);
  Table table(std::move(columns));
  for (const ProcessTraffic& process : picture.traffic) {
    std::vector<Cell> cells = {std::to_string(process.pid),
                               printable(process.command),
                               {std::to_string(process.on_rings), process.on_rings > 0 ? Tone::good : Tone::plain},
                               std::to_string(process.connected - process.on_rings)};
    add_amounts(cells, picture, process.out, process.in, process.rates);
    table.add(std::move(cells));
  }
  return table.text(screen);
}

std::string connections_table(const TopPicture& picture, const Screen& screen) {
  std::vector<Column> columns = {{"PID", kRight}, {"FD", kRight}, {"LOCAL", kLeft, 1}, {"PEER"}, {"OUT"}, {"IN"}};
  add_amount_columns(columns, picture);
  Table table(std::move(columns));
  for (const ProcessTraffic& process : picture.traffic)
    for (const ConnectionTraffic& connection : process.connections) {
      const Socket& socket = connection.socket;
      const auto path = [](const Flow& flow) -> Cell {
        return {word_for(flow.route), flow.route == sockets_view::Route::ring ? Tone::good : Tone::plain};
      };
      std::vector<Cell> cells = {std::to_string(socket.pid),
                                 std::to_string(socket.fd),
                                 socket.local,
                                 socket.peer,
                                 path(socket.out),
                                 path(socket.in)};
      if (socket.attached)
        add_amounts(cells, picture, socket.out, socket.in, connection.rates);
      else
        cells.insert(cells.end(), 3, Cell(""));
      table.add(std::move(cells));
    }
  return table.empty() ? "" : table.text(screen);
}

std::string counters_table(const TopPicture& picture, const Screen& screen) {
  std::vector<Column> columns = {{"PID", kRight}, {"COMMAND"}, {"COUNTER"}, {"VALUE", kRight}};
  if (picture.rates) columns.push_back({"PER SECOND", kRight});
  Table table(columns);
  const auto add = [&](std::vector<Cell> cells, const std::optional<double>& rate) {
    if (picture.rates) cells.emplace_back(rate ? fmt::format("{:.0f}", *rate) : "");
    table.add(std::move(cells));
  };
  for (const ProcessLines& process : picture.counters) {
    std::string pid = std::to_string(process.pid), command = printable(process.command);
    for (const CounterLine& counter : process.counters) {
      add({pid, command, counter.name, std::to_string(counter.value)}, counter.per_second);
      pid.clear(), command.clear();
    }
    if (process.counters.empty()) add({pid, command, {"nothing counted yet", Tone::faint}, ""}, std::nullopt);
  }
  return table.text(screen);
}

Json flow_json(const Flow& flow, const FlowRates* rates) {
  Json json = {{"bytes", flow.bytes}, {"messages", flow.messages}, {"wakes", flow.wakes}};
  if (rates == nullptr) return json;
  json["bytes_per_second"] = rates->bytes;
  json["messages_per_second"] = rates->messages;
  json["wakes_per_second"] = rates->wakes;
  return json;
}

Json connection_json(const ConnectionTraffic& connection) {
  const Socket& socket = connection.socket;
  const auto flow = [&](const Flow& amounts, const FlowRates* rates) {
    Json json = {{"path", word_for(amounts.route)}};
    json.update(flow_json(amounts, rates));
    return json;
  };
  const auto& rates = connection.rates;
  return {{"fd", socket.fd},
          {"local", socket.local},
          {"peer", socket.peer},
          {"out", flow(socket.out, rates ? &rates->out : nullptr)},
          {"in", flow(socket.in, rates ? &rates->in : nullptr)},
          {"why", socket.why}};
}

Json traffic_json(const ProcessTraffic& process, bool connections) {
  const auto& rates = process.rates;
  Json json = {{"connected", process.connected},
               {"on_rings", process.on_rings},
               {"out", flow_json(process.out, rates ? &rates->out : nullptr)},
               {"in", flow_json(process.in, rates ? &rates->in : nullptr)}};
  if (!connections) return json;
  Json list = Json::array();
  for (const ConnectionTraffic& connection : process.connections) list.push_back(connection_json(connection));
  json["connections"] = std::move(list);
  return json;
}

Json counters_json(const ProcessLines& process) {
  Json counters = Json::array();
  for (const CounterLine& counter : process.counters) {
    Json entry = {{"name", counter.name}, {"value", counter.value}};
    if (counter.per_second) entry["per_second"] = *counter.per_second;
    counters.push_back(std::move(entry));
  }
  return counters;
}

}  // namespace

std::string in_table(const TopPicture& picture, const Screen& screen) {
  if (picture.empty() && picture.connections) return "none of these processes has a TCP socket just now\n";
  if (picture.empty())
    return fmt::format(
        "no program under `viaduct run` has a TCP socket, and no process publishes counters (VIADUCT_COUNTERS=off "
        "stops "
        "a program doing so){}\n",
        whose_are_seen());
  std::string text;
  const auto add = [&text](const std::string& table) {
    if (!table.empty()) text += (text.empty() ? "" : "\n") + table;
  };
  if (!picture.traffic.empty()) add(processes_table(picture, screen));
  if (picture.connections) add(connections_table(picture, screen));
  if (!picture.counters.empty()) add(counters_table(picture, screen));
  return text;
}

std::string in_json(const TopPicture& picture) {
  std::map<int, Json> processes;
  const auto process = [&](int pid, const std::string& command) -> Json& {
    return processes.try_emplace(pid, Json{{"pid", pid}, {"command", command}, {"counters", Json::array()}})
        .first->second;
  };
  for (const ProcessLines& each : picture.counters) process(each.pid, each.command)["counters"] = counters_json(each);
  for (const ProcessTraffic& each : picture.traffic)
    process(each.pid, each.command)["sockets"] = traffic_json(each, picture.connections);
  Json list = Json::array();
  for (auto& [pid, json] : processes) list.push_back(std::move(json));
  return Json({{"processes", std::move(list)}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace viaduct::cli
