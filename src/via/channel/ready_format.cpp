#include "via/channel/ready_format.hpp"

namespace viaduct::via {

Result<HintQueue> hints_of(const Segment& segment, std::uint32_t capacity) {
  return HintQueue::attach(segment.payload().subspan(sizeof(ReadyQueueHeader)), capacity);
}

Result<HintQueue> peer_hints_of(const Segment& segment) {
  if (segment.payload().size() < sizeof(ReadyQueueHeader))
    return Error(EPROTO, "ready queue: the segment is too small");
  const auto* const capacity = &segment.as<ReadyQueueHeader>()->capacity;
  return hints_of(segment, *const_cast<const volatile std::uint32_t*>(capacity));
}

}  // namespace viaduct::via
