// Frames from one thread to another: slots of one size, single producer, single consumer.
//   R1  producer's release store of tail publishes the frames; pairs with A1 in peek().
//   R2  consumer's release store of head says "done reading"; pairs with A2 in has_space().
#pragma once

#include <viaduct/nic_mac.hpp>

#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "base/copy_loop.hpp"

namespace viaduct::nic {

class FrameQueue {
 public:
  struct Slot {
    std::byte* data;
    std::uint32_t length = 0;
    std::uint64_t due_ns = 0;
  };

  FrameQueue(std::uint32_t depth, std::uint32_t max_frame)
      : slots_(std::bit_ceil(depth)), stride_(((max_frame + 63) & ~63u) + 64), bytes_(stride_ * slots_.size()) {
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].data = bytes_.data() + i * stride_;
  }

  // Producer.
  bool has_space(std::size_t count) {
    const std::size_t size = slots_.size();
    if (size - (tail_ - head_seen_) < count) head_seen_ = head_.load(std::memory_order_acquire);  // A2
    return size - (tail_ - head_seen_) >= count;
  }
  Slot& next() { return slots_[tail_ % slots_.size()]; }
  void push(const Frame& frame, std::uint64_t due_ns) {
    Slot& slot = next();
    copy_through_ring(slot.data, frame.data, frame.length);
    slot.length = frame.length;
    slot.due_ns = due_ns;
    ++tail_;
  }
  void publish() { published_.store(tail_, std::memory_order_release); }  // R1

  // Consumer. Looks at frames in order; gives them back in order.
  const Slot* peek() {
    if (at_ == tail_seen_) tail_seen_ = published_.load(std::memory_order_acquire);  // A1
    return at_ == tail_seen_ ? nullptr : &slots_[at_ % slots_.size()];
  }
  void step() { ++at_; }
  void release(std::size_t count) {
    head_.store(head_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }  // R2

 private:
  std::vector<Slot> slots_;
  const std::size_t stride_;
  std::vector<std::byte> bytes_;
  alignas(64) std::uint64_t tail_ = 0;
  std::uint64_t head_seen_ = 0;
  alignas(64) std::atomic<std::uint64_t> published_{0};
  alignas(64) std::uint64_t at_ = 0;
  std::uint64_t tail_seen_ = 0;
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

}  // namespace viaduct::nic
