// One direction of a flow, at its receiver: a fixed number of slots into which items are put together, in whatever
// order their fragments come, and from which they are taken in the order of their sequence. A slot's memory is there
// only while it is used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "net/byte_ranges.hpp"
#include "net/wire.hpp"

namespace viaduct::net {

class IncomingItems {
 public:
  IncomingItems(std::uint32_t first, std::uint32_t slots, std::uint32_t slot_size)
      : head_(first), told_(first + slots), slots_(slots), slot_size_(slot_size) {}

  enum class Placed { fresh, had, impossible };

  Placed place(What what, std::uint32_t sequence, std::uint32_t total, std::uint32_t offset,
               std::span<const std::byte> bytes) {
    if (sequence - head_ >= told_ - head_) {
      // Behind the head: had. A sender without credit, or one that is half the circle away, is impossible.
      return head_ - sequence <= kBehind ? Placed::had : Placed::impossible;
    }
    if (total > slot_size_ || offset > total || bytes.size() > total - offset) return Placed::impossible;
    if (ended_ && sequence - head_ >= end_ - head_) return Placed::impossible;
    Slot& slot = at(sequence);
    if (!slot.used) {
      slot.used = true;
      slot.what = what;
      slot.total = total;
      slot.bytes.resize(total);
    } else if (slot.what != what || slot.total != total) {
      return Placed::impossible;
    }
    if (slot.complete) return Placed::had;
    if (bytes.size() == total) {
      slot.complete = true;
    } else {
      if (slot.came.add({offset, offset + bytes.size()}) == 0) return Placed::had;
      if (slot.came.pieces() > kMostPieces) return Placed::impossible;
      slot.complete = slot.came.bytes() == total;
    }
    if (!bytes.empty()) std::memcpy(slot.bytes.data() + offset, bytes.data(), bytes.size());
    return Placed::fresh;
  }

  // The sender will send nothing from `sequence` on.
  bool end_at(std::uint32_t sequence) {
    if (ended_) return sequence == end_;
    if (sequence - head_ > slots_) return false;
    for (std::uint32_t later = sequence; later != head_ + slots_; ++later) {
      if (find(later) != nullptr) return false;
    }
    ended_ = true;
    end_ = sequence;
    return true;
  }
  bool at_end() const { return ended_ && end_ == head_; }

  // The item that is next, or so many behind it.
  bool ready(std::uint32_t behind = 0) const {
    const Slot* slot = find(head_ + behind);
    return slot != nullptr && slot->complete;
  }
  What what(std::uint32_t behind = 0) const { return find(head_ + behind)->what; }
  std::span<const std::byte> bytes(std::uint32_t behind = 0) const { return find(head_ + behind)->bytes; }
  void consume() {
    Slot& slot = at(head_);
    slot.used = slot.complete = false;
    slot.came.clear();
    if (slot.bytes.capacity() > kKeep) std::vector<std::byte>().swap(slot.bytes);
    ++head_;
  }

  // The sender should hear of new credit: it has used half of what it was told.
  bool credit_due() const { return !ended_ && head_ + slots_ - told_ >= std::max(1U, slots_ / 2); }
  std::uint32_t tell_limit() { return told_ = head_ + slots_; }
  std::uint32_t slots() const { return slots_; }

  std::size_t memory() const {
    std::size_t bytes = ring_.size() * sizeof(Slot);
    for (const Slot& slot : ring_) bytes += slot.bytes.capacity();
    return bytes;
  }

 private:
  struct Slot {
    bool used = false;
    bool complete = false;
    What what = What::message;
    std::uint32_t total = 0;
    std::vector<std::byte> bytes;
    ByteRanges came;
  };
  static constexpr std::uint32_t kBehind = 0x40000000;
  static constexpr std::size_t kMostPieces = 1024;
  static constexpr std::size_t kKeep = 4096;

  // The ring grows to what the sender really uses; all slots fit at the end.
  Slot& at(std::uint32_t sequence) {
    while (sequence - head_ >= ring_.size()) grow();
    return ring_[sequence % ring_.size()];
  }
  const Slot* find(std::uint32_t sequence) const {
    if (sequence - head_ >= ring_.size()) return nullptr;
    const Slot& slot = ring_[sequence % ring_.size()];
    return slot.used ? &slot : nullptr;
  }
  void grow() {
    std::vector<Slot> larger(ring_.empty() ? 4 : ring_.size() * 2);
    for (std::uint32_t i = 0; i < ring_.size(); ++i) {
      larger[(head_ + i) % larger.size()] = std::move(ring_[(head_ + i) % ring_.size()]);
    }
    ring_.swap(larger);
  }

  std::uint32_t head_;
  std::uint32_t told_;
  std::uint32_t slots_;
  std::uint32_t slot_size_;
  bool ended_ = false;
  std::uint32_t end_ = 0;
  std::vector<Slot> ring_;
};

}  // namespace viaduct::net
