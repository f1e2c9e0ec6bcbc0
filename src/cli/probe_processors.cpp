#include <fmt/format.h>

#include <map>

#include "base/topology.hpp"
#include "cli/probe.hpp"
#include "cli/system_files.hpp"

namespace viaduct::cli {

namespace {

Finding processors(const Topology& machine) {
  const std::size_t count = machine.processors().size();
  Finding finding{"processors", State::yes,
                  fmt::format("{} ({}) on {} core{}", count, in_ranges(machine.processors()), machine.cores(),
                              machine.cores() == 1 ? "" : "s")};
  if (count > 1) return finding;
  finding.state = State::partly;
  finding.why = "with one processor the peer cannot run while we spin: every wait sleeps";
  finding.next = "give the machine or the container a second processor";
  return finding;
}

// "L2 2 MiB: 0-1 | 2-3", or only the number of groups where there are many.
std::string level_in_words(int level, const std::vector<const Cache*>& caches) {
  constexpr std::size_t kMostListed = 8;
  std::string groups;
  bool private_ones = true;
  for (const Cache* cache : caches) private_ones = private_ones && cache->processors.size() == 1;
  if (private_ones && caches.size() > 1) {
    groups = "one for each processor";
  } else {
    for (std::size_t i = 0; i < std::min(caches.size(), kMostListed); ++i)
      groups += (i == 0 ? "" : " | ") + in_ranges(caches[i]->processors);
    if (caches.size() > kMostListed) groups += fmt::format(" | ... {} in all", caches.size());
    if (caches.size() == 1 && caches.front()->processors.size() > 1) groups += " share it";
  }
  return fmt::format("L{} {}: {}", level, in_bytes(caches.front()->size), groups);
}

Finding caches(const Topology& machine) {
  std::map<int, std::vector<const Cache*>> levels;
  for (const Cache& cache : machine.caches()) levels[cache.level].push_back(&cache);
  if (levels.empty())
    return {"caches", State::no, "", "the system does not say which processors share a cache",
            "let the virtual machine pass the processor's cache topology on"};
  std::string detail;
  for (const auto& [level, members] : levels) detail += (detail.empty() ? "" : "\n") + level_in_words(level, members);
  return {"caches", State::yes, detail};
}

Finding numa(const Topology& machine) {
  std::map<int, std::vector<int>> nodes;
  for (const int processor : machine.processors()) nodes[machine.numa_node_of(processor)].push_back(processor);
  std::string detail = fmt::format("{} node{}", machine.numa_nodes(), machine.numa_nodes() == 1 ? "" : "s");
  if (nodes.size() > 1)
    for (const auto& [node, members] : nodes) detail += fmt::format("\nnode {}: {}", node, in_ranges(members));
  return {"numa", State::yes, detail};
}

}  // namespace

Findings probe_processors() {
  const Topology& machine = Topology::machine();
  return {processors(machine), caches(machine), numa(machine)};
}

}  // namespace viaduct::cli
