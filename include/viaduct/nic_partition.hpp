// nic_partition.hpp: which processor should handle which event, derived from what the handlers cost.
//
//   auto plan = nic::derive_partition(*nic::profile_of(reading), 2);
//   config.partition = nic::Partition::custom;
//   config.processor_of = plan.processor_of;
//   puts(plan.explanation.c_str());
#pragma once

#include <viaduct/api.h>
#include <viaduct/nic.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace viaduct::nic {

// Time per handler, in any unit.
using Profile = std::array<double, kEvents>;
VIADUCT_API Profile paper_profile();  // figure 5, in per cent
// Of a running adapter, all processors together. Nothing where it has not measured time, or done nothing.
VIADUCT_API std::optional<Profile> profile_of(const Reading& reading);

struct SharedVariable {
  std::string name;
  Event writer{}, reader{};
};

struct PartitionPlan {
  Assignment processor_of{};
  unsigned processors = 1;             // that have something to do
  std::vector<double> load;            // share of all work, each of them
  std::vector<SharedVariable> shared;  // written on one processor, read on another
  double speed_up = 1;                 // over one processor, while the handlers are the bound
  std::string explanation;             // for people
};
// At least one processor. Handlers that share a DMA channel are never parted, so no lock is needed.
VIADUCT_API PartitionPlan derive_partition(const Profile& profile, unsigned processors);

}  // namespace viaduct::nic
