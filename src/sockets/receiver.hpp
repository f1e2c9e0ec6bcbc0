// Takes bytes out of the ring of a direction. Does not wait, and does not know the socket. Callers hold the half's lock
// (StreamLock), but for looks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "sockets/order.hpp"
#include "sockets/stream_memory.hpp"

namespace viaduct::sockets {

// The slot a receiver looked at last, and what it held then. To take that needs no further look, which would fetch the
// line away from a sender that is still filling it. Of one process; read without the lock, hence atomic.
class SlotSeen {
 public:
  void forget() { word_.store(0, std::memory_order_relaxed); }
  void set(std::uint32_t position, std::uint32_t length) {
    word_.store(std::uint64_t{position} << kLengthBits | length, std::memory_order_relaxed);
  }
  std::uint32_t length(std::uint32_t position) const {  // 0: another one was seen
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return word >> kLengthBits == position ? word & ((1U << kLengthBits) - 1) : 0;
  }

 private:
  static constexpr int kLengthBits = 8;
  std::atomic<std::uint64_t> word_{0};  // both at once: a signal handler may receive too
};

class Receiver {
 public:
  Receiver(const StreamMemory& memory, int direction)
      : direction_(memory.direction(direction)),
        back_(memory.direction(1 - direction)),
        slots_(memory.slots(direction)),
        bulk_(memory.bulk(direction)),
        bulk_bytes_(memory.bulk_bytes) {}
  // For small messages only. `back`: the other direction.
  Receiver(Direction& direction, Direction& back, std::byte* slots)
      : direction_(direction), back_(back), slots_(slots), bulk_(nullptr), bulk_bytes_(0) {}

  enum class Take { consume, peek, discard };
  // Fills `pieces` with what is there. 0: nothing, or `broken()`.
  std::size_t read(Pieces& pieces, Take take);
  // The same where one line is all that is wanted or there, or two; 0: use read(). `seen` is brought up to date.
  struct Taken {
    std::size_t bytes = 0;
    std::uint32_t slots = 0;  // given back
  };
  Taken read_small(void* bytes, std::size_t size, SlotSeen& seen);
  // The same as read(), and how many slots that gave back.
  Taken read_all(Pieces& pieces) {
    const std::uint32_t before = head().position();
    const std::size_t bytes = read(pieces, Take::consume);
    return {bytes, head().position() - before};
  }
  // Whether the last look found as much.
  [[gnu::always_inline]] bool has_seen(std::size_t size, const SlotSeen& seen) const {
    const Spot at = head();
    return size <= kInlineBytes && at.taken() + size <= seen.length(at.position());
  }
  // And takes it; 0: it did not.
  [[gnu::always_inline]] std::size_t read_seen(void* bytes, std::size_t size, const SlotSeen& seen) {
    if (!has_seen(size, seen)) return 0;
    const Spot at = head();
    const std::uint32_t taken = at.taken() & kInlineMask;
    copy_small(static_cast<std::byte*>(bytes), slots_.payload(at.index()) + taken, size);
    set_head(at.with(taken + size));
    return size;
  }
  bool has_data() const {
    const Spot at = head();
    const std::uint32_t there = slots_.length(at.position(), at.index());
    if (there == Slots::kUnpublished) return broken_;
    return bytes_of(there) > at.taken() || slots_.length(at.position() + 1, at.neighbour()) != Slots::kUnpublished ||
           broken_;
  }
  // The sender has gone on to the next slot: the one at head can be read without disturbing it.
  [[gnu::always_inline]] bool is_behind() const {
    const Spot at = head();
    return slots_.length(at.position() + 1, at.neighbour()) != Slots::kUnpublished;
  }
  // The same by more slots.
  bool is_behind_by(std::uint32_t slots) const;
  std::size_t bytes_ready();
  bool broken() const { return broken_; }
  // Whoever held the lock died, or jumped away: the chunk that it had taken is given back.
  [[gnu::cold, gnu::noinline]] void recover();
  // How far the sender has come, for those who report only what is new: grows with every byte. `from`: what it was.
  std::uint64_t frontier(std::uint64_t from) const;
  // After giving room back: how senders that wait for so much are to be woken, RoomSleep bits.
  std::uint32_t senders_to_wake(bool ring_is_empty) {
    if (direction_.room.armed.load(std::memory_order_relaxed) == 0) [[likely]]
      return 0;
    return senders_waiting_for_this(ring_is_empty);
  }

