// A processor of the adapter, as its own thread (or the caller's) sees it. Private to that thread.
#pragma once

#include <cstdint>

#include "nic/statistics.hpp"

namespace viaduct::nic {

using Events = std::uint32_t;  // a set, one bit each
constexpr Events bit(Event event) {
  return Events{1} << static_cast<unsigned>(event);
}
constexpr Events kAllEvents = (Events{1} << kEvents) - 1;

struct Processor {
  unsigned id = 0;
  Events mine = kAllEvents;      // events it handles
  Events raised = 0;             // its event register, as far as it wrote it itself
  unsigned position = 0;         // in the round: events before it have had their turn
  std::uint32_t rounds = 0;      // turns of the dispatch loop
  bool hurried = false;          // this round looks at mailboxes only (live_hardware.hpp: prompt)
  bool may_go_back = false;      // in this round, to DMA Read Complete
  std::uint64_t started_ns = 0;  // of the handler that runs, where time is measured
  ProcessorStatistics* statistics = nullptr;
};

}  // namespace viaduct::nic
