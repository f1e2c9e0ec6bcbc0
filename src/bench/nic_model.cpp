// `viaduct bench nic-model`: every number of the paper about the parallel Tigon firmware against the same handlers in
// virtual time on a model of its card; then faster links and more processors. Nothing here is measured on this machine.
#include <fmt/format.h>
#include <viaduct/nic_model.hpp>

#include <cmath>

#include "bench/bench.hpp"

namespace viaduct::bench {

namespace {

namespace model = nic::model;

constexpr const char* kPaper = "paper";
constexpr const char* kModel = "model";
constexpr double kTolerance = 0.1;

const char* name_of(model::Basis basis) {
  switch (basis) {
    case model::Basis::calibrated:
      return "calibrated";
    case model::Basis::predicted:
      return "predicted";
  }
  return "";
}

const char* name_of(model::Split split) {
  switch (split) {
    case model::Split::uniprocessor:
      return "static";
    case model::Split::parallel:
      return "static";
    case model::Split::dynamic:
      return "dynamic";
    case model::Split::packet_parallel:
      return "packet-parallel";
  }
  return "";
}

void add_comparison(Report& report, const model::Comparison& row) {
  const char* const metric = name_of(row.basis);
  const Better better = row.what.starts_with("ping") ? Better::lower : Better::higher;
  report.rows.push_back({row.what, kPaper, Kind::peer, metric, row.unit, better, {row.paper}});
  report.rows.push_back({row.what, kModel, Kind::us, metric, row.unit, better, {row.model}});
  report.ratios.push_back({row.what, metric, kModel, kPaper, row.model / row.paper});
  if (row.basis == model::Basis::predicted && row.throughput) {
    const double off = 1 + std::fabs(row.deviation());
    report.goals.push_back({{row.what, "distance", kModel, kPaper, Better::lower, 1 + kTolerance}, off, row.holds()});
  }
  if (!row.holds() && !row.remark.empty())
    report.notes.push_back(fmt::format("{}: {:+.0f} %: {}", row.what, 100 * row.deviation(), row.remark));
}

void add_ordering(Report& report, const model::Ordering& ordering) {
  const double holds = ordering.holds ? 1 : 0;
  report.goals.push_back({{ordering.what, "ordering", kModel, kPaper, Better::higher, 1}, holds, ordering.holds});
}

void add_scaling(Report& report, const model::Scaling& row) {
  report.rows.push_back(
      {fmt::format("{:g} Gb/s, {:g} MHz, {} B both ways", row.link_gbits, row.clock_mhz, row.datagram),
       fmt::format("{}, {} processor{}", name_of(row.split), row.processors, row.processors == 1 ? "" : "s"),
       Kind::us,
       "of line rate",
       "%",
       Better::higher,
       {100 * row.of_line_rate}});
}

void add_point(Report& report, const model::Point& point) {
  const bool ping = point.figure == 12;
  report.rows.push_back({fmt::format("figures {} and {}, {} B", point.figure, point.figure + 1, point.datagram),
                         std::string(point.variant),
                         Kind::us,
                         ping ? "round trip" : "throughput",
                         ping ? "us" : "Mb/s",
                         ping ? Better::lower : Better::higher,
                         {point.value}});
}

}  // namespace

Result<Report> run_nic_model(const Options& options) {
  Report report{
      "nic-model", "The adapter's firmware in virtual time on the paper's card, against the paper", {}, {}, {}, {}};
  const model::Comparisons comparisons = options.quick ? model::compare_with_paper(1000) : model::compare_with_paper();
  for (const model::Comparison& row : comparisons.rows) add_comparison(report, row);
  for (const model::Scaling& row : model::scale(options.quick ? 1000 : 4000)) add_scaling(report, row);
  for (const model::Point& point : comparisons.points) add_point(report, point);
  for (const model::Ordering& ordering : comparisons.orderings) add_ordering(report, ordering);
  report.notes.push_back(
      "calibrated: on RELEASE and figure 5; predicted: follows, though not blindly (docs/nic-model.md)");
  report.notes.push_back("not modelled: the BSD firmware (only object code exists), the Intel and Netgear cards");
  if (options.quick) report.notes.push_back("quick: short runs move results by some per cent");
  return report;
}

}  // namespace viaduct::bench