 private:
  [[gnu::always_inline]] Spot head() const { return Spot(direction_.receiving.head.load(std::memory_order_relaxed)); }
  // Gives back all before it, and notes what was taken of it: before the chunk it may have is given back.
  [[gnu::always_inline]] void set_head(Spot at) {
    direction_.receiving.head.store(at.word(), std::memory_order_release);  // R2
  }
  [[gnu::always_inline]] static std::uint32_t bytes_of(std::uint32_t length) {
    return length & ((length & kInBulk) != 0 ? ~std::uint32_t{kInBulk} : kInlineMask);
  }
  // The one behind `at`, which is there, and of which this is the length.
  [[gnu::always_inline]] Spot behind(Spot at, std::uint32_t length_there) const {
    return {at.position() + 1, at.neighbour(), slots_.next(at.neighbour(), length_there)};
  }
  // What a slot says of the other direction: so far it was read, which is what our sender wants to know. An older one
  // says less, and one that says too much is found out when room is needed.
  [[gnu::always_inline]] void heed(SlotTrailer trailer) {
    back_.sending.seen_head.store(trailer.read(), std::memory_order_relaxed);
  }
  Spot go_on(Spot from, std::uint32_t said);
  Taken read_two(Spot at, std::byte* to, std::size_t size);
  Taken read_from_start(Spot at, std::uint32_t here, std::byte* to, std::size_t size, SlotSeen& seen);
  Taken read_across(Spot at, std::uint32_t here, std::uint32_t taken, std::uint32_t next, std::byte* to,
                    std::size_t size, std::uint32_t given_back);
  struct Look {
    const std::byte* data;
    std::uint32_t length;
    std::uint64_t bulk_end;  // 0: not in the bulk area
    bool in_memory;          // BulkPlace::in_memory
  };
  bool look(Spot at, Look& look);
  std::uint32_t senders_waiting_for_this(bool ring_is_empty);

  Direction& direction_;
  Direction& back_;
  Slots slots_;
  std::byte* bulk_;
  std::size_t bulk_bytes_;
  bool broken_ = false;
};

// A slot that was taken whole is given back once there is a next. Which is looked at first: with a next, a slot has
// grown all it will.
[[gnu::always_inline]] inline Receiver::Taken Receiver::read_small(void* bytes, std::size_t size, SlotSeen& seen) {
  auto* const to = static_cast<std::byte*>(bytes);
  const Spot at = head();
  const std::uint32_t taken = at.taken();
  const std::uint32_t next = slots_.length(at.position() + 1, at.neighbour());
  const std::uint32_t here = slots_.length(at.position(), at.index());
  if (here >= kInlineLimit) return {};
  if ((here & kInlineMask) == taken) {
    if (next == (kInlineBytes | kAround) && size > kInlineBytes)
      if (const Taken two = read_two(at, to, size); two.bytes != 0) return two;
    if (next >= kInlineLimit) return {};
    return read_from_start(go_on(at, next), next, to, size, seen);
  }
  const std::size_t length = here & kInlineMask;
  if (length > kInlineBytes || length <= taken) return {};
  if (size > length - taken) {
    if (next != Slots::kUnpublished) return read_across(at, here, taken, next, to, size, 0);
    size = length - taken;
  } else if (size < length - taken) {
    seen.set(at.position(), static_cast<std::uint32_t>(length));
  }
  copy_small(to, slots_.payload(at.index()) + taken, size);
  set_head(at.with(taken + size));
  return {size, 0};
}

// Of the two slots behind `at`, among the few, of which the first is full; 0: where that is not all of a message.
[[gnu::always_inline]] inline Receiver::Taken Receiver::read_two(Spot at, std::byte* to, std::size_t size) {
  const std::uint8_t first = at.neighbour(), second = next_around(first);
  const std::uint32_t rest = slots_.length(at.position() + 2, second) - kWithTrailer;
  if (rest - 1 >= kBesideTrailer || rest > size - kInlineBytes) return {};
  const SlotTrailer trailer(slots_.trailer(second).load(std::memory_order_relaxed));
  if (rest != size - kInlineBytes && slots_.length(at.position() + 3, trailer.next()) != Slots::kUnpublished) return {};
  copy_small(to, slots_.payload(first), kInlineBytes);
  copy_small(to + kInlineBytes, slots_.payload(second), rest);
  heed(trailer);
  set_head(Spot(at.position() + 2, second, trailer.next()).with(rest));
  return {kInlineBytes + rest, 2};
}

// Behind `from`, where a slot with its bytes in it is; its trailer is heeded.
[[gnu::always_inline]] inline Spot Receiver::go_on(Spot from, std::uint32_t said) {
  const std::uint8_t index = from.neighbour();
  if ((said & kWithTrailer) == 0)
    return {from.position() + 1, index, (said & kAround) != 0 ? next_around(index) : next_straight(index)};
  const SlotTrailer trailer(slots_.trailer(index).load(std::memory_order_relaxed));
  heed(trailer);
  return {from.position() + 1, index, trailer.next()};
}

// Of a slot of which nothing was taken yet.
[[gnu::always_inline]] inline Receiver::Taken Receiver::read_from_start(Spot at, std::uint32_t here, std::byte* to,
                                                                        std::size_t size, SlotSeen& seen) {
  const std::size_t length = here & kInlineMask;
  if (length > kInlineBytes) return {};
  if (size > length) {
    const std::uint32_t next = slots_.length(at.position() + 1, at.neighbour());
    if (next != Slots::kUnpublished) return read_across(at, here, 0, next, to, size, 1);
    size = length;
  } else if (size < length) {
    seen.set(at.position(), static_cast<std::uint32_t>(length));
  }
  copy_small(to, slots_.payload(at.index()), size);
  set_head(at.with(size));
  return {size, 1};
}

// All that is left of a slot, and of the next as much as is wanted; but not where there is still more to take at once.
[[gnu::always_inline]] inline Receiver::Taken Receiver::read_across(Spot at, std::uint32_t here, std::uint32_t taken,
                                                                    std::uint32_t next, std::byte* to, std::size_t size,
                                                                    std::uint32_t given_back) {
  if ((here & kInlineMask) != kInlineBytes) here = slots_.length(at.position(), at.index());  // it may have grown
  const std::size_t part = (here & kInlineMask) - taken, second = next & kInlineMask;
  if (here >= kInlineLimit || next >= kInlineLimit || part > kInlineBytes || second > kInlineBytes || size <= part)
    return {};
  const Spot then = go_on(at, next);
  std::size_t rest = size - part;
  if (rest > second) {
    if (slots_.length(then.position() + 1, then.neighbour()) != Slots::kUnpublished) return {};
    rest = second;
  }
  copy_small(to, slots_.payload(at.index()) + taken, part);
  copy_small(to + part, slots_.payload(then.index()), rest);
  set_head(then.with(rest));
  return {part + rest, given_back + 1};
}

// A ring that had nothing: for as long as these words stay as they were, it has nothing, whoever else reads. Bytes come
// into the slot at head or the one behind it, and what a header says once it never says again. Made before the look
// that found the ring empty, so that whatever comes later shows; good only if that look was at the same two slots.
class Stillness {
 public:
  // Where the first byte lies that was not taken yet, and when it was sent; if there is none, of whatever was last
  // there.
  struct FirstUnread {
    std::uint32_t position = 0;
    std::uint32_t taken = 0;  // bytes of that slot
    SentMark mark{};
  };

