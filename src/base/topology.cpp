#include "base/topology.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/log.hpp"

namespace viaduct {

namespace {

std::vector<int> processors_in(hwloc_const_cpuset_t set) {
  std::vector<int> numbers;
  unsigned id;
  hwloc_bitmap_foreach_begin(id, set) numbers.push_back(static_cast<int>(id));
  hwloc_bitmap_foreach_end();
  return numbers;
}

std::vector<int> affinity_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> numbers;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) numbers.push_back(i);
  return numbers;
}

bool contains(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

Result<Topology> Topology::load() {
  hwloc_topology_t raw = nullptr;
  if (::hwloc_topology_init(&raw) != 0) return Error::from_errno("read the machine's topology");
  const std::unique_ptr<hwloc_topology, decltype(&::hwloc_topology_destroy)> tree(raw, &::hwloc_topology_destroy);
  if (::hwloc_topology_load(raw) != 0) return Error::from_errno("read the machine's topology");

  Topology topology;
  topology.processors_ = processors_in(::hwloc_topology_get_allowed_cpuset(raw));
  topology.cores_ = std::max(1, ::hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE));
  topology.numa_nodes_ = std::max(1, ::hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE));
  topology.nodes_.assign(topology.processors_.size(), -1);
  for (hwloc_obj_t node = nullptr; (node = ::hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    for (std::size_t i = 0; i < topology.processors_.size(); ++i)
      if (::hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(topology.processors_[i])) != 0)
        topology.nodes_[i] = static_cast<int>(node->os_index);
  constexpr hwloc_obj_type_t kLevels[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE};
  for (int level = 1; level <= 3; ++level)
    for (hwloc_obj_t cache = nullptr;
         (cache = ::hwloc_get_next_obj_by_type(raw, kLevels[level - 1], cache)) != nullptr;)
      topology.caches_.push_back({level, cache->attr->cache.size, processors_in(cache->cpuset)});
  return topology;
}

const Topology& Topology::machine() {
  static const auto* const topology = [] {  // never destroyed: threads read it until the very end
    auto loaded = load();
    if (loaded) return new Topology(std::move(*loaded));
    log::fault(loaded.error().message() + "; caches and NUMA are taken as unknown");
    Topology plain;
    plain.processors_ = affinity_of_this_thread();
    plain.nodes_.assign(plain.processors_.size(), -1);
    plain.cores_ = static_cast<int>(plain.processors_.size());
    plain.numa_nodes_ = 1;
    return new Topology(std::move(plain));
  }();
  return *topology;
}

bool Topology::exists(int processor) const {
  return contains(processors_, processor);
}

int Topology::numa_node_of(int processor) const {
  const auto found = std::find(processors_.begin(), processors_.end(), processor);
  return found == processors_.end() ? -1 : nodes_[static_cast<std::size_t>(found - processors_.begin())];
}

int Topology::shared_cache_level(int a, int b) const {
  int level = 0;
  for (const Cache& cache : caches_)
    if (contains(cache.processors, a) && contains(cache.processors, b) && (level == 0 || cache.level < level))
      level = cache.level;
  return level;
}

std::uint64_t Topology::cache_size(int processor, int level) const {
  for (const Cache& cache : caches_)
    if (cache.level == level && contains(cache.processors, processor)) return cache.size;
  return 0;
}

Result<std::vector<int>> Topology::parse_processors(std::string_view list) const {
  const auto refuse = [&](std::string_view item, std::string_view why) {
    return Error(EINVAL, fmt::format("processor list '{}': {} {}", list, item, why));
  };
  const auto number = [](std::string_view text) {
    int value = -1;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    return fault == std::errc{} && end == text.data() + text.size() ? value : -1;
  };
  std::vector<int> numbers;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view item = list.substr(at, end - at);
    const std::size_t dash = item.find('-');
    const int first = number(item.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : number(item.substr(dash + 1));
    if (first < 0 || last < first) return refuse(fmt::format("'{}'", item), "is not a number or a range such as 0-3");
    if (last - first >= CPU_SETSIZE) return refuse(fmt::format("'{}'", item), "is too long a range");
    for (int processor = first; processor <= last; ++processor) {
      if (!exists(processor))
        return refuse(std::to_string(processor),
                      fmt::format("does not exist or is not allowed here; there are {}", fmt::join(processors_, ",")));
      if (!contains(numbers, processor)) numbers.push_back(processor);
    }
    at = end + 1;
  }
  return numbers;
}

Status pin_this_thread(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) {
    if (processor < 0 || processor >= CPU_SETSIZE)
      return Error(EINVAL, fmt::format("processor {} cannot exist", processor));
    CPU_SET(processor, &set);
  }
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    return Error::from_errno(fmt::format("pin to processors {}", fmt::join(processors, ",")));
  return {};
}

Status pin_this_thread(int processor) {
  return pin_this_thread(std::vector<int>{processor});
}

PinnedScope::PinnedScope(int processor) : before_(affinity_of_this_thread()) {
  if (auto pinned = pin_this_thread(processor); !pinned) log::detail(pinned.error().message());
}

PinnedScope::~PinnedScope() {
  if (!before_.empty()) (void)pin_this_thread(before_);
}

}  // namespace viaduct
