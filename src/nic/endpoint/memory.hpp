// What an endpoint of an adapter shares with it (docs/formats/nic-serve.md): two rings each way in one sealed segment,
// with the buffers they speak of. One layout, whether the endpoint's user is in the adapter's process or in another.
//
//   free      user -> adapter   numbers of buffers that may be filled
//   returned  adapter -> user   which buffer was filled, and how far
//   send      user -> adapter   lengths of frames; the frame of index i is in send buffer i
//
// Indices run freely through 32 bits; the slot of an index is its remainder by the ring's size. The adapter trusts
// nothing that the user writes: it keeps its own indices and its own list of who has which buffer.
//
//   R1  adapter's release store of return_producer publishes a filled buffer; pairs with A1 in EndpointRings.
//   R2  user's release store of free_producer says "done reading"; pairs with A2 in Port.
//   R3  user's release store of send_producer publishes frames; pairs with A3 in Port.
//   R4  adapter's release store of send_consumer says "done reading"; pairs with A4 in EndpointRings.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/segment.hpp"
#include "nic/endpoint/wake_descriptor.hpp"

namespace viaduct::nic {

struct ReturnedPacket {
  static constexpr std::uint16_t kCongested = 1;

  std::uint32_t buffer;
  std::uint32_t length;
  std::uint16_t flags;
  std::uint16_t queue;  // whose processor moved it
  std::uint32_t reserved;
};
static_assert(sizeof(ReturnedPacket) == 16);

struct EndpointMemory {
  // Written by the adapter.
  alignas(64) std::atomic<std::uint32_t> return_producer;
  alignas(64) std::atomic<std::uint32_t> send_consumer;
  alignas(64) std::atomic<std::uint64_t> over_limit;
  std::atomic<std::uint64_t> mac_sent, mac_received, mac_transmit_drops, mac_receive_drops;  // now and then
  std::atomic<std::uint32_t> link;                                                           // nic::Link
  std::atomic<std::uint32_t> max_frame;  // as capabilities() says now
  // Written by the user.
  alignas(64) std::atomic<std::uint32_t> free_producer;
  alignas(64) std::atomic<std::uint32_t> send_producer;
  std::atomic<std::uint32_t> wants_room;  // ring when frames have been taken; cleared by whoever rings
  // Written by both: who sleeps.
  alignas(64) WakeDescriptor::Word user_word;
  alignas(64) WakeDescriptor::Word adapter_word;
};
static_assert(offsetof(EndpointMemory, send_consumer) == 64 && offsetof(EndpointMemory, over_limit) == 128);
static_assert(offsetof(EndpointMemory, free_producer) == 192 && offsetof(EndpointMemory, send_producer) == 256);
static_assert(offsetof(EndpointMemory, user_word) == 320 && offsetof(EndpointMemory, adapter_word) == 384);
static_assert(sizeof(EndpointMemory) == 448);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::uint64_t kEndpointLayout = layout_hash(
    "nic endpoint 1: return_producer send_consumer over_limit mac[4] link max_frame free_producer send_producer "
    "wants_room user_word adapter_word, returned[]{16} free[] send_length[] buffers send_buffers");

// Where things are, computed by both sides from three numbers.
struct EndpointGeometry {
  static constexpr std::uint32_t kMostBuffers = 4096;
  static constexpr std::uint32_t kMostSends = 1024;
  static constexpr std::uint32_t kLongestFrame = 70'000;

  std::uint32_t buffers = 0;
  std::uint32_t sends = 0;  // a power of two
  std::uint32_t max_frame = 0;

  bool is_possible() const {
    return buffers != 0 && buffers <= kMostBuffers && sends != 0 && sends <= kMostSends && std::has_single_bit(sends) &&
           max_frame >= 14 && max_frame <= kLongestFrame;
  }
  std::uint32_t ring() const { return std::bit_ceil(buffers); }
  // Whole lines, and never a multiple of a page: buffers in a row must not compete for the same lines of the cache.
  std::size_t stride() const {
    const std::size_t lines = (std::size_t{max_frame} + 63) & ~std::size_t{63};
    return lines % 4096 == 0 ? lines + 64 : lines;
  }
  std::size_t returned_at() const { return sizeof(EndpointMemory); }
  std::size_t free_at() const { return returned_at() + std::size_t{ring()} * sizeof(ReturnedPacket); }
  std::size_t lengths_at() const { return free_at() + std::size_t{ring()} * sizeof(std::uint32_t); }
  std::size_t buffers_at() const {
    return (lengths_at() + std::size_t{sends} * sizeof(std::uint32_t) + 63) & ~std::size_t{63};
  }
  std::size_t send_buffers_at() const { return buffers_at() + buffers * stride(); }
  std::size_t bytes() const { return send_buffers_at() + sends * stride(); }
};

// The parts of one such memory.
struct EndpointView {
  EndpointMemory* memory = nullptr;
  ReturnedPacket* returned = nullptr;
  std::atomic<std::uint32_t>* free = nullptr;
  std::atomic<std::uint32_t>* lengths = nullptr;
  std::byte* buffers = nullptr;
  std::byte* send_buffers = nullptr;
  EndpointGeometry geometry;

  EndpointView() = default;
  // There is room for geometry.bytes().
  EndpointView(std::span<std::byte> payload, const EndpointGeometry& shape)
      : memory(reinterpret_cast<EndpointMemory*>(payload.data())),
        returned(reinterpret_cast<ReturnedPacket*>(payload.data() + shape.returned_at())),
        free(reinterpret_cast<std::atomic<std::uint32_t>*>(payload.data() + shape.free_at())),
        lengths(reinterpret_cast<std::atomic<std::uint32_t>*>(payload.data() + shape.lengths_at())),
        buffers(payload.data() + shape.buffers_at()),
        send_buffers(payload.data() + shape.send_buffers_at()),
        geometry(shape) {}

  std::byte* buffer(std::uint32_t number) const { return buffers + number * geometry.stride(); }
  std::byte* send_buffer(std::uint32_t index) const {
    return send_buffers + (index & (geometry.sends - 1)) * geometry.stride();
  }
};

}  // namespace viaduct::nic
