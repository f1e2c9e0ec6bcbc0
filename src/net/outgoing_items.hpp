// One direction of a flow, at its sender: items that were taken and are not yet acknowledged, within the receiver's
// credit. An item is cut into fragments as frames have room, so a path whose frames become smaller needs nothing
// special.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "net/byte_ranges.hpp"
#include "net/wire.hpp"

namespace viaduct::net {

class OutgoingItems {
 public:
  OutgoingItems(std::uint32_t first, std::uint32_t slots, std::size_t largest)
      : oldest_(first), unsent_(first), next_(first), limit_(first + slots), slots_(slots), largest_(largest) {}

  bool has_credit() const { return credit() > 0; }
  // No more is kept than can be under way: a receiver that consumes must acknowledge, too.
  std::uint32_t credit() const {
    const std::uint32_t kept = next_ - oldest_;
    const std::uint32_t most = slots_ + kMostUnderWay;
    return kept >= most ? 0 : std::min(limit_ - next_, most - kept);
  }
  std::size_t largest() const { return largest_; }
  std::uint32_t next() const { return next_; }
  bool all_acknowledged() const { return oldest_ == next_; }
  std::uint64_t delivered() const { return delivered_; }  // items acknowledged with all before them, ever

  // False: the peer takes credit back, which it cannot.
  bool grant(std::uint32_t limit) {
    const std::uint32_t more = limit - limit_;
    if (more >= 0x80000000) return true;         // an older frame, overtaken
    if (limit - unsent_ > slots_) return false;  // what was consumed was sent to its end
    limit_ = limit;
    return true;
  }

  // There is credit and the pieces are not too long: copies them.
  void push(What what, std::span<const iovec> pieces) {
    if (next_ - oldest_ == ring_.size()) grow();
    Item& item = at(next_++);
    item.what = what;
    item.sent = 0;
    item.started = item.acknowledged = false;
    item.again.clear();
    item.came.clear();
    item.bytes.clear();
    for (const iovec& piece : pieces) {
      const auto* bytes = static_cast<const std::byte*>(piece.iov_base);
      item.bytes.insert(item.bytes.end(), bytes, bytes + piece.iov_len);
    }
  }

  bool wants_to_send() const { return again_ > 0 || unsent_ != next_; }

  struct Part {
    std::uint32_t sequence = 0;
    What what = What::message;
    std::uint32_t total = 0;
    std::uint32_t offset = 0;
    std::span<const std::byte> bytes;  // valid until the item is acknowledged
  };
  // The next part of at most `room` bytes; it wants to send, and room is not 0.
  Part take(std::size_t room) {
    if (again_ > 0) return take_again(room);
    Item& item = at(unsent_);
    const std::size_t size = std::min(room, item.bytes.size() - item.sent);
    const Part part = part_of(unsent_, static_cast<std::uint32_t>(item.sent), size);
    item.sent += size;
    item.started = true;
    if (item.sent == item.bytes.size()) ++unsent_;
    return part;
  }

  // A part that was sent has come, or has not. Parts of items that are done are nothing new.
  void acknowledged(std::uint32_t sequence, std::uint32_t offset, std::uint32_t size) {
    Item* item = find(sequence);
    if (item == nullptr || item->acknowledged) return;
    if (item->bytes.size() == size) {
      item->acknowledged = true;
    } else {
      item->came.add({offset, std::uint64_t{offset} + size});
      item->acknowledged = item->came.bytes() == item->bytes.size();
    }
    if (!item->again.empty() || item->empty_again) forget_again(*item, {offset, std::uint64_t{offset} + size});
    if (item->acknowledged) give_back(*item);
    for (; oldest_ != unsent_ && at(oldest_).acknowledged; ++oldest_) ++delivered_;
  }
  void lost(std::uint32_t sequence, std::uint32_t offset, std::uint32_t size) {
    Item* item = find(sequence);
    if (item == nullptr || item->acknowledged) return;
    const bool had = !item->again.empty() || item->empty_again;
    if (item->bytes.empty()) {
      item->empty_again = true;
    } else {
      item->again.add({offset, std::uint64_t{offset} + size});
      for (const ByteRange& range : item->came.ranges()) item->again.remove(range);
    }
    if (!had && (!item->again.empty() || item->empty_again)) ++again_;
  }

  std::size_t memory() const {
    std::size_t bytes = ring_.size() * sizeof(Item);
    for (const Item& item : ring_) bytes += item.bytes.capacity();
    return bytes;
  }

 private:
  struct Item {
    What what = What::message;
    bool started = false;
    bool acknowledged = false;
    bool empty_again = false;  // an item without bytes must be sent again
    std::size_t sent = 0;      // of its bytes, for the first time
    std::vector<std::byte> bytes;
    ByteRanges again;  // bytes to be sent again
    ByteRanges came;   // bytes acknowledged, where that was not in one piece
  };
  static constexpr std::uint32_t kMostUnderWay = 8 * kNumbersTracked;  // items, in frames that are not acknowledged
  static constexpr std::size_t kKeep = 4096;                           // larger buffers are given back to the allocator

  Item& at(std::uint32_t sequence) { return ring_[sequence % ring_.size()]; }
  Item* find(std::uint32_t sequence) {
    if (sequence - oldest_ >= next_ - oldest_ || !at(sequence).started) return nullptr;
    return &at(sequence);
  }
  Part part_of(std::uint32_t sequence, std::uint32_t offset, std::size_t size) {
    const Item& item = at(sequence);
    return {sequence, item.what, static_cast<std::uint32_t>(item.bytes.size()), offset,
            std::span(item.bytes).subspan(offset, size)};
  }
  Part take_again(std::size_t room) {
    std::uint32_t sequence = oldest_;
    while (at(sequence).again.empty() && !at(sequence).empty_again) ++sequence;
    Item& item = at(sequence);
    Part part;
    if (item.empty_again) {
      item.empty_again = false;
      part = part_of(sequence, 0, 0);
    } else {
      const ByteRange range = item.again.take_front(room);
      part = part_of(sequence, static_cast<std::uint32_t>(range.begin), range.size());
    }
    if (item.again.empty()) --again_;
    return part;
  }
  void forget_again(Item& item, ByteRange came) {
    item.again.remove(came);
    if (item.acknowledged) item.empty_again = false;
    if (item.again.empty() && !item.empty_again) --again_;
  }
  static void give_back(Item& item) {
    if (item.bytes.capacity() > kKeep) std::vector<std::byte>().swap(item.bytes);
  }
  void grow() {
    std::vector<Item> larger(ring_.empty() ? 4 : ring_.size() * 2);
    for (std::uint32_t sequence = oldest_; sequence != next_; ++sequence) {
      larger[sequence % larger.size()] = std::move(at(sequence));
    }
    ring_.swap(larger);
  }

  std::uint32_t oldest_;  // not acknowledged
  std::uint32_t unsent_;  // not sent to its end for the first time
  std::uint32_t next_;
  std::uint32_t limit_;
  std::uint32_t again_ = 0;  // items of which something must be sent again
  std::uint64_t delivered_ = 0;
  std::uint32_t slots_;
  std::size_t largest_;
  std::vector<Item> ring_;
};

}  // namespace viaduct::net
