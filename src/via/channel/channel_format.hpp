// The memory of a channel (docs/formats/channel.md).
//
//   page 0     ChannelControl
//   then       direction 0 (opener to joiner), direction 1 (joiner to opener), each:
//                slot ring   SlotRingShared and slots of 64 bytes
//                bulk        bulk_bytes, page-aligned: messages that do not fit a slot
//
// A slot's tag says what it is (SlotKind), its payload begins with a FragmentHeader. Up to kInlineBytes follow right
// there; longer fragments lie in the bulk area, contiguous, at `position` modulo its size, beginning on a cache line.
// Bulk space is given back with the slots that named it: there is no index of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/segment.hpp"
#include "base/slot_ring.hpp"

namespace viaduct::via {

constexpr std::uint64_t kChannelLayout = layout_hash(
    "channel 2: control{slots u32,bulk u64}, 2 x side{finished u32,closed u32,place u64}, 2 x words 64, "
    "2 x (slot ring 64, bulk)");

enum SlotKind : std::uint16_t {
  kInline = 0,
  kBulk = 1,
  kMore = 0x8000,
};

struct FragmentHeader {
  std::uint32_t immediate;
  std::uint32_t length;    // of a bulk fragment
  std::uint64_t position;  // of a bulk fragment
};
constexpr std::size_t kInlineOffset = 4;  // an inline fragment follows the immediate data
constexpr std::size_t kInlineBytes = 56 - kInlineOffset;

// Each written by its own side.
struct alignas(kCacheLine) SideStatus {
  std::atomic<std::uint32_t> finished;  // sends no more; what it has sent is in the ring
  std::atomic<std::uint32_t> closed;    // has gone, in good order
  std::atomic<std::uint64_t> place;     // where it wants hints, a QueuePlace; 0: nowhere, ring the doorbell
};
static_assert(sizeof(SideStatus) == kCacheLine);

struct ChannelControl {
  // Written by the opener before the segment is shared; read once by the joiner.
  alignas(kCacheLine) std::uint32_t slots;
  std::uint32_t unused;
  std::uint64_t bulk_bytes;
  SideStatus side[2];                                  // 0: opener
  alignas(kCacheLine) std::byte words[2][kCacheLine];  // of whoever talks over the channel, by side
};
static_assert(sizeof(ChannelControl) == 5 * kCacheLine);

// A channel may move from one ready queue to another: its place names the queue by counting those announced so far.
struct QueuePlace {
  std::uint32_t queue;   // the how manieth announced over the socket, from 1
  std::uint32_t number;  // within it, plus one

  std::uint64_t word() const { return std::uint64_t{queue} << 32 | number; }
  static QueuePlace of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
};

struct ChannelGeometry {
  std::uint32_t slots;
  std::size_t bulk_bytes;

  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  SlotRingGeometry ring() const { return {64, slots}; }
  std::size_t ring_bytes() const { return pages(ring().bytes()); }
  std::size_t ring_offset(int direction) const {
    return kPage + static_cast<std::size_t>(direction) * (ring_bytes() + bulk_bytes);
  }
  std::size_t bulk_offset(int direction) const { return ring_offset(direction) + ring_bytes(); }
  std::size_t bytes() const { return ring_offset(2); }
  std::size_t largest_fragment() const { return bulk_bytes / 8 < 32768 ? bulk_bytes / 8 : 32768; }

  Status check() const;
};

}  // namespace viaduct::via
