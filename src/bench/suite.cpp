#include "bench/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace viaduct::bench {

namespace {

double percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

double ratio_of(const Row& us, const Row& against) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < us.samples.size(); ++round)
    ratios.push_back(us.samples[round] / against.samples[round]);
  return percentile_of(std::move(ratios), 0.5);
}

bool reaches(double ratio, const Goal& goal) {
  return goal.better == Better::lower ? ratio <= goal.bound : ratio >= goal.bound;
}

const Row* row_of(const Report& report, const Goal& goal, const std::string& who) {
  for (const Row& row : report.rows)
    if (row.case_name == goal.case_name && row.metric == goal.metric && row.who == who) return &row;
  return nullptr;
}

// The best that a floor has to show for the goal, if that is not enough.
std::optional<double> floor_beyond(const Report& report, const Goal& goal) {
  const Row* const against = row_of(report, goal, goal.against);
  std::optional<double> best;
  for (const Row& row : report.rows) {
    if (row.kind != Kind::floor || row.case_name != goal.case_name || row.metric != goal.metric || &row == against)
      continue;
    const double ratio = ratio_of(row, *against);
    if (reaches(ratio, goal)) return std::nullopt;
    if (!best || (goal.better == Better::lower ? ratio < *best : ratio > *best)) best = ratio;
  }
  return best;
}

class ProgressBar {
 public:
  ProgressBar(bool shown, std::size_t total) : shown_(shown), total_(total) {}
  ~ProgressBar() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void step(const std::string& label) {
    if (!shown_) return;
    constexpr std::size_t kWidth = 30;
    const std::size_t filled = done_ * kWidth / total_;
    fmt::print(stderr, "\r\033[K[{}{}] {:3}%  {:.40}", std::string(filled, '#'), std::string(kWidth - filled, '.'),
               done_ * 100 / total_, label);
    std::fflush(stderr);
    ++done_;
  }

 private:
  bool shown_;
  std::size_t total_;
  std::size_t done_ = 0;
};

}  // namespace

double Row::percentile(double share) const {
  return percentile_of(samples, share);
}

Report Suite::run(const Options& options, int rounds) {
  if (options.quick) rounds = 3;
  if (options.rounds > 0) rounds = options.rounds;

  Report report{benchmark_, title_, {}, {}, {}, notes_};
  for (const Measurement& m : measurements_)
    report.rows.push_back({m.case_name, m.who, m.kind, m.metric, m.unit, m.better, {}});

  ProgressBar bar(options.progress, measurements_.size() * static_cast<std::size_t>(rounds + 1));
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t step = 0; step < measurements_.size(); ++step) {
      const std::size_t i = round % 2 == 0 ? step : measurements_.size() - 1 - step;
      bar.step(measurements_[i].case_name + ", " + measurements_[i].who);
      const double value = measurements_[i].sample();
      if (round >= 0) report.rows[i].samples.push_back(value);
    }
  }

  for (const Row& us : report.rows) {
    if (us.kind != Kind::us) continue;
    for (const Row& other : report.rows)
      if (other.kind != Kind::us && other.case_name == us.case_name && other.metric == us.metric)
        report.ratios.push_back({us.case_name, us.metric, us.who, other.who, ratio_of(us, other)});
  }
  for (const Goal& goal : goals_) {
    const Row *const us = row_of(report, goal, goal.us), *const against = row_of(report, goal, goal.against);
    if (us == nullptr || against == nullptr) continue;
    const double ratio = ratio_of(*us, *against);
    const bool met = reaches(ratio, goal);
    report.goals.push_back({goal, ratio, met, met ? std::nullopt : floor_beyond(report, goal)});
  }
  return report;
}

}  // namespace viaduct::bench
