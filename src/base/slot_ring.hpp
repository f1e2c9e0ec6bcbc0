// SlotRing: single producer, single consumer, fixed slots in shared memory; a small message travels inside its slot.
//
// Layout (docs/formats/rings.md):
//   line 0   head      u64   slots the consumer has given back           written by the consumer
//   line 1   data      WaitWord on which the consumer sleeps
//   line 2   space     WaitWord on which the producer sleeps
//   then     slots     each: header u64 { stamp:32, tag:16, length:16 }, payload (slot_size - 8 bytes)
//
// A slot is published by its own header: the consumer watches the stamp of the slot it expects next, so a message of up
// to 56 bytes costs one cache line and there is no tail index at all. The stamp of position p is the low half of p+1,
// which never equals what the previous lap left there. The consumer gives slots back in batches.
//
// Neither side reads back anything it wrote itself, and geometry comes from the caller, not from the memory: whatever a
// hostile peer writes, accesses stay inside the ring. An impossible head or length makes the ring `corrupt`, for good.
//
// Ordering edges:
//   R1  producer's release store of a slot header publishes the payload; pairs with A1, the consumer's acquire load.
//   R2  consumer's release store of head says "done reading"; pairs with A2, the producer's acquire load.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/result.hpp"
#include "base/wait_word.hpp"

namespace viaduct {

enum class RingState {
  ok,
  empty,
  full,
  corrupt,  // the peer wrote something impossible; the ring is never used again
};

struct SlotRingShared {
  alignas(kCacheLine) std::atomic<std::uint64_t> head;
  WaitWord data;
  WaitWord space;
};
static_assert(sizeof(SlotRingShared) == 3 * kCacheLine);

struct SlotRingGeometry {
  std::uint32_t slot_size = 64;    // power of two, 64..32768
  std::uint32_t slot_count = 256;  // power of two, 2..2^30

  Status check() const;
  std::size_t bytes() const { return sizeof(SlotRingShared) + std::size_t{slot_size} * slot_count; }
  std::uint32_t payload() const { return slot_size - 8; }
};

namespace detail {

struct SlotHeader {
  std::uint32_t stamp;
  std::uint16_t tag;
  std::uint16_t length;
};
static_assert(sizeof(SlotHeader) == 8);

// The state both ends share: private copies of the geometry, pointers into the mapping.
class SlotRingEnd {
 public:
  SlotRingShared& shared() const { return *shared_; }
  const SlotRingGeometry& geometry() const { return geometry_; }
  bool corrupt() const { return corrupt_; }

 protected:
  SlotRingEnd(std::byte* memory, SlotRingGeometry geometry)
      : shared_(reinterpret_cast<SlotRingShared*>(memory)),
        slots_(memory + sizeof(SlotRingShared)),
        geometry_(geometry),
        mask_(geometry.slot_count - 1) {}

  std::byte* slot(std::uint64_t position) const { return slots_ + (position & mask_) * geometry_.slot_size; }
  static std::uint32_t stamp(std::uint64_t position) { return static_cast<std::uint32_t>(position + 1); }
  static std::atomic<std::uint64_t>& header(std::byte* slot) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(slot);
  }

  SlotRingShared* shared_;
  std::byte* slots_;
  SlotRingGeometry geometry_;
  std::uint64_t mask_;
  bool corrupt_ = false;
};

}  // namespace detail

class SlotProducer : public detail::SlotRingEnd {
 public:
  // `memory` must be zero-filled (a new segment is) and hold geometry.bytes() at 64-byte alignment.
  static Result<SlotProducer> attach(std::span<std::byte> memory, SlotRingGeometry geometry);

  // Writes the message into the next slot and publishes it. Does not wake: call shared().data.wake_if_armed() when done
  // with a burst. A payload longer than geometry().payload() is misuse.
  RingState try_push(std::uint16_t tag, std::span<const std::byte> payload) {
    std::byte* slot = nullptr;
    if (const RingState state = try_claim(slot); state != RingState::ok) return state;
    if (!payload.empty()) std::memcpy(slot, payload.data(), payload.size());
    publish(tag, static_cast<std::uint16_t>(payload.size()));
    return RingState::ok;
  }

