#include "cli/adapter_readings.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <viaduct/nic.hpp>

#include <nlohmann/json.hpp>

#include "base/counters.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;

std::map<std::string, std::uint64_t> sides_of(int pid) {
  std::map<std::string, std::uint64_t> sides;
  const auto counters = read_counters(pid);
  if (!counters) return sides;
  for (const CounterReading& counter : counters->counters)
    for (const std::string side : {"mac.", "host."})
      if (counter.name.starts_with(fmt::format("nic.{}", side))) sides[counter.name.substr(4)] = counter.value;
  return sides;
}

Json levels_of(const nic::Reading& adapter) {
  Json returned = Json::array();
  for (unsigned queue = 0; queue < adapter.queues; ++queue) returned.push_back(adapter.levels.returned[queue]);
  return {{"send_waiting", adapter.levels.send_waiting},
          {"receive_available", adapter.levels.receive_available},
          {"mini_available", adapter.levels.mini_available},
          {"returned", std::move(returned)}};
}

Json processors_of(const nic::Reading& adapter) {
  Json processors = Json::array();
  for (const nic::ProcessorReading& processor : adapter.processors) {
    Json handlers = Json::array();
    for (unsigned event = 0; event < nic::kEvents; ++event) {
      const nic::HandlerReading& handler = processor.handlers[event];
      handlers.push_back({{"event", nic::name_of(static_cast<nic::Event>(event))},
                          {"calls", handler.calls},
                          {"items", handler.items},
                          {"ns", handler.ns}});
    }
    processors.push_back({{"core", processor.core},
                          {"rounds", processor.rounds},
                          {"idle_rounds", processor.idle_rounds},
                          {"handlers", std::move(handlers)}});
  }
  return processors;
}

Json json_of(const AdapterReading& reading) {
  const nic::Reading& adapter = reading.adapter;
  Json drops = Json::object();
  for (const auto& [name, count] : drops_of(adapter.totals)) drops[std::string(name)] = count;
  Json queues = Json::array();
  for (unsigned queue = 0; queue < adapter.queues; ++queue) queues.push_back({{"core", adapter.queue_core[queue]}});
  return {{"pid", adapter.pid},
          {"name", adapter.name},
          {"mac", adapter.mac},
          {"partition", adapter.partition},
          {"packets_sent", adapter.totals.packets_sent},
          {"bytes_sent", adapter.totals.bytes_sent},
          {"packets_received", adapter.totals.packets_received},
          {"bytes_received", adapter.totals.bytes_received},
          {"sent_per_second", reading.sent_per_second},
          {"received_per_second", reading.received_per_second},
          {"interrupts", adapter.totals.interrupts},
          {"interrupts_avoided", adapter.totals.interrupts_avoided},
          {"drops", std::move(drops)},
          {"sides", reading.sides},
          {"queues", std::move(queues)},
          {"rings", levels_of(adapter)},
          {"processors", processors_of(adapter)}};
}

std::string head_of(const AdapterReading& reading) {
  const nic::Reading& adapter = reading.adapter;
  const nic::Totals& totals = adapter.totals;
  std::string text = fmt::format(
      "{} (process {}): {}, partition {}\n  sent {} packets, {} bytes, {:.0f} packets/s\n  received {} packets, {} "
      "bytes, "
      "{:.0f} packets/s\n  interrupts {}, avoided {}\n  rings: send {} of {} waiting, receive {} of {} and mini {} of "
      "{} "
      "buffers available\n",
      printable(adapter.name), adapter.pid, printable(adapter.mac), printable(adapter.partition), totals.packets_sent,
      totals.bytes_sent, reading.sent_per_second, totals.packets_received, totals.bytes_received,
      reading.received_per_second, totals.interrupts, totals.interrupts_avoided, adapter.levels.send_waiting,
      nic::kSendRing, adapter.levels.receive_available, nic::kReceiveRing, adapter.levels.mini_available,
      nic::kMiniRing);
  std::string dropped;
  for (const auto& [name, count] : drops_of(totals))
    dropped += fmt::format("{} {} {}", dropped.empty() ? "" : ",", count, name);
  text += fmt::format("  dropped:{}\n", dropped.empty() ? " nothing" : dropped);
  for (const std::string side : {"mac", "host"}) {
    const auto get = [&](const char* what) {
      const auto found = reading.sides.find(fmt::format("{}.{}", side, what));
      return found == reading.sides.end() ? std::uint64_t{0} : found->second;
    };
    if (reading.sides.empty()) continue;
    text += fmt::format("  {} side: {}sent {}, received {}, dropped {} going out and {} coming in\n", side,
                        get("link_down") != 0 ? "LINK DOWN, " : "", get("sent"), get("received"), get("transmit_drops"),
                        get("receive_drops"));
  }
  return text;
}

