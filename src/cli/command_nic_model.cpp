// viaduct nic partition: which processor should handle which event, from a profile. viaduct nic model: the firmware on
// the card of the paper, in virtual time.
#include <fmt/format.h>
#include <viaduct/nic_model.hpp>
#include <viaduct/nic_partition.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/adapter_readings.hpp"
#include "cli/command_nic.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;

struct PartitionOptions {
  bool json = false, paper = false;
  unsigned processors = 2;
  std::string adapter;
  std::vector<int> pids;
};

struct NamedProfile {
  std::string of;
  nic::Profile profile;
};

Result<NamedProfile> choose_profile(const PartitionOptions& options) {
  if (options.paper) return NamedProfile{"the paper (figure 5)", nic::paper_profile()};
  VIADUCT_TRY(auto readings, read_adapters_of(options.pids));
  if (!options.adapter.empty())
    std::erase_if(readings, [&](const AdapterReading& reading) { return reading.adapter.name != options.adapter; });
  if (readings.empty()) return Error(ENOENT, "no such adapter runs here; --paper takes the paper's profile instead");
  if (readings.size() > 1) return Error(EINVAL, "several adapters run here: name the process, or one with --adapter");
  const nic::Reading& adapter = readings.front().adapter;
  const auto profile = nic::profile_of(adapter);
  if (!profile) return Error(ENODATA, fmt::format("the adapter {} has not handled anything yet", adapter.name));
  return NamedProfile{fmt::format("the adapter {} of process {}", adapter.name, adapter.pid), *profile};
}

ExitCode partition(const PartitionOptions& options) {
  const auto chosen = choose_profile(options);
  if (!chosen) return failure(chosen.error().message());
  const nic::PartitionPlan plan = nic::derive_partition(chosen->profile, options.processors);
  if (!options.json) {
    fmt::print("profile of {}\n{}{}", printable(chosen->of), plan.explanation,
               plan.explanation.ends_with('\n') ? "" : "\n");
    return ExitCode::ok;
  }
  Json events = Json::array(), shared = Json::array();
  for (unsigned event = 0; event < nic::kEvents; ++event)
    events.push_back({{"event", nic::name_of(static_cast<nic::Event>(event))},
                      {"processor", plan.processor_of[event]},
                      {"cost", chosen->profile[event]}});
  for (const nic::SharedVariable& variable : plan.shared)
    shared.push_back({{"name", variable.name},
                      {"writer", nic::name_of(variable.writer)},
                      {"reader", nic::name_of(variable.reader)}});
  const Json plan_json = {{"profile", chosen->of},     {"processors", plan.processors}, {"load", plan.load},
                          {"speed_up", plan.speed_up}, {"events", std::move(events)},   {"shared", std::move(shared)}};
  fmt::print("{}\n", plan_json.dump(-1, ' ', false, Json::error_handler_t::replace));
  return ExitCode::ok;
}

struct ModelOptions {
  bool json = false;
  std::string variant, traffic = "both";
  std::uint32_t size = 1472;
  double link_gbits = 1, clock_mhz = 88;
  std::uint64_t packets = 4000;
};

const std::map<std::string, nic::model::Variant (*)()> kVariants = {
    {"release", nic::model::release},
    {"release-sram", nic::model::release_sram_both},
    {"parallel", nic::model::parallel},
    {"parallel-sram-code", nic::model::parallel_sram_code},
    {"parallel-sram-data", nic::model::parallel_sram_data},
    {"parallel-sram", nic::model::parallel_sram_both}};
const std::map<std::string, nic::model::Traffic (*)(std::uint32_t)> kTraffic = {{"send", nic::model::udp_send},
                                                                                {"receive", nic::model::udp_receive},
                                                                                {"both", nic::model::udp_both},
                                                                                {"ping", nic::model::udp_ping}};

ExitCode run_one(const ModelOptions& options) {
  nic::model::Card card = nic::model::tigon();
  card.link_bits_per_s = options.link_gbits * 1e9;
  card.clock_hz = options.clock_mhz * 1e6;
  const nic::model::Outcome outcome = nic::model::run(card, kVariants.at(options.variant)(),
                                                      kTraffic.at(options.traffic)(options.size), options.packets);
  const double megabits = nic::model::megabits(outcome, options.size);
  if (options.json) {
    const Json result = {{"variant", options.variant},
                         {"traffic", options.traffic},
                         {"size", options.size},
                         {"send_pps", outcome.send_pps},
                         {"receive_pps", outcome.receive_pps},
                         {"megabits", megabits},
                         {"ping_us", outcome.ping_us},
                         {"busy", outcome.busy},
                         {"bus_busy", outcome.bus_busy},
                         {"sram_busy", outcome.sram_busy},
                         {"profile", outcome.profile}};
    fmt::print("{}\n", result.dump());
    return ExitCode::ok;
  }
  fmt::print("{} on a card of {:g} MHz and {:g} Gb/s, UDP datagrams of {} bytes, {}:\n", options.variant,
             options.clock_mhz, options.link_gbits, options.size, options.traffic);
  if (options.traffic == "ping")
    fmt::print("  {:.1f} us round trip\n", outcome.ping_us);
  else
    fmt::print("  sent {:.0f} and received {:.0f} packets/s, {:.0f} Mb/s together\n", outcome.send_pps,
               outcome.receive_pps, megabits);
  for (std::size_t i = 0; i < outcome.busy.size(); ++i)
    fmt::print("  processor {}: {:.0f} % busy\n", i, 100 * outcome.busy[i]);
  fmt::print("  PCI bus: {:.0f} % busy\n", 100 * outcome.bus_busy);
  constexpr auto kRight = Column::Align::right;
  Table table({{"% OF TIME", kRight}, {"HANDLER"}});
  for (unsigned event = 0; event < nic::kEvents; ++event)
    table.add({fmt::format("{:.1f}", 100 * outcome.profile[event]),
               std::string(nic::name_of(static_cast<nic::Event>(event)))});
  fmt::print("{}", table.text(Screen::standard_output()));
  return ExitCode::ok;
}

