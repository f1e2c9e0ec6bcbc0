// Peers on other hosts, as `viaduct ls` prints them and `viaduct top` counts them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/counters.hpp"
#include "cli/table.hpp"
#include "net/statistics.hpp"

namespace viaduct::cli {

// One line for each peer; nothing where there is none.
std::string hosts_in_table(const std::vector<net::EngineReading>& engines, const Screen& screen);

nlohmann::ordered_json hosts_in_json(const std::vector<net::EngineReading>& engines);

// What all engines of a process count together, added to its counters.
void add_host_counters(const std::vector<net::EngineReading>& engines, std::vector<ProcessCounters>& counters);

}  // namespace viaduct::cli
