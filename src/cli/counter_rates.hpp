// Counters as `viaduct top` shows them: those that are not zero, with what they grew by since the reading before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counters.hpp"

namespace viaduct::cli {

struct CounterLine {
  std::string name;
  std::uint64_t value;
  std::optional<double> per_second;  // nothing in the first reading of a counter
};

struct ProcessLines {
  int pid;
  std::string command;
  std::vector<CounterLine> counters;
};

class CounterRates {
 public:
  std::vector<ProcessLines> update(const std::vector<ProcessCounters>& reading, std::uint64_t now_ns);

 private:
  using Key = std::pair<int, std::string>;
  std::map<Key, std::uint64_t> before_;
  std::uint64_t before_ns_ = 0;
};

}  // namespace viaduct::cli
