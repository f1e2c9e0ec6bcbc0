// Sending many frames with few system calls: what every socket MAC does before its own send_batch().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "nic/mac/counts.hpp"

namespace viaduct::nic {

// Frames that are too long are taken and counted, the others go to `send_batch(frames, full)` in runs of at most
// `most`; it says how many it took, and sets `full` when it can take no more. Returns how many were taken in all.
template <class SendBatch>
std::size_t transmit_in_batches(std::span<const Frame> frames, std::uint32_t max_frame, std::size_t most,
                                MacCounts& counts, SendBatch&& send_batch) {
  std::size_t taken = 0;
  for (bool full = false; taken < frames.size() && !full;) {
    if (frames[taken].length > max_frame) {
      counts.refused(1);
      ++taken;
      continue;
    }
    std::size_t count = 0;
    while (count < most && taken + count < frames.size() && frames[taken + count].length <= max_frame) ++count;
    taken += send_batch(frames.subspan(taken, count), full);
  }
  return taken;
}

}  // namespace viaduct::nic
