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
    if (given_ == size_) return {};
    tpacket2_hdr* const header = at_.header;
    const std::uint32_t status = std::atomic_ref(header->tp_status).load(std::memory_order_acquire);  // A1
    return (status & TP_STATUS_USER) != 0 ? Slot{header, status} : Slot{};
  }
  void give() { step(at_), ++given_; }  // it goes to the caller, who releases it
  void skip() {                         // nobody wants it
    skipped_[at_.slot] = 1;
    give();
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
  // A place that goes round, kept ready: dividing by the number of slots costs more than looking at one.
  struct Place {
    std::uint32_t slot = 0;
    std::uint32_t in_block = 0;
    tpacket2_hdr* header = nullptr;
  };
  void step(Place& place) {
    auto* next = reinterpret_cast<std::byte*>(place.header) + frame_;
    if (++place.in_block == per_block_) place.in_block = 0, next += block_ - per_block_ * frame_;
    if (++place.slot == size_) place.slot = 0, next = memory_;
    place.header = reinterpret_cast<tpacket2_hdr*>(next);
  }
  void free_one() {
    std::atomic_ref(head_.header->tp_status).store(TP_STATUS_KERNEL, std::memory_order_release);  // R1
    step(head_), --given_;
  }
  void free_skipped() {
    for (; given_ != 0 && skipped_[head_.slot] != 0; free_one()) skipped_[head_.slot] = 0;
  }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t frame_ = 0, block_ = 0, per_block_ = 1, size_ = 0;
  Place head_, at_;                    // from head_ to at_: given out or skipped, not released
  std::uint32_t given_ = 0;            // as many
  std::vector<std::uint8_t> skipped_;  // by slot
};

}  // namespace viaduct::nic
