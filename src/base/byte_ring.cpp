#include "base/byte_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/copy_loop.hpp"

namespace viaduct {

namespace {

// Publishing this often lets the two copies of a large message overlap; more often costs index traffic.
constexpr std::size_t kPublishEvery = 16384;

Status check_memory(std::span<std::byte> memory, std::size_t capacity) {
  if (!std::has_single_bit(capacity) || capacity < 64)
    return Error(EINVAL, fmt::format("byte ring: capacity {} is not a power of two of at least 64", capacity));
  if (memory.size() < byte_ring_bytes(capacity))
    return Error(EINVAL, fmt::format("byte ring: needs {} bytes, given {}", byte_ring_bytes(capacity), memory.size()));
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kCacheLine != 0)
    return Error(EINVAL, "byte ring: memory is not aligned to a cache line");
  return {};
}

}  // namespace

Result<ByteProducer> ByteProducer::attach(std::span<std::byte> memory, std::size_t capacity) {
  VIADUCT_CHECK(check_memory(memory, capacity));
  ByteProducer end(memory.data(), capacity);
  end.shared_->space.promise_heavy_fence();
  return end;
}

std::size_t ByteProducer::bytes_free() {
  if (corrupt_) return 0;
  const std::uint64_t head = shared_->head.load(std::memory_order_acquire);  // A2, pairs with R2
  if (head < peer_cached_ || head > mine_) return corrupt_ = true, 0;
  peer_cached_ = head;
  return capacity_ - (mine_ - head);
}

RingSpan<std::byte> ByteProducer::space() {
  return window(mine_, bytes_free());
}

void ByteProducer::publish(std::size_t size) {
  mine_ += size;
  shared_->tail.store(mine_, std::memory_order_release);  // R1
}

std::size_t ByteProducer::write(std::span<const std::byte> bytes) {
  std::size_t written = 0;
  while (written < bytes.size() && !corrupt_) {
    const std::size_t left = bytes.size() - written;
    std::size_t free = capacity_ - (mine_ - peer_cached_);
    if (free < std::min(left, kPublishEvery)) free = bytes_free();
    const std::size_t piece = std::min({left, free, kPublishEvery});
    if (piece == 0) break;
    const auto room = window(mine_, piece);
    copy_through_ring(room.first.data(), bytes.data() + written, room.first.size());
    copy_through_ring(room.second.data(), bytes.data() + written + room.first.size(), room.second.size());
    publish(piece);
    written += piece;
  }
  return written;
}

Result<ByteConsumer> ByteConsumer::attach(std::span<std::byte> memory, std::size_t capacity) {
  VIADUCT_CHECK(check_memory(memory, capacity));
  ByteConsumer end(memory.data(), capacity);
  end.shared_->data.promise_heavy_fence();
  return end;
}

std::size_t ByteConsumer::bytes_ready() {
  if (corrupt_) return 0;
  const std::uint64_t tail = shared_->tail.load(std::memory_order_acquire);  // A1, pairs with R1
  if (tail < peer_cached_ || tail - mine_ > capacity_) return corrupt_ = true, 0;
  peer_cached_ = tail;
  return tail - mine_;
}

RingSpan<const std::byte> ByteConsumer::peek() {
  const auto ready = window(mine_, bytes_ready());
  return {ready.first, ready.second};
}

void ByteConsumer::consume(std::size_t size) {
  mine_ += size;
  shared_->head.store(mine_, std::memory_order_release);  // R2
}

std::size_t ByteConsumer::read(std::span<std::byte> bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && !corrupt_) {
    std::size_t ready = peer_cached_ - mine_;
    if (ready == 0) ready = bytes_ready();
    const std::size_t piece = std::min({bytes.size() - taken, ready, kPublishEvery});
    if (piece == 0) break;
    const auto data = window(mine_, piece);
    copy_through_ring(bytes.data() + taken, data.first.data(), data.first.size());
    copy_through_ring(bytes.data() + taken + data.first.size(), data.second.data(), data.second.size());
    consume(piece);
    taken += piece;
  }
  return taken;
}

}  // namespace viaduct
