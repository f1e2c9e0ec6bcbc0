// Suite: collects the measurements of one benchmark, runs them interleaved, and makes the report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/bench.hpp"

namespace viaduct::bench {

struct Measurement {
  std::string case_name;
  std::string who;
  Kind kind;
  std::string metric;
  std::string unit;
  Better better;
  std::function<double()> sample;  // measures once
};

class Suite {
 public:
  Suite(std::string benchmark, std::string title) : benchmark_(std::move(benchmark)), title_(std::move(title)) {}

  void add(Measurement measurement) { measurements_.push_back(std::move(measurement)); }
  void expect(Goal goal) { goals_.push_back(std::move(goal)); }
  void note(std::string line) { notes_.push_back(std::move(line)); }

  // Every round takes one sample of every measurement; odd rounds go backwards. One round before them is thrown away.
  Report run(const Options& options, int rounds);

 private:
  std::string benchmark_;
  std::string title_;
  std::vector<Measurement> measurements_;
  std::vector<Goal> goals_;
  std::vector<std::string> notes_;
};

}  // namespace viaduct::bench
