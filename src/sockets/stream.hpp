// The two halves of a direction: Sender puts bytes into the ring, Receiver takes them out. Neither waits, neither knows
// the socket. Callers hold the half's lock (StreamLock).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/prefetch.hpp"
#include "sockets/order.hpp"
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

// How much of the bulk area a sender should use. What one core has just written, another can fetch only slowly: from
// the first one's cache. Where the area is larger than that cache, a stream's bytes have left it by the time they are
// read, which is several times faster. But no more than TCP's buffers would take, if somebody made them small.
std::size_t bulk_size_for(std::size_t buffers);

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
    for (int i = 0; i < 3; ++i) copy_piece<16>(to, from);
    copy_piece<8>(to, from);
    return;
  }
  for (; bytes >= 16; bytes -= 16) copy_piece<16>(to, from);
  if ((bytes & 8) != 0) copy_piece<8>(to, from);
  if ((bytes & 4) != 0) copy_piece<4>(to, from);
  if ((bytes & 2) != 0) copy_piece<2>(to, from);
  if ((bytes & 1) != 0) copy_piece<1>(to, from);
}

constexpr std::uint32_t kSlotsForCrowds = 32;  // kept free for Sender::write_crowded()

class Sender {
 public:
  Sender(const StreamMemory& memory, int direction)
      : memory_(memory),
        direction_(memory.direction(direction)),
        slots_(memory.slots(direction)),
        bulk_(memory.bulk(direction)) {}
  // For small messages only.
  Sender(const StreamMemory& memory, Direction& direction, std::byte* slots)
      : memory_(memory), direction_(direction), slots_(slots), bulk_(nullptr) {}

  // Says of what is written from now on when that was.
  void sent_at(SentMark mark) { mark_ = mark; }
  // What is written next is to be told from what was before: into a slot of its own.
  void begin_slot() { direction_.sending.growing.store(0, std::memory_order_relaxed); }

  // Takes as much as fits, advancing `pieces`; publishes chunk by chunk. Rings nobody.
  std::size_t write(Pieces& pieces);
  // The same where there is no slot left for it, by a sender that may not wait: messages share the last chunk, so that
  // as many bytes fit as TCP would have taken.
  std::size_t write_crowded(Pieces& pieces);
  // The same for a message that fits slots alone, whole or not at all.
  static constexpr std::size_t kSmallMessage = 2 * kInlineBytes;  // up to here that is quicker
  // `more_follows`: probably, so the lines it needs are asked for.
  [[gnu::always_inline]] bool write_small(const void* bytes, std::size_t size, bool more_follows = false) {
    const auto* const from = static_cast<const std::byte*>(bytes);
    if (!(size <= kInlineBytes ? write_into_slot(from, size, more_follows) : write_into_two_slots(from, size)))
      return false;
    count(size);
    return true;
  }
  // The same for bytes that somebody else puts there: `fill(span)` says how many, and what is not more than 0 is
  // returned as it is. 0: no room.
  template <class Fill>
  ssize_t write_by(std::size_t most, Fill&& fill) {
    const std::span<std::byte> chunk = claim_bulk(most);
    if (chunk.empty()) return 0;
    const ssize_t filled = fill(chunk);
    if (filled <= 0) return filled;
    publish_bulk(static_cast<std::size_t>(filled), static_cast<std::size_t>(filled));
    count(static_cast<std::size_t>(filled));
    return filled;
  }
  // Where the next large one goes, most likely.
  std::byte* next_bulk() const {
    return bulk_ + direction_.sending.bulk_tail.load(std::memory_order_relaxed) % bulk_size();
  }
  // Where the next slot is.
  const std::byte* next_line() const { return slot(direction_.sending.tail.load(std::memory_order_relaxed)); }
  bool has_room();  // under the lock
  // A look without the lock. A third of it all: what TCP calls room when asked for it, so that what a program sends
  // then usually goes in one piece.
  enum class Room { some, a_quarter_of_slots, a_third };
  bool has_room_now(Room wanted = Room::some) const;

