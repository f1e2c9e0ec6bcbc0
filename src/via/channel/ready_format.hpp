// The memory of a ready queue: a header and a hint queue. Its owner makes it; the peers of channels in the queue map
// it, and take its capacity as hostile.
#pragma once

#include <cstdint>

#include "base/hint_queue.hpp"
#include "base/result.hpp"
#include "base/segment.hpp"

namespace viaduct::via {

constexpr std::uint64_t kReadyQueueLayout = layout_hash("ready queue 1: capacity u32 line, hint queue");

struct alignas(kCacheLine) ReadyQueueHeader {
  std::uint32_t capacity;  // written by the owner before it is shared
};
static_assert(sizeof(ReadyQueueHeader) == kCacheLine);

Result<HintQueue> hints_of(const Segment& segment, std::uint32_t capacity);
// The peer's: its number is copied once, then checked against the size.
Result<HintQueue> peer_hints_of(const Segment& segment);

}  // namespace viaduct::via
