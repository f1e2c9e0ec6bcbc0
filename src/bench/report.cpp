#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/topology.hpp"
#include "bench/bench.hpp"

namespace viaduct::bench {

namespace {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::us:
      return "us";
    case Kind::peer:
      return "peer";
    case Kind::floor:
      return "floor";
  }
  return "";
}

// Three or four digits whatever the size.
std::string number(double value) {
  if (std::isnan(value)) return "-";
  const double size = std::fabs(value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  if (size >= 100) return fmt::format("{:.1f}", value);
  if (size >= 10) return fmt::format("{:.2f}", value);
  return size >= 0.1 || size == 0 ? fmt::format("{:.3f}", value) : fmt::format("{:.3g}", value);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown";
}

nlohmann::json machine() {
  utsname system{};
  ::uname(&system);
  struct sysinfo memory {};
  ::sysinfo(&memory);
  return {{"processor", processor_name()},
          {"processors", Topology::machine().processors().size()},
          {"memory_bytes", memory.totalram * memory.mem_unit},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)}};
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

nlohmann::json to_object(const Report& report) {
  nlohmann::json object = {{"benchmark", report.benchmark},
                           {"machine", machine()},
                           {"date", date()},
                           {"rows", nlohmann::json::array()},
                           {"ratios", nlohmann::json::array()},
                           {"goals", nlohmann::json::array()},
                           {"notes", report.notes}};
  for (const Row& row : report.rows)
    object["rows"].push_back({{"case", row.case_name},
                              {"who", row.who},
                              {"kind", name_of(row.kind)},
                              {"metric", row.metric},
                              {"unit", row.unit},
                              {"median", row.median()},
                              {"p10", row.percentile(0.1)},
                              {"p90", row.percentile(0.9)},
                              {"samples", row.samples.size()}});
  for (const Ratio& ratio : report.ratios)
    object["ratios"].push_back({{"case", ratio.case_name},
                                {"metric", ratio.metric},
                                {"us", ratio.us},
                                {"against", ratio.against},
                                {"ratio", ratio.ratio}});
  for (const GoalResult& result : report.goals) {
    object["goals"].push_back({{"case", result.goal.case_name},
                               {"metric", result.goal.metric},
                               {"us", result.goal.us},
                               {"against", result.goal.against},
                               {"wanted", result.goal.better == Better::lower ? "at most" : "at least"},
                               {"bound", result.goal.bound},
                               {"ratio", result.ratio},
                               {"met", result.met}});
    if (result.floor) object["goals"].back()["floor"] = *result.floor;
  }
  return object;
}

// "0.42x pipe, 1.3x cache line": our row against everybody else of its case.
std::string ratios_of(const Report& report, const Row& row) {
  std::string text;
  if (row.kind != Kind::us) return text;
  for (const Ratio& ratio : report.ratios) {
    if (ratio.case_name != row.case_name || ratio.metric != row.metric || ratio.us != row.who) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{}x {}", number(ratio.ratio), ratio.against);
  }
  return text;
}

}  // namespace

std::string to_table(const Report& report) {
  std::size_t who_width = 4;
  for (const Row& row : report.rows) who_width = std::max(who_width, row.who.size());

  std::string text = report.title + "\n";
  std::string heading;
  for (const Row& row : report.rows) {
    const std::string group = fmt::format("{}: {}, {} ({} is better)", row.case_name, row.metric, row.unit,
                                          row.better == Better::lower ? "lower" : "higher");
    if (group != heading) {
      heading = group;
      text += fmt::format("\n  {}\n    {:{}}  {:6} {:>9} {:>9} {:>9}\n", heading, "", who_width, "", "median", "p10",
                          "p90");
    }
    std::string line = fmt::format("    {:{}}  {:6} {:>9} {:>9} {:>9}", row.who, who_width, name_of(row.kind),
                                   number(row.median()), number(row.percentile(0.1)), number(row.percentile(0.9)));
    if (const std::string ratios = ratios_of(report, row); !ratios.empty()) line += "   = " + ratios;
    text += line + "\n";
  }
  if (!report.goals.empty()) text += "\n  Goals\n";
  for (const GoalResult& result : report.goals) {
    text +=
        fmt::format("    {:6}  {}, {}: {} {} {}x {}: {}x", result.met ? "met" : "MISSED", result.goal.case_name,
                    result.goal.metric, result.goal.us, result.goal.better == Better::lower ? "at most" : "at least",
                    number(result.goal.bound), result.goal.against, number(result.ratio));
    text +=
        result.floor ? fmt::format(" (out of reach this time: the floor is at {}x)\n", number(*result.floor)) : "\n";
  }
  for (const std::string& note : report.notes) text += "  note: " + note + "\n";
  return text;
}

std::string to_json(const std::vector<Report>& reports) {
  if (reports.size() == 1) return to_object(reports.front()).dump(2);
  nlohmann::json list = nlohmann::json::array();
  for (const Report& report : reports) list.push_back(to_object(report));
  return list.dump(2);
}

}  // namespace viaduct::bench
