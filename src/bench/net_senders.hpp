// Eight processes of one host that write into the memory of a process of another host at the same time, by VIPL.
#pragma once

#include "bench/veth_lab.hpp"

namespace viaduct::bench {

// Measurements, in Gbit/s over so many milliseconds: all eight together; eight times the slowest of them, of the same
// run; one alone.
Result<Lab> fork_senders(unsigned milliseconds);

}  // namespace viaduct::bench
