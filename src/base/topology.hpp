// What the machine looks like (hwloc): processors, caches, NUMA; and placing threads on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace viaduct {

struct Cache {
  int level;                    // 1, 2, 3; data or unified
  std::uint64_t size;           // bytes
  std::vector<int> processors;  // that share it
};

class Topology {
 public:
  static Result<Topology> load();
  static const Topology& machine();  // loaded once; a machine that hwloc cannot read looks like plain processors

  const std::vector<int>& processors() const { return processors_; }  // numbers this process may use, ascending
  int cores() const { return cores_; }
  int numa_nodes() const { return numa_nodes_; }
  const std::vector<Cache>& caches() const { return caches_; }

  bool exists(int processor) const;
  int numa_node_of(int processor) const;  // -1: unknown

  // The level of the smallest cache two processors share; 0: none.
  int shared_cache_level(int a, int b) const;
  // The size of the cache of that level at a processor; 0: none.
  std::uint64_t cache_size(int processor, int level) const;

  // "0,2-3" as numbers; an error names the processor that does not exist.
  Result<std::vector<int>> parse_processors(std::string_view list) const;

 private:
  std::vector<int> processors_;
  std::vector<int> nodes_;  // parallel to processors_
  std::vector<Cache> caches_;
  int cores_ = 0;
  int numa_nodes_ = 0;
};

// Puts the calling thread on these processors.
Status pin_this_thread(const std::vector<int>& processors);
Status pin_this_thread(int processor);

// Pins for a scope, then restores what was before.
class PinnedScope {
 public:
  explicit PinnedScope(int processor);
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace viaduct
