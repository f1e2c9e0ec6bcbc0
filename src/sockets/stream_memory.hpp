// The memory of a stream as one process sees it, and what goes in and out of it.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "sockets/stream_format.hpp"

namespace viaduct::sockets {

struct StreamMemory {
  std::byte* base = nullptr;  // the segment's payload
  int fd = -1;                // its memfd, for memory on demand
  std::size_t bulk_bytes = 0;

  StreamControl& control() const { return *reinterpret_cast<StreamControl*>(base); }
  Direction& direction(int which) const { return control().direction[which]; }
  std::byte* slots(int which) const { return base + ring_offset(which); }
  std::byte* bulk(int which) const { return base + kFirstCommitted + static_cast<std::size_t>(which) * bulk_bytes; }
};

// The slots of a direction.
class Slots {
 public:
  static constexpr std::uint32_t kUnpublished = UINT32_MAX;

  explicit Slots(std::byte* first) : first_(first) {}
  [[gnu::always_inline]] std::byte* at(std::uint8_t index) const { return first_ + index * kSlotBytes; }
  [[gnu::always_inline]] std::byte* payload(std::uint8_t index) const { return at(index) + 8; }
  [[gnu::always_inline]] std::atomic<std::uint64_t>& header(std::uint8_t index) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(at(index));
  }
  [[gnu::always_inline]] std::atomic<std::uint64_t>& trailer(std::uint8_t index) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(at(index) + kSlotBytes - 8);
  }
  [[gnu::always_inline]] SlotHeader look(std::uint8_t index) const {
    return std::bit_cast<SlotHeader>(header(index).load(std::memory_order_acquire));  // A1
  }
  [[gnu::always_inline]] static bool is_of(SlotHeader header, std::uint32_t position) {
    return header.stamp == static_cast<std::uint16_t>(position + 1);
  }
  // SlotHeader::length of the slot at that position, if it is there; or kUnpublished.
  [[gnu::always_inline]] std::uint32_t length(std::uint32_t position, std::uint8_t index) const {
    const SlotHeader found = look(index);
    return is_of(found, position) ? found.length : kUnpublished;
  }
  // Behind one that is there.
  [[gnu::always_inline]] std::uint8_t next(std::uint8_t index, std::uint32_t length) const {
    if ((length & (kWithTrailer | kInBulk)) != 0)
      return SlotTrailer(trailer(index).load(std::memory_order_relaxed)).next();
    return (length & kAround) != 0 ? next_around(index) : next_straight(index);
  }

 private:
  std::byte* first_;
};

// How much of the bulk area a sender should use. What one core has just written, another can fetch only slowly: from
// the first one's cache. Where the area is larger than that cache, a stream's bytes have left it by the time they are
// read, which is several times faster. But no more than TCP's buffers would take, if somebody made them small.
std::size_t bulk_size_for(std::size_t buffers);

// Chunks of the bulk area take whole lines.
constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

// A message as long as this is out of the near caches by itself.
constexpr std::size_t kLong = std::size_t{256} << 10;

// A cursor over the caller's buffers: what is left to send, or to fill.
class Pieces {
 public:
  Pieces(const iovec* first, std::size_t count) : at_(first), left_(count) { skip_empty(); }
  bool done() const { return left_ == 0; }
  std::byte* data() const { return static_cast<std::byte*>(at_->iov_base) + offset_; }
  std::size_t size() const { return at_->iov_len - offset_; }
  void advance(std::size_t bytes) {
    offset_ += bytes;
    skip_empty();
  }
  void skip(std::size_t bytes) {  // of as many as it takes
    while (bytes != 0) {
      const std::size_t part = std::min(bytes, size());
      advance(part);
      bytes -= part;
    }
  }
  std::size_t count() const { return left_; }
  std::size_t bytes_left() const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < left_; ++i) sum += at_[i].iov_len;
    return sum - (left_ == 0 ? 0 : offset_);
  }

 private:
  void skip_empty() {
    while (left_ != 0 && offset_ >= at_->iov_len) offset_ = 0, ++at_, --left_;
  }
  const iovec* at_;
  std::size_t left_;
  std::size_t offset_ = 0;
};

// At most a line's worth, without a call: it is in everybody's way. In pieces side by side: whoever then reads bytes of
// two pieces that overlap, a program that sends on what it has received, waits until both have reached the cache.
template <std::size_t size>
[[gnu::always_inline]] inline void copy_piece(std::byte*& to, const std::byte*& from) {
  std::memcpy(to, from, size);
  to += size;
  from += size;
}
[[gnu::always_inline]] inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8) [[likely]] {
    std::memcpy(to, from, 8);
    return;
  }
  if (bytes == kInlineBytes) {
    copy_piece<16>(to, from), copy_piece<16>(to, from), copy_piece<16>(to, from), copy_piece<8>(to, from);
    return;
  }
  for (; bytes >= 16; bytes -= 16) copy_piece<16>(to, from);
  if ((bytes & 8) != 0) copy_piece<8>(to, from);
  if ((bytes & 4) != 0) copy_piece<4>(to, from);
  if ((bytes & 2) != 0) copy_piece<2>(to, from);
  if ((bytes & 1) != 0) copy_piece<1>(to, from);
}

}  // namespace viaduct::sockets
