// Where the process of an endpoint runs: near the processor that moves its frames.
#include <sched.h>
#include <sys/sysinfo.h>
#include <viaduct/nic_serve.hpp>

#include <algorithm>

#include "base/config.hpp"
#include "base/topology.hpp"

namespace viaduct::nic {

namespace {

// Somebody has said already where it runs: it may not run everywhere.
bool is_bound() {
  cpu_set_t may;
  CPU_ZERO(&may);
  return ::sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) < ::get_nprocs();
}

// Those of the smallest cache that the core shares with another.
std::vector<int> neighbours(int core) {
  const Cache* nearest = nullptr;
  for (const Cache& cache : Topology::machine().caches())
    if (cache.processors.size() > 1 && std::ranges::find(cache.processors, core) != cache.processors.end() &&
        (nearest == nullptr || cache.processors.size() < nearest->processors.size()))
      nearest = &cache;
  if (nearest == nullptr) return {};
  std::vector<int> others = nearest->processors;
  std::erase(others, core);
  return others;
}

}  // namespace

Binding binding_by_setting() {
  const std::string_view how = viaduct::Config::process().text("VIADUCT_MX_BIND");
  return how == "core" ? Binding::core : how == "cache" ? Binding::cache : Binding::no;
}

bool bind_near(int core, Binding how) {
  if (how == Binding::no || core < 0 || is_bound()) return false;
  if (how == Binding::core) return pin_this_thread(core).ok();
  const std::vector<int> others = neighbours(core);
  return !others.empty() && pin_this_thread(others).ok();
}

}  // namespace viaduct::nic
