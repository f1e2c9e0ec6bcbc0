// viaduct info: what this machine offers, why something is missing and what to do; and the settings in force.
#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <viaduct/version.h>
#include <viaduct/copy.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/config.hpp"
#include "base/topology.hpp"
#include "cli/command.hpp"
#include "cli/probe.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;

Json machine_json() {
  const Topology& topology = Topology::machine();
  utsname kernel{};
  ::uname(&kernel);
  struct sysinfo memory {};
  ::sysinfo(&memory);
  Json caches = Json::array();
  for (const Cache& cache : topology.caches())
    caches.push_back({{"level", cache.level}, {"bytes", cache.size}, {"processors", cache.processors}});
  return {{"host", kernel.nodename},
          {"kernel", kernel.release},
          {"architecture", kernel.machine},
          {"memory_bytes", std::uint64_t{memory.totalram} * memory.mem_unit},
          {"processors", topology.processors()},
          {"cores", topology.cores()},
          {"numa_nodes", topology.numa_nodes()},
          {"caches", caches}};
}

Json info_json(const Findings& findings, const Config& config) {
  Json paths = Json::array(), settings = Json::array();
  for (const Finding& finding : findings)
    paths.push_back({{"name", finding.name},
                     {"state", word_for(finding.state)},
                     {"detail", finding.detail},
                     {"why", finding.why},
                     {"next", finding.next}});
  for (const Config::Value& value : config.values())
    settings.push_back({{"name", value.setting->name},
                        {"value", value.text},
                        {"source", value.source},
                        {"accepts", value.setting->range},
                        {"meaning", value.setting->meaning}});
  Json channels = Json::array();
  for (const copy::ChannelReport& channel : copy::report_channels())
    channels.push_back({{"name", channel.name},
                        {"there", channel.available},
                        {"detail", channel.detail},
                        {"start_ns", channel.start_ns},
                        {"ns_per_byte", channel.ns_per_byte}});
  return {{"viaduct", VIADUCT_VERSION},
          {"machine", machine_json()},
          {"paths", paths},
          {"copy_channels", channels},
          {"settings", settings}};
}

Tone tone_of(State state) {
  return state == State::yes ? Tone::good : state == State::partly ? Tone::warning : Tone::bad;
}

std::string in_words(const Finding& finding) {
  std::string text = finding.detail;
  const auto add = [&](std::string_view label, const std::string& sentence) {
    if (!sentence.empty()) text += fmt::format("{}{}{}", text.empty() ? "" : "\n", label, sentence);
  };
  add("why: ", finding.why);
  add("do: ", finding.next);
  return text;
}

std::string info_text(const Findings& findings, const Config& config, const Screen& screen) {
  Table paths({{"PATH"}, {"THERE"}, {"DETAIL"}});
  for (const Finding& finding : findings)
    paths.add({finding.name, {std::string(word_for(finding.state)), tone_of(finding.state)}, in_words(finding)});
  // The engine's model: n bytes cost start + n / rate.
  Table channels({{"COPY CHANNEL"}, {"THERE"}, {"START"}, {"RATE"}, {"DETAIL"}});
  for (const copy::ChannelReport& channel : copy::report_channels()) {
    const bool there = channel.available;
    channels.add({channel.name,
                  {there ? "yes" : "no", there ? Tone::good : Tone::bad},
                  there ? fmt::format("{:.2f} us", channel.start_ns / 1000) : "",
                  there && channel.ns_per_byte > 0 ? fmt::format("{:.1f} GB/s", 1 / channel.ns_per_byte) : "",
                  channel.detail});
  }
  Table settings({{"SETTING"}, {"VALUE"}, {"FROM"}, {"MEANING"}});
  for (const Config::Value& value : config.values())
    settings.add({std::string(value.setting->name), value.text, value.source,
                  fmt::format("{}\naccepts {}", value.setting->meaning, value.setting->range)});
  return fmt::format("viaduct {}: what this machine offers\n\n{}\n{}\n{}", VIADUCT_VERSION, paths.text(screen),
                     channels.text(screen), settings.text(screen));
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("info", "What this machine offers, and why something is missing");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object instead of tables");
  on_run(*command, [json] {
    const Findings findings = probe_everything();
    const Config& config = Config::process();
    if (*json)
      fmt::print("{}\n", info_json(findings, config).dump(2, ' ', false, Json::error_handler_t::replace));
    else
      fmt::print("{}", info_text(findings, config, Screen::standard_output()));
    return ExitCode::ok;
  });
}

}  // namespace viaduct::cli