  // The same in two steps, to build the message in place: `payload` has geometry().payload() bytes.
  RingState try_claim(std::byte*& payload) {
    if (position_ - cached_head_ > mask_) [[unlikely]] {
      if (!refresh_head()) return RingState::corrupt;
      if (position_ - cached_head_ > mask_) return RingState::full;
    }
    payload = slot(position_) + 8;
    return RingState::ok;
  }
  void publish(std::uint16_t tag, std::uint16_t length) {
    const auto word = std::bit_cast<std::uint64_t>(detail::SlotHeader{stamp(position_), tag, length});
    header(slot(position_)).store(word, std::memory_order_release);  // R1
    ++position_;
  }

  // Positions used and given back so far: what a user keeps beside the slots is free up to there.
  std::uint64_t position() const { return position_; }
  std::uint64_t given_back() {
    (void)refresh_head();
    return cached_head_;
  }

  bool has_space() {
    return position_ - cached_head_ <= mask_ || (refresh_head() && position_ - cached_head_ <= mask_);
  }

 private:
  using SlotRingEnd::SlotRingEnd;

  bool refresh_head() {
    if (corrupt_) return false;
    const std::uint64_t head = shared_->head.load(std::memory_order_acquire);  // A2, pairs with R2
    if (head < cached_head_ || head > position_) return corrupt_ = true, false;
    cached_head_ = head;
    return true;
  }

  std::uint64_t position_ = 0;
  std::uint64_t cached_head_ = 0;
};

class SlotConsumer : public detail::SlotRingEnd {
 public:
  static Result<SlotConsumer> attach(std::span<std::byte> memory, SlotRingGeometry geometry);

  // A message in place: valid until release(). The peer may still change it: read each byte once.
  struct Message {
    std::uint16_t tag = 0;
    std::span<const std::byte> payload;
  };

  RingState try_peek(Message& message) {
    std::byte* at = slot(position_);
    const std::uint64_t word = header(at).load(std::memory_order_acquire);  // A1, pairs with R1
    const auto header = std::bit_cast<detail::SlotHeader>(word);
    if (corrupt_ || header.stamp != stamp(position_)) return nothing_there(header.stamp);
    if (header.length > geometry_.payload()) return corrupt_ = true, RingState::corrupt;
    message = {header.tag, {at + 8, header.length}};
    return RingState::ok;
  }

  // Gives the slot of the last try_peek back. True: the producer may be waiting for space and must be woken now
  // (shared().space.wake_if_armed()).
  bool release() {
    ++position_;
    if (position_ - published_ < batch_) return false;
    publish_head();
    return true;
  }

  // Gives back everything at once: before sleeping, so that a producer never waits for slots that are free.
  void publish_head() {
    if (position_ == published_) return;
    shared_->head.store(position_, std::memory_order_release);  // R2
    published_ = position_;
  }

  bool has_data() {
    Message message;
    return try_peek(message) != RingState::empty;
  }

 private:
  SlotConsumer(std::byte* memory, SlotRingGeometry geometry)
      : SlotRingEnd(memory, geometry), batch_(geometry.slot_count >= 8 ? geometry.slot_count / 4 : 1) {}

  // A slot that is not ours yet holds the stamp of the previous lap, or nothing at all in the first.
  RingState nothing_there(std::uint32_t found) {
    const std::uint32_t last_lap = position_ < geometry_.slot_count ? 0 : stamp(position_ - geometry_.slot_count);
    if (corrupt_ || found != last_lap) return corrupt_ = true, RingState::corrupt;
    return RingState::empty;
  }

  std::uint64_t position_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t batch_;
};

}  // namespace viaduct
