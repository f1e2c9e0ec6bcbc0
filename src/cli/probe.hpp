// Probes: each looks at one family of things the machine may offer, by trying it, and says what it found.
//
// A probe never fails, crashes or hangs the command, and leaves nothing behind: what could do any of these is tried in
// a child process (child_process.hpp) with a time limit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace viaduct::cli {

enum class State { yes, partly, no };

constexpr std::string_view word_for(State state) {
  return state == State::yes ? "yes" : state == State::partly ? "partly" : "no";
}

struct Finding {
  std::string name;
  State state;
  std::string detail;     // what is there
  std::string why = "";   // it is not, or not wholly
  std::string next = "";  // what to do to have it
};

using Findings = std::vector<Finding>;

Findings probe_processors();   // processors, caches, numa
Findings probe_kernel();       // kernel, membarrier, memfd-seals
Findings probe_memory();       // memory, the huge page sizes, transparent huge pages
Findings probe_limits();       // locked-memory, open-files
Findings probe_cma();          // process-vm-readv
Findings probe_io_uring();     // io-uring
Findings probe_userfaultfd();  // userfaultfd
Findings probe_packet();       // packet-socket, xdp-socket
Findings probe_tap();          // tap
Findings probe_udp();          // udp-gso, udp-gro
Findings probe_hosts();        // hosts-udp, hosts-packet
Findings probe_gpu();          // gpu-copy
Findings probe_libfabric();    // libfabric

// All of them, in this order.
Findings probe_everything();

}  // namespace viaduct::cli
