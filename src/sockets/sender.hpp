// Puts bytes into the ring of a direction. Does not wait, and does not know the socket. Callers hold the half's lock
// (StreamLock).
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/copy_loop.hpp"
#include "base/far_reader.hpp"
#include "base/prefetch.hpp"
#include "sockets/order.hpp"
#include "sockets/stream_memory.hpp"

namespace viaduct::sockets {

constexpr std::uint32_t kManySlots = kSlots - kFewSlots - 2;  // that may be unread: as many as there are beside the few
constexpr std::uint32_t kSlotsForCrowds = 32;                 // of those, kept free for Sender::write_crowded()
constexpr std::uint32_t kSlotsNoMessageTakes = kSlotsForCrowds + 2;  // of two slots it needs both: fewer are no room

class Sender {
 public:
  Sender(const StreamMemory& memory, int direction)
      : memory_(memory),
        direction_(memory.direction(direction)),
        back_(memory.direction(1 - direction)),
        slots_(memory.slots(direction)),
        bulk_(memory.bulk(direction)) {}
  // For small messages only. `back`: the other direction.
  Sender(const StreamMemory& memory, Direction& direction, Direction& back, std::byte* slots)
      : memory_(memory), direction_(direction), back_(back), slots_(slots), bulk_(nullptr) {}

  // Of memory that is new, before anybody uses it: where in the ring it begins.
  static void begin(Direction& direction, std::uint8_t few_at);

  // Says of what is written from now on when that was.
  void sent_at(SentMark mark) { mark_ = mark; }
  SentMark mark() const { return mark_; }
  // Learns meanwhile how bytes get into the bulk area best.
  void learn(FarReader& reader) { reader_ = &reader; }
  // What is written is part of a message of so many bytes.
  void part_of(std::size_t bytes) { is_long_ = bytes >= kLong; }
  // What is written next is to be told from what was before: into a slot of its own.
  void begin_slot() { direction_.sending.growing.store(0, std::memory_order_relaxed); }

  // Takes as much as fits, advancing `pieces`; publishes chunk by chunk. Rings nobody.
  std::size_t write(Pieces& pieces);
  // The same where there is no slot left for it, by a sender that may not wait: messages share the last chunk, so that
  // as many bytes fit as TCP would have taken.
  std::size_t write_crowded(Pieces& pieces);
  // What write() has left, by a sender that may not wait: in every way there is.
  std::size_t write_rest(Pieces& pieces);
  // The same for a message that fits slots alone, whole or not at all.
  static constexpr std::size_t kSmallMessage = 2 * kInlineBytes;  // up to here that is quicker
  // `more_follows`: probably, and no answer before that.
  [[gnu::always_inline]] bool write_small(const void* bytes, std::size_t size, bool more_follows = false) {
    if (!write_lines(static_cast<const std::byte*>(bytes), size, more_follows)) return false;
    count(size);
    return true;
  }
  // The same for one that fits a chunk of the bulk area.
  bool write_chunk(const void* bytes, std::size_t size, bool more_follows = false);
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
  // Where the next large one goes, most likely: one like the last, after an answer.
  std::byte* next_bulk() const {
    const std::uint64_t tail = direction_.sending.bulk_tail.load(std::memory_order_relaxed);
    const std::uint64_t last = direction_.tally.chunk_from.load(std::memory_order_relaxed);
    return begins_anew(last, tail - last) ? bulk_ : bulk_ + tail % bulk_size();
  }
  // Where the next slot is.
  const std::byte* next_line() const { return slots_.at(tail().index()); }
  bool has_room();  // under the lock
  // Before the first: how much of the bulk area, in the end. Who had this end before exec may have said so.
  void use_bulk(std::size_t most);
  // Under the lock: a bulk area without room gets more. False: it has all it may have, or it is not what lacks room.
  // Who can wait a moment does so first, because new memory costs as much time as many copies into old.
  bool grow() { return grow(kManySlots - kSlotsNoMessageTakes); }
  bool can_grow() const { return bulk_size() < bulk_most(); }
  // A look without the lock. A third of it all: what TCP calls room when asked for it, so that what a program sends
  // then usually goes in one piece. Nearly all: the rest has room in TCP's buffers. Growth, where it is counted: so
  // much, as soon as somebody sends.
  enum class Room { some, a_quarter_of_slots, a_third, nearly_all };
  enum class Growth { counted, not_counted };
  bool has_room_now(Room wanted = Room::some, Growth growth = Growth::not_counted) const;