  Stillness() = default;
  Stillness(const StreamMemory& memory, int direction)
      : Stillness(memory.direction(direction).receiving, memory.slots(direction)) {}
  [[gnu::always_inline]] Stillness(const ReceiveState& state, std::byte* slots)
      : head_(state.head.load(std::memory_order_acquire)) {
    header_[0] = &Slots(slots).header(head_.index());
    header_[1] = &Slots(slots).header(head_.neighbour());
    look_again();
  }
  // At the same two slots.
  [[gnu::always_inline]] void look_again() {
    for (int i = 0; i < 2; ++i) seen_[i] = header_[i]->load(std::memory_order_acquire);  // A1
  }
  // What the words say of the ring: as Receiver::has_data(), without another look.
  [[gnu::always_inline]] bool has_data() const { return is_there(0) && (length(0) > head_.taken() || is_there(1)); }
  [[gnu::always_inline]] FirstUnread first_unread() const {
    const std::uint32_t taken = head_.taken();
    const bool next = length(0) == taken && is_there(1);
    return {head_.position() + (next ? 1 : 0), next ? 0 : taken, SentMark(slot(next ? 1 : 0).sent)};
  }
  // After the look: nobody has read on to another slot meanwhile.
  bool is_of_head(const StreamMemory& memory, int direction) const {
    return Spot(memory.direction(direction).receiving.head.load(std::memory_order_acquire)).is_slot_of(head_);
  }
  // What holds() will look at.
  void prefetch() const {
    __builtin_prefetch(header_[0]);
    __builtin_prefetch(header_[1]);
  }
  // What a reader looks at once something is there: the slot behind, most likely, or a line that does no harm.
  void prefetch_behind() const { __builtin_prefetch(reinterpret_cast<const std::byte*>(header_[1]) + kSlotBytes); }
  [[gnu::always_inline]] bool holds() const {
    return header_[0] != nullptr && header_[0]->load(std::memory_order_acquire) == seen_[0] &&
           header_[1]->load(std::memory_order_acquire) == seen_[1];
  }

 private:
  [[gnu::always_inline]] SlotHeader slot(int which) const { return std::bit_cast<SlotHeader>(seen_[which]); }
  [[gnu::always_inline]] bool is_there(int which) const {
    return Slots::is_of(slot(which), head_.position() + static_cast<std::uint32_t>(which));
  }
  [[gnu::always_inline]] std::uint32_t length(int which) const {
    const std::uint32_t said = slot(which).length;
    return said & ((said & kInBulk) != 0 ? ~std::uint32_t{kInBulk} : kInlineMask);
  }
  const std::atomic<std::uint64_t>* header_[2] = {};
  std::uint64_t seen_[2] = {};
  Spot head_;
};

}  // namespace viaduct::sockets
