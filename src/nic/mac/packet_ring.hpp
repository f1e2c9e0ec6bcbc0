// The receive ring that a packet socket shares with the kernel (TPACKET_V2): slots that go round, each with a header
// whose status word says whose it is.
//
// Ordering: the kernel's store of TP_STATUS_USER publishes the slot; pairs with A1 in next(). R1: the store of
// TP_STATUS_KERNEL in release() says "done reading"; pairs with the kernel's look at the word before it fills the slot.
#pragma once

#include <linux/if_packet.h>
#include <viaduct/nic_mac.hpp>

#include <atomic>
#include <vector>

#include "base/result.hpp"

namespace viaduct::nic {

class PacketRing {
 public:
  struct Slot {
    tpacket2_hdr* header = nullptr;
    std::uint32_t status = 0;
  };

  PacketRing() = default;
  PacketRing(PacketRing&& other) noexcept;
  PacketRing& operator=(PacketRing&& other) = delete;
  ~PacketRing();

  // `socket` has version and header options set. Slots hold frames of max_frame bytes.
  static Result<PacketRing> map(int socket, std::uint32_t max_frame, std::uint32_t frames);

  // The next slot that the kernel has filled; header null: there is none.
  Slot next() {
    if (at_ - head_ == size_) return {};
    tpacket2_hdr* const header = slot(at_);
    const std::uint32_t status = std::atomic_ref(header->tp_status).load(std::memory_order_acquire);  // A1
    return (status & TP_STATUS_USER) != 0 ? Slot{header, status} : Slot{};
  }
  void give() { ++at_; }  // it goes to the caller, who releases it
  void skip() {           // nobody wants it
    skipped_[at_ % size_] = 1;
    ++at_;
    free_skipped();
  }
  void release(std::size_t count) {
    for (; count != 0; --count) {
      free_skipped();
      free_one();
    }
    free_skipped();
  }

 private:
  tpacket2_hdr* slot(std::uint64_t index) {
    const std::uint64_t place = index % size_;
    return reinterpret_cast<tpacket2_hdr*>(memory_ + place / per_block_ * block_ + place % per_block_ * frame_);
  }
  void free_one() {
    std::atomic_ref(slot(head_)->tp_status).store(TP_STATUS_KERNEL, std::memory_order_release);  // R1
    ++head_;
  }
  void free_skipped() {
    for (; head_ != at_ && skipped_[head_ % size_] != 0; free_one()) skipped_[head_ % size_] = 0;
  }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t frame_ = 0, block_ = 0, per_block_ = 1, size_ = 0;
  std::uint64_t head_ = 0, at_ = 0;    // from head_ to at_: given out or skipped, not released
  std::vector<std::uint8_t> skipped_;  // by slot
};

}  // namespace viaduct::nic