  // What room the sender waits for: half of everything.
  void want_room();

  // Under a lock that was left behind: whoever held it may have been in the middle of any of the above.
  [[gnu::cold, gnu::noinline]] void recover();

 private:
  // Inline, as are the others that a small message needs: where nobody takes the address of a Sender, it is registers.
  [[gnu::always_inline]] static void refresh(Direction& direction) {
    SendState& state = direction.sending;
    const ReceiveState& theirs = direction.receiving;
    state.seen_head.store(Spot(theirs.head.load(std::memory_order_acquire)).position(),
                          std::memory_order_relaxed);                                                         // A2
    state.seen_bulk_head.store(theirs.bulk_head.load(std::memory_order_acquire), std::memory_order_relaxed);  // A2
  }
  static constexpr std::uint32_t kUsualSlots = kManySlots - kSlotsForCrowds;
  [[gnu::always_inline]] Spot tail() const { return Spot(direction_.sending.tail.load(std::memory_order_relaxed)); }
  [[gnu::always_inline]] std::uint32_t unread(std::uint32_t position) const {  // as far as it is known
    return position - direction_.sending.seen_head.load(std::memory_order_relaxed);
  }
  [[gnu::always_inline]] bool slot_free(std::uint32_t most = kUsualSlots) {
    const std::uint32_t position = tail().position();
    if (unread(position) < most) [[likely]]
      return true;
    refresh(direction_);
    return unread(position) < most;
  }
  std::size_t bulk_size() const {
    const std::uint32_t size = direction_.sending.bulk_size.load(std::memory_order_relaxed);
    return std::clamp<std::size_t>(size, kLeastBulkBytes, memory_.bulk_bytes) / kLine * kLine;
  }
  std::size_t bulk_most() const;
  bool has_proved_itself() const;
  bool grow(std::uint32_t most_slots_used);
  void grow_area();
  void note_anew(std::uint64_t from, std::uint64_t to);
  // Of the area before `tail`, where so much of it was read.
  std::size_t bulk_unread(std::uint64_t tail, std::uint64_t read) const;
  std::size_t bulk_used(std::uint64_t tail) const;  // as far as it is known
  // All before `read` was, and what is to be written fits before that: from the start of the area again.
  bool begins_anew(std::uint64_t read, std::size_t bytes) const {
    const std::uint64_t tail = direction_.sending.bulk_tail.load(std::memory_order_relaxed);
    const std::size_t size = bulk_size();
    return tail % size != 0 && read % size >= whole_lines(bytes) + kLine && tail - read <= read % size &&
           read / size == tail / size;
  }
  // Whether it does, and then from where on nothing is unread in what that leaves out.
  std::optional<std::uint64_t> begins_anew_where_read(std::size_t bytes);
  bool commit(std::size_t bytes);
  // `goes_on`: with a message, right behind its chunk before.
  std::span<std::byte> claim_bulk(std::size_t most, std::uint32_t slots = kUsualSlots,
                                  std::optional<std::uint64_t> anew_from = std::nullopt, bool goes_on = false);
  void publish_bulk(std::size_t bytes, std::size_t claimed);
  void copy(std::byte* to, const std::byte* from, std::size_t size, Ahead ahead);
  void copy_all(Pieces& pieces, std::span<std::byte> chunk, Ahead ahead = Ahead::both);
  struct Crowd {
    std::size_t length = 0;
    SentMark mark{};
    std::span<std::byte> behind{};  // it may grow by as much
  };
  Crowd crowd(std::size_t most);
  [[gnu::always_inline]] bool write_lines(const std::byte* bytes, std::size_t size, bool more_follows = false) {
    return size <= kBesideTrailer ? write_into_slot(bytes, size, more_follows)
                                  : write_into_two_slots(bytes, size, more_follows);
  }
  bool write_into_slot(const std::byte* bytes, std::size_t size, bool more_follows);
  bool write_into_two_slots(const std::byte* bytes, std::size_t size, bool more_follows);