  // What room the sender waits for: half of everything.
  void want_room();

  // Under a lock that was left behind: whoever held it may have been in the middle of any of the above.
  [[gnu::cold, gnu::noinline]] void recover();

 private:
  // Inline, as are the others that a small message needs: where nobody takes the address of a Sender, it is registers.
  [[gnu::always_inline]] static void refresh(Direction& direction) {
    SendState& state = direction.sending;
    const ReceiveState& theirs = direction.receiving;
    state.seen_head.store(theirs.head.load(std::memory_order_acquire), std::memory_order_relaxed);            // A2
    state.seen_bulk_head.store(theirs.bulk_head.load(std::memory_order_acquire), std::memory_order_relaxed);  // A2
  }
  static constexpr std::uint32_t kUsualSlots = kSlots - kSlotsForCrowds;
  [[gnu::always_inline]] bool slot_free(std::uint32_t most = kUsualSlots) {
    const SendState& state = direction_.sending;
    const std::uint64_t tail = state.tail.load(std::memory_order_relaxed);
    if (tail - state.seen_head.load(std::memory_order_relaxed) < most) [[likely]]
      return true;
    refresh(direction_);
    return tail - state.seen_head.load(std::memory_order_relaxed) < most;
  }
  std::size_t bulk_size() const {
    const std::uint64_t size = direction_.sending.bulk_size.load(std::memory_order_relaxed);
    return static_cast<std::size_t>(std::clamp<std::uint64_t>(size, kLeastBulkBytes, memory_.bulk_bytes) / kLine *
                                    kLine);
  }
  std::size_t bulk_used(std::uint64_t tail) const;
  bool commit(std::size_t bytes);
  std::span<std::byte> claim_bulk(std::size_t most, std::uint32_t slots = kUsualSlots);
  void publish_bulk(std::size_t bytes, std::size_t claimed);
  struct Crowd {
    std::size_t length = 0;
    SentMark mark{};
    std::span<std::byte> behind{};  // it may grow by as much
  };
  Crowd crowd(std::size_t most);
  bool write_into_slot(const std::byte* bytes, std::size_t size, bool more_follows = false);
  bool write_into_two_slots(const std::byte* bytes, std::size_t size);
  [[gnu::always_inline]] void publish(std::uint64_t position, std::size_t length) {
    publish(slot(position), mark_, position, length);
  }
  [[gnu::always_inline]] static void publish(std::byte* slot, SentMark mark, std::uint64_t position,
                                             std::size_t length) {
    const SlotHeader now{static_cast<std::uint16_t>(position + 1), static_cast<std::uint16_t>(length), mark.word()};
    reinterpret_cast<std::atomic<std::uint64_t>*>(slot)->store(std::bit_cast<std::uint64_t>(now),
                                                               std::memory_order_release);  // R1
  }
  [[gnu::always_inline]] void count(std::size_t bytes) {
    Tally& tally = direction_.tally;
    tally.bytes.store(tally.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    tally.messages.store(tally.messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::atomic<std::uint64_t>& header(std::uint64_t position) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(slot(position));
  }
  std::byte* slot(std::uint64_t position) const { return slot_at(slots_, position); }
  static std::byte* slot_at(std::byte* slots, std::uint64_t position) {
    return slots + (position % kSlots) * kSlotBytes;
  }

  const StreamMemory& memory_;
  Direction& direction_;
  std::byte* slots_;
  std::byte* bulk_;
  SentMark mark_;
  bool lacks_memory_ = false;  // more of the bulk area cannot be had
};

// Behind what the last slot holds, where the receiver has not seen a further one yet; else into a slot of its own.
[[gnu::always_inline]] inline bool Sender::write_into_slot(const std::byte* bytes, std::size_t size,
                                                           bool more_follows) {
  SendState& state = direction_.sending;
  const std::uint64_t tail = state.tail.load(std::memory_order_relaxed);
  const std::size_t there = state.growing.load(std::memory_order_relaxed) % kSlotBytes;
  if (there != 0 && there + size <= kInlineBytes) {
    copy_small(slot(tail - 1) + 8 + there, bytes, size);
    publish(tail - 1, there + size);
    state.growing.store(static_cast<std::uint32_t>(there + size), std::memory_order_relaxed);
    return true;
  }
  if (!slot_free()) return false;
  if (more_follows) prefetch_to_write(slot(tail + 2));  // the receiver has it
  copy_small(slot(tail) + 8, bytes, size);
  publish(tail, size);
  state.tail.store(tail + 1, std::memory_order_relaxed);
  state.growing.store(static_cast<std::uint32_t>(size), std::memory_order_relaxed);
  return true;
}

// The second before the first: whoever sees the first finds both.
[[gnu::always_inline]] inline bool Sender::write_into_two_slots(const std::byte* bytes, std::size_t size) {
  SendState& state = direction_.sending;
  if (!slot_free(kUsualSlots - 1)) return false;
  const std::uint64_t tail = state.tail.load(std::memory_order_relaxed);
  const std::size_t rest = size - kInlineBytes;
  copy_small(slot(tail + 1) + 8, bytes + kInlineBytes, rest);
  publish(tail + 1, rest);
  copy_small(slot(tail) + 8, bytes, kInlineBytes);
  publish(tail, kInlineBytes);
  state.tail.store(tail + 2, std::memory_order_relaxed);
  state.growing.store(static_cast<std::uint32_t>(rest), std::memory_order_relaxed);
  return true;
}

// The slot a receiver looked at last, and what it held then. To take that needs no further look, which would fetch the
// line away from a sender that is still filling it. Of one process; read without the lock, hence atomic.
class SlotSeen {
 public:
  void forget() { word_.store(0, std::memory_order_relaxed); }
  void set(std::uint64_t position, std::uint32_t length) {
    word_.store(position << kLengthBits | length, std::memory_order_relaxed);
  }
  std::uint32_t length(std::uint64_t position) const {  // 0: another one was seen
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return word >> kLengthBits == (position & UINT64_MAX >> kLengthBits) ? word & ((1U << kLengthBits) - 1) : 0;
  }

 private:
  static constexpr int kLengthBits = 8;
  std::atomic<std::uint64_t> word_{0};  // both at once: a signal handler may receive too
};

class Receiver {
 public:
  Receiver(const StreamMemory& memory, int direction)
      : direction_(memory.direction(direction)),
        slots_(memory.slots(direction)),
        bulk_(memory.bulk(direction)),
        bulk_bytes_(memory.bulk_bytes) {}
  // For small messages only.
  Receiver(Direction& direction, std::byte* slots)
      : direction_(direction), slots_(slots), bulk_(nullptr), bulk_bytes_(0) {}

  enum class Take { consume, peek, discard };
  // Fills `pieces` with what is there. 0: nothing, or `broken()`.
  std::size_t read(Pieces& pieces, Take take);
  // The same where one line is all that is wanted or there, or two; 0: use read(). `seen` is brought up to date.
  struct Taken {
    std::size_t bytes = 0;
    std::uint32_t slots = 0;  // given back
  };
  Taken read_small(void* bytes, std::size_t size, SlotSeen& seen);
  // Whether the last look found as much.
  [[gnu::always_inline]] bool has_seen(std::size_t size, const SlotSeen& seen) const {
    const ReceiveState& state = direction_.receiving;
    return size <= kInlineBytes && state.consumed.load(std::memory_order_relaxed) + size <=
                                       seen.length(state.head.load(std::memory_order_relaxed));
  }
  // And takes it; 0: it did not.
  [[gnu::always_inline]] std::size_t read_seen(void* bytes, std::size_t size, const SlotSeen& seen) {
    if (!has_seen(size, seen)) return 0;
    ReceiveState& state = direction_.receiving;
    const std::uint32_t consumed = state.consumed.load(std::memory_order_relaxed) % kSlotBytes;
    copy_small(static_cast<std::byte*>(bytes), slot(state.head.load(std::memory_order_relaxed)) + 8 + consumed, size);
    state.consumed.store(consumed + static_cast<std::uint32_t>(size), std::memory_order_relaxed);
    return size;
  }
  bool has_data() {
    const std::uint64_t head = direction_.receiving.head.load(std::memory_order_relaxed);
    const std::uint32_t length = slot_length(head);
    if (length == kUnpublished) return false;
    if ((length & ~std::uint32_t{kInBulk}) > direction_.receiving.consumed.load(std::memory_order_relaxed)) return true;
    return slot_length(head + 1) != kUnpublished || broken_;
  }
  // The line behind the one that the next message begins in.
  void prefetch_second() const {
    __builtin_prefetch(slot(direction_.receiving.head.load(std::memory_order_relaxed) + 2));
  }
  // The sender has gone that many slots ahead: what lies between can be read without disturbing it.
  bool is_behind_by(std::uint64_t slots) const {
    return slot_length(direction_.receiving.head.load(std::memory_order_relaxed) + slots) != kUnpublished;
  }
  std::size_t bytes_ready();
  bool broken() const { return broken_; }
  // How far the sender has come, for those who report only what is new: grows with every byte.
  std::uint64_t frontier(std::uint64_t from) const;
  // After giving room back: how senders that wait for so much are to be woken, RoomSleep bits.
  std::uint32_t senders_to_wake(bool ring_is_empty) {
    if (direction_.room.armed.load(std::memory_order_relaxed) == 0) [[likely]]
      return 0;
    return senders_waiting_for_this(ring_is_empty);
  }

 private:
  static constexpr std::uint32_t kUnpublished = UINT32_MAX;
  struct Look {
    const std::byte* data;
    std::uint32_t length;
    std::uint64_t bulk_end;  // 0: not in the bulk area
  };
  bool look(std::uint64_t position, Look& look);
  std::uint32_t senders_waiting_for_this(bool ring_is_empty);

  const std::byte* slot(std::uint64_t position) const { return slots_ + (position % kSlots) * kSlotBytes; }
  [[gnu::always_inline]] SlotHeader header(std::uint64_t position) const {
    const auto& word = *reinterpret_cast<const std::atomic<std::uint64_t>*>(slot(position));
    return std::bit_cast<SlotHeader>(word.load(std::memory_order_acquire));  // A1
  }
  // With kInBulk; kUnpublished.
  [[gnu::always_inline]] std::uint32_t slot_length(std::uint64_t position) const {
    const SlotHeader found = header(position);
    return found.stamp == static_cast<std::uint16_t>(position + 1) ? found.length : kUnpublished;
  }

  Direction& direction_;
  std::byte* slots_;
  std::byte* bulk_;
  std::size_t bulk_bytes_;
  bool broken_ = false;
};

// A slot that was taken whole is given back once there is a next. Which is looked at first: with a next, a slot has
// grown all it will.
[[gnu::always_inline]] inline Receiver::Taken Receiver::read_small(void* bytes, std::size_t size, SlotSeen& seen) {
  auto* const to = static_cast<std::byte*>(bytes);
  ReceiveState& state = direction_.receiving;
  std::uint64_t head = state.head.load(std::memory_order_relaxed);
  std::uint32_t consumed = state.consumed.load(std::memory_order_relaxed), given_back = 0;
  std::uint32_t next = slot_length(head + 1), length = slot_length(head);
  if (length == consumed) {
    if (next > kInlineBytes) return {};
    ++head;
    consumed = 0;
    given_back = 1;
    length = next;
    if (size > length) {
      next = slot_length(head + 1);
      length = slot_length(head);
    }
  }
  if (length > kInlineBytes || length <= consumed) return {};
  const std::size_t first = length - consumed;
  const std::byte* const from = slot(head) + 8 + consumed;
  if (size > first && next != kUnpublished) {
    // All of it, and of the next as much as is wanted; but not where there is still more to take at once.
    if (next > kInlineBytes) return {};
    if (size > first + next) {
      if (slot_length(head + 2) != kUnpublished) return {};
      size = first + next;
    }
    copy_small(to, from, first);
    copy_small(to + first, slot(head + 1) + 8, size - first);
    consumed = static_cast<std::uint32_t>(size - first);
    ++head;
    ++given_back;
  } else {
    if (size < first)
      seen.set(head, length);
    else
      size = first;
    copy_small(to, from, size);
    consumed += static_cast<std::uint32_t>(size);
  }
  state.consumed.store(consumed, std::memory_order_relaxed);
  if (given_back != 0) state.head.store(head, std::memory_order_release);  // R2
  return {size, given_back};
}

// A ring that had nothing: for as long as these words stay as they were, it has nothing, whoever else reads. Bytes come
// into the slot at head or the one behind it, and what a header says once it never says again. Made before the look
// that found the ring empty, so that whatever comes later shows; good only if that look was at the same two slots.
class Stillness {
 public:
  // Where the first byte lies that was not taken yet, and when it was sent; if there is none, of whatever was last
  // there.
  struct FirstUnread {
    std::uint64_t position = 0;
    std::uint32_t taken = 0;  // bytes of that slot
    SentMark mark{};
  };

  Stillness() = default;
  Stillness(const StreamMemory& memory, int direction) : Stillness(head(memory, direction), memory.slots(direction)) {}
  [[gnu::always_inline]] Stillness(std::uint64_t head, const std::byte* slots) : head_(head) {
    for (std::uint64_t i = 0; i < 2; ++i)
      header_[i] = reinterpret_cast<const std::atomic<std::uint64_t>*>(slots + (head_ + i) % kSlots * kSlotBytes);
    look_again();
  }
  // At the same two slots.
  [[gnu::always_inline]] void look_again() {
    for (int i = 0; i < 2; ++i) seen_[i] = header_[i]->load(std::memory_order_acquire);  // A1
  }
  // What the words say of a ring from whose first slot `taken` bytes were taken: as Receiver::has_data(),
  // without another look.
  [[gnu::always_inline]] bool has_data(std::uint32_t taken) const {
    return (is_there(0) && length(0) > taken) || (is_there(0) && is_there(1));
  }
  [[gnu::always_inline]] FirstUnread first_unread(std::uint32_t taken) const {
    const bool next = length(0) == taken && is_there(1);
    return {head_ + (next ? 1 : 0), next ? 0 : taken, SentMark(slot(next ? 1 : 0).sent)};
  }
  // After the look: nobody has read on to another slot meanwhile.
  bool is_of_head(const StreamMemory& memory, int direction) const { return head(memory, direction) == head_; }
  // What holds() will look at.
  void prefetch() const {
    __builtin_prefetch(header_[0]);
    __builtin_prefetch(header_[1]);
  }
  // What a reader looks at once something is there: the slot behind, or a line that does no harm.
  void prefetch_behind() const { __builtin_prefetch(reinterpret_cast<const std::byte*>(header_[1]) + kSlotBytes); }
  [[gnu::always_inline]] bool holds() const {
    return header_[0] != nullptr && header_[0]->load(std::memory_order_acquire) == seen_[0] &&
           header_[1]->load(std::memory_order_acquire) == seen_[1];
  }

 private:
  SlotHeader slot(int which) const { return std::bit_cast<SlotHeader>(seen_[which]); }
  bool is_there(int which) const {
    return slot(which).stamp == static_cast<std::uint16_t>(head_ + static_cast<std::uint64_t>(which) + 1);
  }
  std::uint32_t length(int which) const { return slot(which).length & ~std::uint32_t{kInBulk}; }
  static std::uint64_t head(const StreamMemory& memory, int direction) {
    return memory.direction(direction).receiving.head.load(std::memory_order_acquire);
  }
  const std::atomic<std::uint64_t>* header_[2] = {};
  std::uint64_t seen_[2] = {};
  std::uint64_t head_ = 0;
};

}  // namespace viaduct::sockets