std::string handlers_of(const nic::Reading& adapter) {
  constexpr auto kRight = Column::Align::right;
  Table table({{"PROCESSOR", kRight},
               {"CORE", kRight},
               {"CALLS", kRight},
               {"ITEMS", kRight},
               {"MS", kRight},
               {"NS/ITEM", kRight},
               {"HANDLER"}});
  for (std::size_t i = 0; i < adapter.processors.size(); ++i) {
    const nic::ProcessorReading& processor = adapter.processors[i];
    for (unsigned event = 0; event < nic::kEvents; ++event) {
      const nic::HandlerReading& handler = processor.handlers[event];
      if (handler.calls == 0) continue;
      table.add({std::to_string(i), processor.core < 0 ? "-" : std::to_string(processor.core),
                 std::to_string(handler.calls), std::to_string(handler.items), fmt::format("{:.1f}", handler.ns / 1e6),
                 handler.items == 0 ? "-" : std::to_string(handler.ns / handler.items),
                 std::string(nic::name_of(static_cast<nic::Event>(event)))});
    }
  }
  return table.empty() ? "" : table.text(Screen::standard_output());
}

Error why_none(int pid) {
  if (::access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0)
    return {ESRCH, fmt::format("there is no process {}", pid)};
  if (::access(fmt::format("/proc/{}/fd", pid).c_str(), R_OK) != 0)
    return {EACCES, fmt::format("process {} belongs to somebody else: ask as its user or as root", pid)};
  return {ENOENT, fmt::format("process {} has no adapter (viaduct nic stat shows those there are)", pid)};
}

}  // namespace

std::vector<AdapterReading> read_adapters_of(const std::vector<int>& pids, std::vector<Error>& faults) {
  std::vector<AdapterReading> readings;
  for (const int pid : pids.empty() ? std::vector<int>{0} : pids) {
    const auto found = nic::read_adapters(pid);
    if (pid != 0 && found.empty()) faults.push_back(why_none(pid));
    for (const nic::Reading& adapter : found) readings.push_back({adapter, sides_of(adapter.pid)});
  }
  return readings;
}

Result<std::vector<AdapterReading>> read_adapters_of(const std::vector<int>& pids) {
  std::vector<Error> faults;
  auto readings = read_adapters_of(pids, faults);
  if (!faults.empty()) return faults.front();
  return readings;
}

std::vector<std::pair<std::string_view, std::uint64_t>> drops_of(const nic::Totals& totals) {
  const std::pair<std::string_view, std::uint64_t> all[] = {
      {"no_buffer", totals.no_buffer_drops},
      {"short_buffer", totals.short_buffer_drops},
      {"bad_frame", totals.bad_frames},
      {"filtered_frame", totals.filtered_frames},
      {"bad_send_packet", totals.bad_send_packets},
      {"bad_receive_descriptor", totals.bad_receive_descriptors},
      {"bad_index", totals.bad_indices},
      {"bad_command", totals.bad_commands},
  };
  std::vector<std::pair<std::string_view, std::uint64_t>> some;
  for (const auto& drop : all)
    if (drop.second != 0) some.push_back(drop);
  return some;
}

std::string in_json(const std::vector<AdapterReading>& readings) {
  Json list = Json::array();
  for (const AdapterReading& reading : readings) list.push_back(json_of(reading));
  return Json({{"adapters", std::move(list)}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string in_text(const std::vector<AdapterReading>& readings) {
  if (readings.empty()) return "no adapter runs here that this user may look at (viaduct nic run starts one)\n";
  std::string text;
  for (const AdapterReading& reading : readings)
    text += fmt::format("{}{}{}", text.empty() ? "" : "\n", head_of(reading), handlers_of(reading.adapter));
  return text;
}

}  // namespace viaduct::cli
