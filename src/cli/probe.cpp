#include "cli/probe.hpp"

#include <iterator>

namespace viaduct::cli {

Findings probe_everything() {
  constexpr Findings (*kProbes[])() = {
      probe_processors, probe_kernel, probe_memory, probe_limits, probe_cma, probe_io_uring,  probe_userfaultfd,
      probe_packet,     probe_tap,    probe_udp,    probe_hosts,  probe_gpu, probe_libfabric,
  };
  Findings all;
  for (const auto probe : kProbes) {
    Findings found = probe();
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace viaduct::cli