  // Which slot comes next: one of the few, while so few are unread that the one which was used longest ago cannot be
  // among them; else the next of all others.
  struct Next {
    std::uint8_t index;
    bool impossible;      // the slot before it has too many bytes to say which
    std::uint16_t flags;  // of that slot; kWithTrailer: it says so
  };
  static constexpr std::uint32_t kNearlyAllRead = kFewSlots - 3;
  [[gnu::always_inline]] bool is_few(std::uint8_t index) const { return is_few(direction_.sending, index); }
  [[gnu::always_inline]] static bool is_few(const SendState& state, std::uint8_t index) {
    return (index & ~(kFewSlots - 1)) == state.few_at.load(std::memory_order_relaxed);
  }
  // It is one of the others, and so are the next `steps`.
  [[gnu::always_inline]] bool goes_straight(std::uint8_t index, std::uint8_t steps) const {
    const std::uint8_t few_at = direction_.sending.few_at.load(std::memory_order_relaxed);
    return static_cast<std::uint8_t>(few_at - index - steps - 1) < kSlots - kFewSlots - steps;
  }
  // Behind the one at `at` with so many bytes.
  [[gnu::always_inline]] Next choose_next(Spot at, std::size_t bytes, bool more_follows) const {
    if (!more_follows && bytes <= kBesideTrailer && is_few(at.index()) && unread(at.position() + 1) <= kNearlyAllRead)
        [[likely]]
      return {next_around(at.index()), false, kWithTrailer};
    if (more_follows && goes_straight(at.index(), 1)) [[likely]]
      return {next_straight(at.index()), false, 0};
    return choose_otherwise(direction_.sending, at, bytes, more_follows);
  }
  // The rest is rare. Without `this`, so that a Sender stays in registers.
  [[gnu::noinline]] static Next choose_otherwise(SendState& state, Spot at, std::size_t bytes, bool more_follows);
  [[gnu::noinline]] static bool write_into_two_slots_otherwise(Sender sender, const std::byte* bytes, std::size_t size,
                                                               bool more_follows);
  static std::uint8_t behind_many(const SendState& state, std::uint8_t index);
  static void note_left(SendState& state, std::uint8_t index);

  [[gnu::always_inline]] void put_trailer(std::uint8_t index, std::uint8_t next) {
    const std::uint32_t read = Spot(back_.receiving.head.load(std::memory_order_relaxed)).position();
    slots_.trailer(index).store(SlotTrailer(read, next).word(), std::memory_order_relaxed);
  }

