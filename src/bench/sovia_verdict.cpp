#include "bench/sovia_verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

const Row* find(const Report& report, const std::string& case_name, std::string_view who, std::string_view metric) {
  for (const Row& row : report.rows)
    if (row.case_name == case_name && row.who == who && row.metric == metric) return &row;
  return nullptr;
}

std::vector<std::size_t> sizes_of(const Report& report) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 1; size <= Conduit::kMostBytes; size *= 2)
    if (find(report, size_name(size), kNativeVipl, ViaSuite::kOneWay) != nullptr) sizes.push_back(size);
  return sizes;
}

// Round by round, as all ratios of a report.
double ratio(const Row& us, const Row& against) {
  Row each = us;
  for (std::size_t i = 0; i < each.samples.size(); ++i) each.samples[i] /= against.samples[i];
  return each.median();
}

double ratio(const Report& report, const std::string& size, const char* us, const char* against, const char* metric) {
  const Row* const ours = find(report, size, us, metric);
  const Row* const theirs = find(report, size, against, metric);
  return ours != nullptr && theirs != nullptr ? ratio(*ours, *theirs) : std::nan("");
}

// ---- beside the paper

std::string stated(double ours, double native) {
  return ours > 0 && native > 0 ? fmt::format("{:.2f}x", ours / native) : "-";
}

void compare_latency(Report& report, const char* name, const SoviaPaper& paper) {
  std::string text;
  for (const SoviaPaper::Point& native : paper_native_via().latency) {
    const std::string size = size_name(native.size);
    const Row* const row = find(report, size, name, ViaSuite::kOneWay);
    const auto point = std::find_if(paper.latency.begin(), paper.latency.end(),
                                    [&](const SoviaPaper::Point& p) { return p.size == native.size; });
    if (row == nullptr || point == paper.latency.end()) continue;
    text += fmt::format("{}{} {:.2f}x ({}, {})", text.empty() ? "" : "; ", size,
                        ratio(report, size, name, kNativeVipl, ViaSuite::kOneWay), stated(point->clan, native.clan),
                        stated(point->mvia, native.mvia));
  }
  if (!text.empty()) report.notes.push_back(fmt::format("latency of {}: {}", name, text));
}

void compare_bandwidth(Report& report, const char* name, const SoviaPaper& paper) {
  if (paper.bandwidth.size == 0) return;
  const std::string size = size_name(paper.bandwidth.size);
  const Row* const row = find(report, size, name, ViaSuite::kBandwidth);
  if (row == nullptr) return;
  report.notes.push_back(fmt::format("bandwidth of {}, {}: {:.2f}x ({}), {:.0f} Mb/s ({:.0f})", name, size,
                                     ratio(report, size, name, kNativeVipl, ViaSuite::kBandwidth),
                                     stated(paper.bandwidth.clan, paper_native_via().bandwidth.clan), row->median(),
                                     paper.bandwidth.clan));
}

}  // namespace

void compare_with_paper(Report& report, std::span<const SoviaConfiguration> table) {
  report.notes.push_back(
      "against native VIPL, and in brackets what the paper states: latency on cLAN and on M-VIA, bandwidth on cLAN");
  for (const SoviaConfiguration& row : table) compare_latency(report, row.name, row.paper);
  compare_latency(report, ViaSuite::kTcp, paper_tcp());
  for (const SoviaConfiguration& row : table) compare_bandwidth(report, row.name, row.paper);
  compare_bandwidth(report, ViaSuite::kTcp, paper_tcp());
}

// ---- the default

namespace {

struct Candidate {
  const char* who;
  const char* part;
};

class Verdict {
 public:
  Verdict(Report& report, std::size_t copy_limit) : report_(report), copy_limit_(copy_limit) {}

  void choose() {
    const std::vector<std::size_t> all = sizes_of(report_);
    constexpr auto kLatency = ViaSuite::kOneWay, kBandwidth = ViaSuite::kBandwidth;
    best("synchronisation", kLatency, all, {{kSoviaBase, "two-way"}, {kSoviaThreeWay, "three-way"}});
    best("message handling", kLatency, {4},
         {{kSoviaSingle, "the application's thread"}, {kSoviaHandler, "a handler thread"}, {kSoviaNotify, "notify"}});
    best("data", kLatency, all,
         {{kSoviaSingle, "registered"},
          {kSoviaKept, "kept registered"},
          {kSoviaCopy, "copied"},
          {kSoviaHybrid, "copied up to the limit"}});
    best("flow control", kBandwidth, all,
         {{kSoviaBase, "w=1 t=1"}, {kSoviaFlowControl, "w=32 t=1"}, {kSoviaDacks, "w=32 t=16"}});
    best("waiting", kLatency, {4}, {{kSoviaCombine, "polling"}, {kSoviaBlocking, "blocking"}});
    combine(all);
    report_.notes.push_back("default by these measurements: " + chosen_);
  }

 private:
  // The geometric mean over the sizes: each counts alike.
  double mean(const std::vector<std::size_t>& sizes, const char* us, const char* against, const char* metric) {
    double logs = 0;
    for (const std::size_t size : sizes) logs += std::log(ratio(report_, size_name(size), us, against, metric));
    return sizes.empty() ? 1 : std::exp(logs / static_cast<double>(sizes.size()));
  }

  void best(const char* question, const char* metric, const std::vector<std::size_t>& sizes,
            const std::vector<Candidate>& candidates) {
    const bool lower = std::string_view(metric) == ViaSuite::kOneWay;
    const Candidate* winner = nullptr;
    double least = 0;
    std::string text;
    for (const Candidate& candidate : candidates) {
      const double value = mean(sizes, candidate.who, candidates.front().who, metric);
      text += fmt::format("{}{} {:.2f}x", text.empty() ? "" : ", ", candidate.part, value);
      if (winner != nullptr && !(lower ? value < least : value > least)) continue;
      winner = &candidate;
      least = value;
    }
    report_.notes.push_back(
        fmt::format("{}: {} of {}: {}", question, metric, sizes.size() == 1 ? "4 B" : "all sizes", text));
    choose(winner->part);
  }

  // On, where what it brings to small messages of a stream is worth what it costs an exchange of them.
  void combine(const std::vector<std::size_t>& all) {
    constexpr double kWorthwhile = 1.5, kBearable = 1.2;
    std::vector<std::size_t> small;
    std::copy_if(all.begin(), all.end(), std::back_inserter(small),
                 [&](std::size_t size) { return size <= copy_limit_; });
    const double gain = mean(small, kSoviaCombine, kSoviaDacks, ViaSuite::kBandwidth);
    const double cost = mean({4}, kSoviaCombine, kSoviaDacks, ViaSuite::kOneWay);
    report_.notes.push_back(fmt::format("combining: bandwidth up to {} {:.2f}x, latency of 4 B {:.2f}x",
                                        size_name(copy_limit_), gain, cost));
    choose(gain >= kWorthwhile && cost <= kBearable ? "combining" : "no combining");
  }

  void choose(const char* part) {
    if (!chosen_.empty()) chosen_ += ", ";
    chosen_ += part;
  }

  Report& report_;
  const std::size_t copy_limit_;
  std::string chosen_;
};

}  // namespace

void choose_defaults(Report& report, std::size_t copy_limit) {
  Verdict(report, copy_limit).choose();
}

}  // namespace viaduct::bench
