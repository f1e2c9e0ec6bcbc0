// Where datagrams are received: slots of 64 KB, each with what the kernel gathered in one (UDP_GRO): frames of one
// length in a row, the last of them possibly shorter. Belongs to the receive half.
#pragma once

#include <viaduct/nic_mac.hpp>

#include <array>
#include <memory>

namespace viaduct::nic {

class DatagramSlots {
 public:
  static constexpr std::uint32_t kSlots = 32;
  static constexpr std::uint32_t kBytes = 65536 + 64;  // never whole pages: slots must not compete for cache lines

  std::uint32_t free() const { return static_cast<std::uint32_t>(kSlots - (tail_ - head_)); }
  std::byte* free_memory(std::uint32_t ahead) { return bytes_.get() + (tail_ + ahead) % kSlots * std::size_t{kBytes}; }
  // The next free slot was filled with frames of `segment` bytes.
  void filled(std::uint32_t length, std::uint32_t segment) {
    slots_[tail_ % kSlots] = {length, segment, 0, (length + segment - 1) / segment};
    ++tail_;
  }

  bool next(Frame& frame) {
    while (at_ != tail_) {
      Slot& slot = slots_[at_ % kSlots];
      if (slot.given < slot.length) {
        const std::uint32_t length = std::min(slot.segment, slot.length - slot.given);
        frame = {bytes_.get() + at_ % kSlots * std::size_t{kBytes} + slot.given, length};
        slot.given += length;
        return true;
      }
      ++at_;
    }
    return false;
  }
  void release(std::size_t count) {
    while (head_ != tail_) {
      Slot& slot = slots_[head_ % kSlots];
      const auto now = static_cast<std::uint32_t>(std::min<std::size_t>(count, slot.unreleased));
      slot.unreleased -= now;
      count -= now;
      if (slot.unreleased != 0) break;
      if (at_ == head_) ++at_;
      ++head_;
    }
  }

 private:
  struct Slot {
    std::uint32_t length, segment, given, unreleased;
  };
  std::unique_ptr<std::byte[]> bytes_{new std::byte[std::size_t{kSlots} * kBytes]};
  std::array<Slot, kSlots> slots_{};
  std::uint64_t head_ = 0, at_ = 0, tail_ = 0;  // oldest not released, oldest not given out, first free
};

}  // namespace viaduct::nic
