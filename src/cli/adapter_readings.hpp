// Adapters that run on this machine, as `viaduct nic stat` shows them.
#pragma once

#include <viaduct/nic_stat.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace viaduct::cli {

struct AdapterReading {
  nic::Reading adapter;
  // What the process counts of the two sides of a bridge ("mac.sent", "host.link_down"); empty where there is none.
  std::map<std::string, std::uint64_t> sides;
  double sent_per_second = 0, received_per_second = 0;  // 0 in the first reading
};

// Every adapter of these processes; of all that can be read, where none is named. One error in `faults` for each
// process named that shows none.
std::vector<AdapterReading> read_adapters_of(const std::vector<int>& pids, std::vector<Error>& faults);
// The same, where one that shows none spoils it all.
Result<std::vector<AdapterReading>> read_adapters_of(const std::vector<int>& pids);

// The counts of dropped packets that are not zero, by name.
std::vector<std::pair<std::string_view, std::uint64_t>> drops_of(const nic::Totals& totals);

std::string in_json(const std::vector<AdapterReading>& readings);
std::string in_text(const std::vector<AdapterReading>& readings);

}  // namespace viaduct::cli
