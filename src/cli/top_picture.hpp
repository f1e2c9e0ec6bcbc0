// One picture of `viaduct top`: what programs under `viaduct run` send over rings, and what processes count.
#pragma once

#include <string>
#include <vector>

#include "cli/counter_rates.hpp"
#include "cli/socket_rates.hpp"
#include "cli/table.hpp"

namespace viaduct::cli {

struct TopPicture {
  std::vector<ProcessTraffic> traffic;
  std::vector<ProcessLines> counters;
  bool connections = false;  // each of them, not only their sums
  bool rates = false;        // in a series of readings: tables tell how fast, not how much so far

  bool empty() const { return traffic.empty() && counters.empty(); }
};

std::string in_table(const TopPicture& picture, const Screen& screen);

// On one line.
std::string in_json(const TopPicture& picture);

}  // namespace viaduct::cli