  [[gnu::always_inline]] void publish(std::uint8_t index, std::uint32_t position, std::size_t length, SentMark mark) {
    const SlotHeader now{static_cast<std::uint16_t>(position + 1), static_cast<std::uint16_t>(length), mark.word()};
    slots_.header(index).store(std::bit_cast<std::uint64_t>(now), std::memory_order_release);  // R1
  }
  // Before it is said that the slot at that position will be this one: nobody must find there what was published when a
  // position had the same stamp.
  [[gnu::always_inline]] void clear_stale(std::uint32_t position, std::uint8_t index) {
    if (direction_.stamps.of[index].load(std::memory_order_relaxed) == static_cast<std::uint16_t>(position + 1))
        [[unlikely]]
      clear(position, index);
  }
  void clear(std::uint32_t position, std::uint8_t index) {
    constexpr std::uint16_t kAnother = 0x8000;
    const SlotHeader nothing{static_cast<std::uint16_t>((position + 1) ^ kAnother), 0, 0};
    slots_.header(index).store(std::bit_cast<std::uint64_t>(nothing), std::memory_order_relaxed);
    direction_.stamps.of[index].store(nothing.stamp, std::memory_order_relaxed);
  }
  [[gnu::always_inline]] void note_stamp(Spot last) {
    direction_.stamps.of[last.index()].store(static_cast<std::uint16_t>(last.position() + 1),
                                             std::memory_order_relaxed);
  }
  // Has been published; the next one goes to `next`.
  [[gnu::always_inline]] void went_on(Spot last, std::uint8_t next, std::uint32_t growing) {
    SendState& state = direction_.sending;
    note_stamp(last);
    state.tail.store(Spot(last.position() + 1, next, last.index()).word(), std::memory_order_relaxed);
    state.growing.store(growing, std::memory_order_relaxed);
  }
  // So many bytes and the rest. The second before the first: whoever sees the first finds both.
  [[gnu::always_inline]] void put_two(Spot first, Next second, Next behind, const std::byte* bytes, std::size_t part,
                                      std::size_t rest) {
    const Spot then(first.position() + 1, second.index, first.index());
    clear_stale(then.position() + 1, behind.index);
    copy_small(slots_.payload(then.index()), bytes + part, rest);
    if (behind.flags == kWithTrailer) put_trailer(then.index(), behind.index);
    publish(then.index(), then.position(), rest | behind.flags, mark_);
    copy_small(slots_.payload(first.index()), bytes, part);
    publish(first.index(), first.position(), part | second.flags, mark_);
    note_stamp(first);
    went_on(then, behind.index, static_cast<std::uint32_t>(rest) | behind.flags);
  }
  [[gnu::always_inline]] void count(std::size_t bytes) {
    Tally& tally = direction_.tally;
    tally.bytes.store(tally.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    tally.messages.store(tally.messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  const StreamMemory& memory_;
  Direction& direction_;
  const Direction& back_;
  Slots slots_;
  std::byte* bulk_;
  SentMark mark_;
  FarReader* reader_ = nullptr;
  bool is_long_ = false;
  bool past_caches_ = false;   // what was copied last
  bool lacks_memory_ = false;  // more of the bulk area cannot be had
};

// Behind what the last slot holds, where the receiver has not seen a further one yet; else into a slot of its own.
[[gnu::always_inline]] inline bool Sender::write_into_slot(const std::byte* bytes, std::size_t size,
                                                           bool more_follows) {
  SendState& state = direction_.sending;
  const Spot at = tail();
  const std::uint32_t grown = state.growing.load(std::memory_order_relaxed);
  const std::size_t there = grown & kInlineMask;
  const bool with_trailer = (grown & kWithTrailer) != 0;
  if (there != 0 && there + size <= (with_trailer ? kBesideTrailer : kInlineBytes)) {
    const std::uint8_t last = at.neighbour();
    copy_small(slots_.payload(last) + there, bytes, size);
    if (with_trailer) put_trailer(last, at.index());
    publish(last, at.position() - 1, grown + size, mark_);
    state.growing.store(grown + static_cast<std::uint32_t>(size), std::memory_order_relaxed);
    return true;
  }
  if (!slot_free()) return false;
  const Next next = choose_next(at, size, more_follows);
  if (next.impossible) [[unlikely]]
    return false;
  clear_stale(at.position() + 1, next.index);
  if (more_follows) prefetch_to_write(slots_.at(next_straight(next.index)));  // the receiver has it
  copy_small(slots_.payload(at.index()), bytes, size);
  if (next.flags == kWithTrailer) put_trailer(at.index(), next.index);
  publish(at.index(), at.position(), size | next.flags, mark_);
  went_on(at, next.index, static_cast<std::uint32_t>(size) | next.flags);
  return true;
}

// More than fits beside a trailer. Among the few in two, so that there is one.
[[gnu::always_inline]] inline bool Sender::write_into_two_slots(const std::byte* bytes, std::size_t size,
                                                                bool more_follows) {
  const Spot at = tail();
  const std::size_t part = size > kInlineBytes ? kInlineBytes : kBesideTrailer, rest = size - part;
  if (more_follows && size > kInlineBytes && goes_straight(at.index(), 2) && slot_free(kUsualSlots - 1)) {
    const std::uint8_t index = next_straight(at.index());
    put_two(at, {index, false, 0}, {next_straight(index), false, 0}, bytes, part, rest);
    return true;
  }
  if (rest > kBesideTrailer || !is_few(at.index()) || unread(at.position() + 2) > kNearlyAllRead) [[unlikely]]
    return size <= kInlineBytes ? write_into_slot(bytes, size, more_follows)
                                : write_into_two_slots_otherwise(*this, bytes, size, more_follows);
  const std::uint8_t index = next_around(at.index());
  put_two(at, {index, false, kAround}, {next_around(index), false, kWithTrailer}, bytes, part, rest);
  return true;
}

}  // namespace viaduct::sockets
