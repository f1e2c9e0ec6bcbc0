// ByteRing: a single-producer, single-consumer stream of bytes in shared memory.
//
// Layout (docs/formats/rings.md):
//   line 0   tail      u64   bytes ever written     written by the producer
//   line 1   head      u64   bytes ever read        written by the consumer
//   line 2   data      WaitWord on which the consumer sleeps
//   line 3   space     WaitWord on which the producer sleeps
//   4096     bytes     capacity bytes, a power of two
//
// The data starts on a page of its own: a small header in front of it would put source and destination of most copies a
// few bytes apart modulo 4096, where several processors copy an order of magnitude slower.
//
// Indices only grow. Each side keeps its own index privately and checks the peer's: never behind what was seen before,
// never more than a capacity ahead. Anything else makes the ring `corrupt`, for good.
//
// Ordering edges:
//   R1  producer's release store of tail publishes bytes; pairs with A1, the consumer's acquire load.
//   R2  consumer's release store of head gives space back; pairs with A2, the producer's acquire load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "base/slot_ring.hpp"
#include "base/wait_word.hpp"

namespace viaduct {

struct ByteRingShared {
  alignas(kCacheLine) std::atomic<std::uint64_t> tail;
  alignas(kCacheLine) std::atomic<std::uint64_t> head;
  WaitWord data;
  WaitWord space;
};
static_assert(sizeof(ByteRingShared) == 4 * kCacheLine);

constexpr std::size_t kByteRingDataOffset = 4096;

constexpr std::size_t byte_ring_bytes(std::size_t capacity) {
  return kByteRingDataOffset + capacity;
}

// A run of ring bytes: two pieces where it wraps, the second empty where it does not.
template <class Byte>
struct RingSpan {
  std::span<Byte> first;
  std::span<Byte> second;
  std::size_t size() const { return first.size() + second.size(); }
};

namespace detail {

class ByteRingEnd {
 public:
  ByteRingShared& shared() const { return *shared_; }
  std::size_t capacity() const { return capacity_; }
  bool corrupt() const { return corrupt_; }

 protected:
  ByteRingEnd(std::byte* memory, std::size_t capacity)
      : shared_(reinterpret_cast<ByteRingShared*>(memory)), bytes_(memory + kByteRingDataOffset), capacity_(capacity) {}

  RingSpan<std::byte> window(std::uint64_t from, std::size_t size) const {
    const std::size_t offset = from & (capacity_ - 1);
    const std::size_t until_wrap = capacity_ - offset;
    if (size <= until_wrap) return {{bytes_ + offset, size}, {}};
    return {{bytes_ + offset, until_wrap}, {bytes_, size - until_wrap}};
  }

  ByteRingShared* shared_;
  std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t mine_ = 0;         // own index
  std::uint64_t peer_cached_ = 0;  // the peer's index when last looked at
  bool corrupt_ = false;
};

}  // namespace detail

class ByteProducer : public detail::ByteRingEnd {
 public:
  // `memory` must be zero-filled, page-aligned and hold byte_ring_bytes(capacity).
  static Result<ByteProducer> attach(std::span<std::byte> memory, std::size_t capacity);

  // Copies as much as fits, publishing piece by piece so that the consumer works alongside. Returns the bytes taken; 0
  // when full or corrupt. Does not wake: call shared().data.wake_if_armed() afterwards.
  std::size_t write(std::span<const std::byte> bytes);

  // Zero copy: the free space, to be filled by the caller and published in order.
  RingSpan<std::byte> space();
  void publish(std::size_t size);

  std::size_t bytes_free();

 private:
  using ByteRingEnd::ByteRingEnd;
};

class ByteConsumer : public detail::ByteRingEnd {
 public:
  static Result<ByteConsumer> attach(std::span<std::byte> memory, std::size_t capacity);

  // Copies what is there, up to bytes.size(); 0 when empty or corrupt. Wakes nobody: call
  // shared().space.wake_if_armed() afterwards.
  std::size_t read(std::span<std::byte> bytes);

  // Zero copy: what is there now. The peer may still change it: read each byte once.
  RingSpan<const std::byte> peek();
  void consume(std::size_t size);

  std::size_t bytes_ready();

 private:
  using ByteRingEnd::ByteRingEnd;
};

}  // namespace viaduct
