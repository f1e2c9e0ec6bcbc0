// viaduct doctor: will a program be accelerated? Told before it runs, from its file, the library and the settings.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/config.hpp"
#include "cli/command.hpp"
#include "cli/preload_library.hpp"
#include "cli/program_file.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

namespace {

using Json = nlohmann::ordered_json;

const char* word_for(Effect effect) {
  return effect == Effect::none ? "fine" : effect == Effect::total ? "no" : "partly";
}

Tone tone_of(Effect effect) {
  return effect == Effect::none ? Tone::good : effect == Effect::total ? Tone::bad : Tone::warning;
}

void add_own_findings(ProgramReport& report) {
  const auto library = check_preload_library(own_preload_library());
  if (library)
    report.findings.push_back({"library", Effect::none, fmt::format("gets {} ({})", library->path, library->version)});
  else
    report.findings.push_back(
        {"library", Effect::total, fmt::format("cannot get the library: {}", library.error().message())});
  if (!Config::process().flag("VIADUCT_SOCKETS"))
    report.findings.push_back({"setting", Effect::total, "is told to stay on kernel TCP: VIADUCT_SOCKETS is off"});
}

std::string verdict(const ProgramReport& report) {
  if (!report.will_be_accelerated()) return "no";
  for (const ProgramFinding& finding : report.findings)
    if (finding.effect != Effect::none) return "partly";
  return "yes";
}

std::string in_json(const ProgramReport& report) {
  Json findings = Json::array();
  for (const ProgramFinding& finding : report.findings)
    findings.push_back({{"check", finding.check}, {"result", word_for(finding.effect)}, {"detail", finding.detail}});
  const Json whole = {{"program", report.path},
                      {"interpreters", report.interpreters},
                      {"accelerated", verdict(report)},
                      {"findings", findings}};
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string in_words(const ProgramReport& report, const Screen& screen) {
  std::string text = printable(report.path);
  for (const std::string& interpreter : report.interpreters) text += fmt::format(", run by {}", printable(interpreter));
  text += "\n\n";
  Table table({{"CHECK"}, {"RESULT"}, {"THE PROGRAM"}});
  for (const ProgramFinding& finding : report.findings)
    table.add({finding.check, {word_for(finding.effect), tone_of(finding.effect)}, printable(finding.detail)});
  const std::string answer = verdict(report);
  return text + table.text(screen) + "\n" +
         (answer == "yes"
              ? "yes: under `viaduct run` its local TCP connections will be accelerated, where the peer's side is too\n"
          : answer == "partly" ? "partly: under `viaduct run` most of its local TCP connections will be accelerated\n"
                               : "no: it will run on kernel TCP, at kernel speed\n");
}

ExitCode examine(const std::string& name, bool json) {
  auto report = inspect_program(name, Config::process().text("VIADUCT_PEERS") == "any");
  if (!report) return failure(report.error().message());
  add_own_findings(*report);
  fmt::print("{}", json ? in_json(*report) : in_words(*report, Screen::standard_output()));
  return report->will_be_accelerated() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("doctor", "Will a program be accelerated? Asked before it runs");
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("PROGRAM", *name, "A file, or a name to look for in PATH")->type_name("")->required();
  command->add_flag("--json", *json, "Print one JSON object instead of a table");
  on_run(*command, [name, json] { return examine(*name, *json); });
}

}  // namespace viaduct::cli
