#include "nic/dma_channel.hpp"

#include <algorithm>

namespace viaduct::nic {

void DmaChannel::enqueue_slowly(const DmaDescriptor& descriptor) {
  const std::uint32_t at = tail_ - 1;
  Slow& slow = slow_[at % kEntries];
  slow.descriptor = descriptor;
  if (descriptor.local == nullptr || (descriptor.length < kEngineFrom && descriptor.length < share_from_)) {
    slow.state.store(ordered, std::memory_order_relaxed);
  } else if (descriptor.length >= kEngineFrom) {
    std::byte* const host = memory_.at(descriptor.host, descriptor.length);
    slow.operation = direction_ == Direction::read ? copy::start(host, descriptor.local, descriptor.length)
                                                   : copy::start(descriptor.local, host, descriptor.length);
    slow.state.store(engine, std::memory_order_relaxed);
  } else {
    slow.state.store(shared, std::memory_order_release);  // R1
    shared_to_.store(tail_, std::memory_order_relaxed);
  }
}

bool DmaChannel::take(Slow& slow) {
  std::uint8_t expected = shared;
  if (slow.state.load(std::memory_order_relaxed) != shared) return false;
  if (!slow.state.compare_exchange_strong(expected, taken, std::memory_order_acquire)) return false;  // A1
  copy(slow.descriptor);
  slow.state.store(done, std::memory_order_release);  // R2
  return true;
}

void DmaChannel::settle() {
  for (; settled_ != tail_; ++settled_) {
    Slow& slow = slow_[settled_ % kEntries];
    switch (slow.state.load(std::memory_order_acquire)) {  // A2
      case done:
        break;
      case ordered:
        copy(slow.descriptor);
        slow.state.store(done, std::memory_order_relaxed);
        break;
      case shared:
        if (!take(slow)) return;
        break;
      case taken:
        return;
      case engine:
        if (!slow.operation.done()) return;
        (void)slow.operation.wait();
        slow.state.store(done, std::memory_order_relaxed);
        break;
    }
  }
  shared_from_.store(settled_, std::memory_order_relaxed);
}

bool DmaChannel::help() {
  const std::uint32_t from = shared_from_.load(std::memory_order_relaxed);
  const std::uint32_t to = shared_to_.load(std::memory_order_relaxed);
  const std::uint32_t count = std::min(to - from, kEntries);
  // From the far end: the owner works from the near one.
  for (std::uint32_t i = 0; i < count; ++i)
    if (take(slow_[(to - 1 - i) % kEntries])) return true;
  return false;
}

}  // namespace viaduct::nic
