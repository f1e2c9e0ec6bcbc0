// What copying costs on this machine: measured once, when asked for, in a few milliseconds.
#pragma once

#include <cstddef>

#include "copy/channel.hpp"

namespace viaduct::copy {

struct CostModel {
  Cost keep;                    // by the caller, through the cache, data in the cache
  Cost stream;                  // by the caller, past the cache
  std::size_t stream_from = 0;  // from this size on copies stream by themselves: it wins even where the same buffers
                                // are used again
  static constexpr double kWakeNs = 40'000;     // to one that is parked: the time until it runs
  static constexpr double kWakeCallNs = 3'000;  // what waking it costs the caller

  static CostModel common();  // what a common machine has, for as long as nothing is measured
  static const CostModel& machine();
  static bool measured();  // has machine() been asked?
  static CostModel measure();
};

}  // namespace viaduct::copy