ExitCode compare(const ModelOptions& options) {
  const nic::model::Comparisons all = nic::model::compare_with_paper(options.packets);
  const auto basis = [](const nic::model::Comparison& row) {
    return row.basis == nic::model::Basis::calibrated ? "calibrated" : "predicted";
  };
  if (options.json) {
    Json rows = Json::array(), orderings = Json::array();
    for (const auto& row : all.rows)
      rows.push_back({{"what", row.what},
                      {"unit", row.unit},
                      {"paper", row.paper},
                      {"model", row.model},
                      {"basis", basis(row)},
                      {"remark", row.remark}});
    for (const auto& ordering : all.orderings)
      orderings.push_back({{"what", ordering.what}, {"holds", ordering.holds}});
    fmt::print("{}\n", Json({{"rows", std::move(rows)}, {"orderings", std::move(orderings)}})
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
    return ExitCode::ok;
  }
  constexpr auto kRight = Column::Align::right;
  Table table({{"PAPER", kRight}, {"MODEL", kRight}, {"UNIT"}, {"OFF", kRight}, {"BASIS"}, {"WHAT"}});
  for (const auto& row : all.rows)
    table.add({fmt::format("{:.4g}", row.paper), fmt::format("{:.4g}", row.model), row.unit,
               fmt::format("{:+.1f} %", 100 * row.deviation()), basis(row), row.what});
  fmt::print("{}", table.text(Screen::standard_output()));
  for (const auto& ordering : all.orderings)
    fmt::print("{} {}\n", ordering.holds ? "holds:" : "DOES NOT HOLD:", ordering.what);
  return ExitCode::ok;
}

template <class Map>
std::vector<std::string> names_in(const Map& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

}  // namespace

void add_nic_partition(CLI::App& nic) {
  auto options = std::make_shared<PartitionOptions>();
  CLI::App* const command =
      nic.add_subcommand("partition", "Which processor should handle which event, from a profile, and why");
  command->add_flag("--paper", options->paper, "From the paper's profile instead of a running adapter's");
  command->add_option("--processors", options->processors, "Spread over at most so many")
      ->type_name("N")
      ->check(number_between(1, nic::kMostProcessors))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--adapter", options->adapter, "The adapter of that name")->type_name("NAME");
  command->add_option("PID", options->pids, "The process it runs in")
      ->type_name("")
      ->check(number_between(1, kHighestPid))
      ->expected(0, 1);
  on_run(*command, [options] { return partition(*options); });
}

void add_nic_model(CLI::App& nic) {
  auto options = std::make_shared<ModelOptions>();
  CLI::App* const command =
      nic.add_subcommand("model", "The firmware in virtual time: the paper against the model, or one run");
  command->add_option("--variant", options->variant, "Run this one alone: release, parallel, parallel-sram-code ...")
      ->type_name("NAME")
      ->check(CLI::IsMember(names_in(kVariants)));
  command->add_option("--traffic", options->traffic, "send, receive, both or ping")
      ->type_name("NAME")
      ->check(CLI::IsMember(names_in(kTraffic)))
      ->capture_default_str();
  command->add_option("--size", options->size, "Bytes of a UDP datagram")
      ->type_name("BYTES")
      ->check(number_between(18, 8972))
      ->capture_default_str();
  command->add_option("--link", options->link_gbits, "The MAC's rate")
      ->type_name("GBITS")
      ->check(number_between(0.01, 1000))
      ->capture_default_str();
  command->add_option("--clock", options->clock_mhz, "The processors' clock")
      ->type_name("MHZ")
      ->check(number_between(1, 10000))
      ->capture_default_str();
  command->add_option("--packets", options->packets, "How many packets a run takes")
      ->type_name("N")
      ->check(number_between(100, 1e7))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  on_run(*command, [options] { return options->variant.empty() ? compare(*options) : run_one(*options); });
}

}  // namespace viaduct::cli
