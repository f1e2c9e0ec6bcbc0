#include "cli/host_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/compact.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;
using net::EngineReading;
using net::SessionCounters;
using net::SessionReading;

struct Named {
  std::string_view name;
  std::uint64_t SessionCounters::*value;
};
constexpr Named kAmounts[] = {
    {"frames_sent", &SessionCounters::frames_sent},
    {"frames_received", &SessionCounters::frames_received},
    {"bytes_sent", &SessionCounters::bytes_sent},
    {"bytes_received", &SessionCounters::bytes_received},
    {"acks_alone", &SessionCounters::acks_alone},
    {"lost_by_number", &SessionCounters::lost_by_number},
    {"lost_by_time", &SessionCounters::lost_by_time},
    {"needless", &SessionCounters::needless},
    {"probes", &SessionCounters::probes},
    {"keepalives", &SessionCounters::keepalives},
    {"window_limited", &SessionCounters::window_limited},
    {"window_limited_ns", &SessionCounters::window_limited_ns},
    {"credit_limited", &SessionCounters::credit_limited},
    {"peer_silent_ns", &SessionCounters::silent_ns},
};
constexpr Named kDrops[] = {
    {"duplicates", &SessionCounters::duplicates},
    {"out_of_window", &SessionCounters::out_of_window},
    {"forged", &SessionCounters::forged},
};

std::uint64_t lost(const SessionCounters& counters) {
  return counters.lost_by_number + counters.lost_by_time;
}

std::string microseconds(std::uint64_t ns) {
  return ns < 10'000 ? fmt::format("{:.1f}", static_cast<double>(ns) / 1e3) : fmt::format("{}", ns / 1000);
}

// Outside of sessions, by place.
std::array<std::pair<const char*, std::uint64_t>, 5> drops_of(const EngineReading& engine) {
  return {{{"mac_out", engine.mac.transmit_drops},
           {"mac_in", engine.mac.receive_drops},
           {"garbage", engine.station.dropped_garbage},
           {"stray", engine.station.dropped_stray},
           {"forged", engine.station.dropped_forged}}};
}

Json session_json(const SessionReading& session) {
  const SessionCounters& counters = session.counters;
  Json json = {{"peer", session.peer}, {"interface", session.interface}, {"sealed", session.sealed}};
  for (const Named& each : kAmounts) json[std::string(each.name)] = counters.*each.value;
  Json drops = Json::object();
  for (const Named& each : kDrops) drops[std::string(each.name)] = counters.*each.value;
  json["drops"] = std::move(drops);
  json["window"] = counters.window;
  json["frame_size"] = counters.frame_size;
  json["round_trip_ns"] = {
      {"smoothed", counters.round_trip_ns},           {"least", counters.least_round_trip_ns},
      {"p50", counters.round_trips.percentile(0.5)},  {"p90", counters.round_trips.percentile(0.9)},
      {"p99", counters.round_trips.percentile(0.99)}, {"p999", counters.round_trips.percentile(0.999)}};
  return json;
}

}  // namespace

std::string hosts_in_table(const std::vector<EngineReading>& engines, const Screen& screen) {
  constexpr auto kRight = Column::Align::right;
  constexpr auto kLeft = Column::Align::left;
  Table table({{"PROCESS"},
               {"PID", kRight},
               {"PEER"},
               {"OVER", kLeft, 5},
               {"FRAME", kRight, 2},
               {"FRAMES OUT/IN", kRight, 3},
               {"BYTES OUT/IN", kRight, 6},
               {"RTT US P50/P99", kRight, 7},
               {"LOST/NEEDLESS", kRight},
               {"SILENT MS", kRight, 4},
               {"WINDOW MS", kRight, 1}});
  const auto both = [](std::uint64_t out, std::uint64_t in) {
    return fmt::format("{}/{}", compact(static_cast<double>(out)), compact(static_cast<double>(in)));
  };
  for (const EngineReading& engine : engines)
    for (const SessionReading& session : engine.sessions) {
      const SessionCounters& counters = session.counters;
      const std::string over = engine.carrier + (session.interface.empty() ? "" : " " + session.interface);
      table.add(
          {printable(engine.command), std::to_string(engine.pid), session.peer,
           session.sealed ? over + ", sealed" : over, std::to_string(counters.frame_size),
           both(counters.frames_sent, counters.frames_received), both(counters.bytes_sent, counters.bytes_received),
           microseconds(counters.round_trips.percentile(0.5)) + "/" +
               microseconds(counters.round_trips.percentile(0.99)),
           fmt::format("{}/{}", lost(counters), counters.needless), std::to_string(counters.silent_ns / 1'000'000),
           std::to_string(counters.window_limited_ns / 1'000'000)});
    }
  return table.empty() ? "" : table.text(screen);
}

Json hosts_in_json(const std::vector<EngineReading>& engines) {
  Json list = Json::array();
  for (const EngineReading& engine : engines) {
    Json peers = Json::array();
    for (const SessionReading& session : engine.sessions) peers.push_back(session_json(session));
    Json drops = Json::object();
    for (const auto& [name, value] : drops_of(engine)) drops[name] = value;
    list.push_back({{"process", engine.command},
                    {"pid", engine.pid},
                    {"carrier", engine.carrier},
                    {"frames_sent", engine.mac.sent},
                    {"frames_received", engine.mac.received},
                    {"hellos_sent", engine.station.hellos_sent},
                    {"hellos_received", engine.station.hellos_received},
                    {"refusals_sent", engine.station.refusals_sent},
                    {"unknown_sent", engine.station.unknown_sent},
                    {"drops", std::move(drops)},
                    {"peers", std::move(peers)}});
  }
  return list;
}

void add_host_counters(const std::vector<EngineReading>& engines, std::vector<ProcessCounters>& counters) {
  for (const EngineReading& engine : engines) {
    auto process =
        std::find_if(counters.begin(), counters.end(), [&](const auto& each) { return each.pid == engine.pid; });
    if (process == counters.end()) {
      counters.push_back({engine.pid, engine.command, {}});
      process = counters.end() - 1;
    }
    const auto add = [&](std::string_view name, std::uint64_t value) {
      const std::string whole = fmt::format("net.{}", name);
      auto& all = process->counters;
      const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == whole; });
      if (found == all.end())
        all.push_back({whole, value});
      else
        found->value += value;
    };
    add("peers", engine.sessions.size());
    for (const SessionReading& session : engine.sessions) {
      for (const Named& each : kAmounts) add(each.name, session.counters.*each.value);
      for (const Named& each : kDrops) add(each.name, session.counters.*each.value);
    }
    for (const auto& [name, value] : drops_of(engine)) add(fmt::format("drops_{}", name), value);
  }
}

}  // namespace viaduct::cli
