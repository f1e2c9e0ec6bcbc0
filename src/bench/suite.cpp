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
    for (const Ratio& ratio : report.ratios) {
      if (ratio.case_name != goal.case_name || ratio.metric != goal.metric || ratio.us != goal.us ||
          ratio.against != goal.against)
        continue;
      const bool met = goal.better == Better::lower ? ratio.ratio <= goal.bound : ratio.ratio >= goal.bound;
      report.goals.push_back({goal, ratio.ratio, met});
    }
  }
  return report;
}

}  // namespace viaduct::bench
