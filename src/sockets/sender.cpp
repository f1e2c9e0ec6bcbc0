#include "sockets/sender.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::size_t kLeastChunk = 4096;  // do not cut large messages smaller than this
constexpr std::size_t kStartOverAfter = std::size_t{64}
                                        << 10;  // bytes used before an empty bulk area starts at 0 again
constexpr std::size_t kCommitStep = std::size_t{64} << 10;
constexpr std::size_t kTimesTheCache = 4;
constexpr std::size_t kMuch = 2 * kUsualChunk;

// A copy reads whole lines faster than halves of two: where much lies side by side, the first chunk is so short that
// the others begin with a line of it.
std::size_t best_chunk(const Pieces& pieces, std::size_t left) {
  const std::size_t beyond_line = reinterpret_cast<std::uintptr_t>(pieces.data()) % kLine;
  return beyond_line == 0 || pieces.size() < kMuch ? left : kLeastChunk - beyond_line;
}

}  // namespace

void Sender::copy(std::byte* to, const std::byte* from, std::size_t size, Ahead ahead) {
  const FarReader::Way way = reader_ != nullptr ? reader_->next(size) : FarReader::Way{};
  const std::uint64_t began = way.timed ? Clock::steady().now_ns() : 0;
  if (way.past_caches)
    copy_past_caches(to, from, size);
  else
    copy_through_ring(to, from, size, ahead);
  past_caches_ = way.past_caches;
  if (way.timed) reader_->took(size, Clock::steady().now_ns() - began);
}

// So many as the chunk has room for.
void Sender::copy_all(Pieces& pieces, std::span<std::byte> chunk, Ahead ahead) {
  while (!chunk.empty()) {
    const std::size_t part = std::min(chunk.size(), pieces.size());
    copy(chunk.data(), pieces.data(), part, ahead);
    pieces.advance(part);
    chunk = chunk.subspan(part);
  }
}

std::size_t bulk_size_for(std::size_t buffers) {
  static std::atomic<long> second_level{0};
  long cache = second_level.load(std::memory_order_relaxed);
  if (cache <= 0) {
    constexpr long kUnknown = 1 << 20;
    cache = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    second_level.store(cache = cache > 0 ? cache : kUnknown, std::memory_order_relaxed);
  }
  return std::clamp(std::min(buffers, kTimesTheCache * static_cast<std::size_t>(cache)), kLeastBulkBytes,
                    kMostBulkBytes);
}

void Sender::begin(Direction& direction, std::uint8_t few_at) {
  SendState& state = direction.sending;
  state.few_at.store(few_at);
  state.few_next.store(next_around(few_at));
  state.many_next.store(static_cast<std::uint8_t>(few_at + kFewSlots));
  state.tail.store(Spot(0, few_at, few_at).word());
  direction.receiving.head.store(Spot(0, few_at, next_around(few_at)).word());
}

std::uint8_t Sender::behind_many(const SendState& state, std::uint8_t index) {
  const std::uint8_t next = next_straight(index);
  return is_few(state, next) ? static_cast<std::uint8_t>(next + kFewSlots) : next;
}

// While the tail is of one kind, its index says where that goes on; whoever leaves it writes that down.
void Sender::note_left(SendState& state, std::uint8_t index) {
  if (is_few(state, index))
    state.few_next.store(next_around(index), std::memory_order_relaxed);
  else
    state.many_next.store(behind_many(state, index), std::memory_order_relaxed);
}

Sender::Next Sender::choose_otherwise(SendState& state, Spot at, std::size_t bytes, bool more_follows) {
  const bool here_few = is_few(state, at.index()), fits = bytes <= kBesideTrailer;
  if (at.position() == 0)
    more_follows = false;  // a receiver that has seen none yet expects the second where begin() says
  const std::uint32_t unread = at.position() + 1 - state.seen_head.load(std::memory_order_relaxed);
  const bool to_few = unread <= kNearlyAllRead && (fits ? !more_follows : here_few);
  if (to_few != here_few) {
    if (!fits) return {0, true, 0};
    note_left(state, at.index());
    return {(to_few ? state.few_next : state.many_next).load(std::memory_order_relaxed), false, kWithTrailer};
  }
  const std::uint8_t stays = here_few ? next_around(at.index()) : behind_many(state, at.index());
  const bool plainly = here_few || stays == next_straight(at.index());
  if (fits && (!more_follows || !plainly)) return {stays, false, kWithTrailer};
  return {stays, !plainly, here_few ? kAround : std::uint16_t{0}};
}

bool Sender::write_into_two_slots_otherwise(Sender sender, const std::byte* bytes, std::size_t size,
                                            bool more_follows) {
  if (!sender.slot_free(kUsualSlots - 1)) return false;
  const Spot at = sender.tail();
  const std::size_t rest = size - kInlineBytes;
  const Next second = sender.choose_next(at, kInlineBytes, more_follows);
  if (second.impossible) return false;
  const Next behind = sender.choose_next(Spot(at.position() + 1, second.index, at.index()), rest, more_follows);
  if (behind.impossible) return false;
  sender.put_two(at, second, behind, bytes, kInlineBytes, rest);
  return true;
}

// More than the area has: a peer wrote nonsense, and gets no more bytes.
std::size_t Sender::bulk_unread(std::uint64_t tail, std::uint64_t read) const {
  const Tally& tally = direction_.tally;
  const std::size_t size = bulk_size();
  if (const std::uint64_t to = tally.anew_to.load(std::memory_order_relaxed); read < to) {
    const bool left_out = read >= tally.anew_from.load(std::memory_order_relaxed);
    if (left_out)
      read = std::min(to, tail);
    else if (to % size != 0)  // it grew: what is unread of before may lie anywhere below
      read = to - to % size;
  }
  return static_cast<std::size_t>(std::min<std::uint64_t>(tail - read, size));
}

void Sender::use_bulk(std::size_t most) {
  SendState& state = direction_.sending;
  const bool grows = std::min(most, memory_.bulk_bytes) >= 2 * kFirstBulkBytes;
  std::uint32_t none = 0;
  if (state.bulk_size.compare_exchange_strong(none, static_cast<std::uint32_t>(grows ? kFirstBulkBytes : most)) &&
      grows)
    state.bulk_most.store(static_cast<std::uint32_t>(most));
}

std::size_t Sender::bulk_most() const {
  const std::size_t most = direction_.sending.bulk_most.load(std::memory_order_relaxed);
  return std::min(most, memory_.bulk_bytes) / kFirstBulkBytes * kFirstBulkBytes;
}

bool Sender::has_proved_itself() const {
  constexpr std::uint64_t kTimesOver = 8;
  return direction_.tally.bytes.load(std::memory_order_relaxed) >= kTimesOver * bulk_most();
}

// Twice without a chunk in between is once.
void Sender::note_anew(std::uint64_t from, std::uint64_t to) {
  Tally& tally = direction_.tally;
  if (tally.anew_to.load(std::memory_order_relaxed) == direction_.sending.bulk_tail.load(std::memory_order_relaxed))
    from = std::min(from, tally.anew_from.load(std::memory_order_relaxed));
  tally.anew_from.store(from, std::memory_order_relaxed);
  tally.anew_to.store(to, std::memory_order_relaxed);
}

// What comes next goes behind the area as it was, so that it does not matter where the unread lies there. Until that is
// read there is nothing but the new part. A place among all bytes ever used is still one of the area by its remainder,
// also that of a chunk of before, where it is of the same round.
void Sender::grow_area() {
  SendState& state = direction_.sending;
  const std::size_t size = bulk_size(), most = bulk_most();
  if (most <= size) return;  // not what it said a moment ago
  const std::uint64_t tail = state.bulk_tail.load(std::memory_order_relaxed);
  const std::uint64_t to = tail + (most + size - tail % most) % most;
  note_anew(tail, to);
  state.bulk_tail.store(to, std::memory_order_release);
  state.bulk_size.store(static_cast<std::uint32_t>(most), std::memory_order_release);
}

std::size_t Sender::bulk_used(std::uint64_t tail) const {
  return bulk_unread(tail, direction_.sending.seen_bulk_head.load(std::memory_order_relaxed));
}

bool Sender::commit(std::size_t bytes) {
  std::atomic<std::uint32_t>& committed = direction_.sending.committed;
  const std::size_t have = std::min<std::size_t>(committed.load(std::memory_order_relaxed), memory_.bulk_bytes);
  if (bytes <= have) return true;
  const std::size_t want = std::min((bytes + kCommitStep - 1) / kCommitStep * kCommitStep, memory_.bulk_bytes);
  const auto start = static_cast<off_t>(bulk_ - memory_.base + static_cast<std::ptrdiff_t>(kSegmentPayloadOffset));
  // By system call: this may run in any program at any time, and is not a cancellation point.
  // By its place, not its number, which another thread may give back to the program: but not before Linux 5.14.
  bool got = ::madvise(bulk_ + have, want - have, MADV_POPULATE_WRITE) == 0;
  if (!got && errno != ENOMEM)
    got = memory_.fd < 0 ? errno == EINVAL
                         : ::syscall(SYS_fallocate, memory_.fd, 0, start + static_cast<off_t>(have),
                                     static_cast<off_t>(want - have)) == 0;
  lacks_memory_ = !got;
  if (!got) return false;
  committed.store(static_cast<std::uint32_t>(want), std::memory_order_relaxed);
  return true;
}

std::span<std::byte> Sender::claim_bulk(std::size_t most, std::uint32_t slots, std::optional<std::uint64_t> anew_from,
                                        bool goes_on) {
  SendState& state = direction_.sending;
  if (can_grow() && has_proved_itself()) [[unlikely]]
    grow_area();
  const std::size_t size = bulk_size();
  if (!slot_free(slots)) return {};
  most = std::min(most, is_long_ && size >= 16 * kLargestChunk ? kLargestChunk : kUsualChunk);
  const std::size_t least = std::min(whole_lines(most), kLeastChunk);
  const std::uint64_t before = state.bulk_tail.load(std::memory_order_relaxed);
  std::uint64_t tail = anew_from ? before + size - before % size : before;
  const auto free = [&] {
    const std::size_t used = bulk_used(tail);
    return used == 0 ? size : size - std::min(size, used + kLine);  // crowd()
  };
  const std::size_t skipped = size - tail % size < least ? size - tail % size : 0;
  // All of it was read: start over, so that a connection with little to say stays within little memory and cache.
  const bool may_start_over = !goes_on && tail % size >= kStartOverAfter;
  if (may_start_over || free() < least + skipped) refresh(direction_);
  if (may_start_over && bulk_used(tail) == 0) {
    tail += size - tail % size;
    anew_from = before;
  }
  std::size_t until_end = size - tail % size;
  if (until_end < least) {
    if (free() < until_end + least) return {};
    tail += until_end;
    until_end = size;
  }
  const std::size_t room = std::min({most, free(), until_end});
  if (room < std::min(most, least)) return {};
  const std::size_t offset = tail % size;
  if (!commit(offset + room)) return {};
  if (anew_from) note_anew(*anew_from, tail);
  state.bulk_tail.store(tail, std::memory_order_relaxed);
  return {bulk_ + offset, room};
}

void Sender::publish_bulk(std::size_t bytes, std::size_t claimed) {
  SendState& state = direction_.sending;
  const std::uint64_t position = state.bulk_tail.load(std::memory_order_relaxed);
  const Spot at = tail();
  const BulkPlace place{position, static_cast<std::uint32_t>(position % bulk_size()), past_caches_ ? 1U : 0U};
  const Next next = choose_next(at, sizeof place, false);  // there is room for a trailer
  clear_stale(at.position() + 1, next.index);
  std::memcpy(slots_.payload(at.index()), &place, sizeof place);
  put_trailer(at.index(), next.index);
  state.bulk_tail.store(position + whole_lines(claimed), std::memory_order_relaxed);
  direction_.tally.chunk_slot.store(at.position(), std::memory_order_relaxed);
  direction_.tally.chunk_from.store(position, std::memory_order_relaxed);
  publish(at.index(), at.position(), bytes | kInBulk, mark_);
  went_on(at, next.index, 0);
}

// What the receiver says of slots says it of their chunks too: where it has nearly all, those who ask and answer go on
// in the same few lines. Of the last one it is not known, so that stays as it is.
std::optional<std::uint64_t> Sender::begins_anew_where_read(std::size_t bytes) {
  SendState& state = direction_.sending;
  const std::uint32_t slot = direction_.tally.chunk_slot.load(std::memory_order_relaxed);
  const auto seen = static_cast<std::int32_t>(state.seen_head.load(std::memory_order_relaxed) - slot);  // beyond it
  // What a message of the peer said long ago may be half of all positions behind, and look as if it were ahead.
  if (seen < 0 || unread(tail().position()) > kSlots) return std::nullopt;
  const std::uint64_t tail = state.bulk_tail.load(std::memory_order_relaxed);
  const std::uint64_t last = direction_.tally.chunk_from.load(std::memory_order_relaxed);
  const std::uint64_t read = seen > 0 ? tail : last;
  if (!begins_anew(read, bytes)) return std::nullopt;
  state.seen_bulk_head.store(std::max(read, state.seen_bulk_head.load(std::memory_order_relaxed)),
                             std::memory_order_relaxed);
  return seen > 0 ? last : tail;
}

bool Sender::write_chunk(const void* bytes, std::size_t size, bool more_follows) {
  const auto anew_from = more_follows ? std::nullopt : begins_anew_where_read(size);
  const std::span<std::byte> chunk = claim_bulk(size, kUsualSlots, anew_from);
  if (chunk.size() < size) return false;
  copy(chunk.data(), static_cast<const std::byte*>(bytes), size, Ahead::both);
  publish_bulk(size, size);
  count(size);
  return true;
}

// A chunk that was claimed larger than it is, in the last slot: the receiver keeps its place there until there is a
// next. A receiver that has read what there was gives back whole lines, also one into which more comes later. So the
// last line of such a chunk stays empty, as does one of the area: nothing is ever put over bytes that are unread. What
// the memory says is a peer's to change, so it must make sense.
Sender::Crowd Sender::crowd(std::size_t most) {
  const SendState& state = direction_.sending;
  const std::uint8_t last = tail().neighbour();
  const auto found = std::bit_cast<SlotHeader>(slots_.header(last).load(std::memory_order_relaxed));
  if (!Slots::is_of(found, tail().position() - 1) || (found.length & kInBulk) == 0) return {};
  BulkPlace place;
  std::memcpy(&place, slots_.payload(last), sizeof place);
  const std::size_t size = bulk_size(), length = found.length & ~std::uint32_t{kInBulk};
  const std::uint64_t bulk_tail = state.bulk_tail.load(std::memory_order_relaxed), claimed = bulk_tail - place.position;
  if (bulk_tail == direction_.tally.anew_to.load(std::memory_order_relaxed)) return {};  // it is not the next any more
  if (claimed > kLargestChunk || length + kLine >= claimed || place.offset != place.position % size ||
      place.offset + claimed > size)
    return {};
  const std::size_t room = std::min<std::size_t>(most, claimed - kLine - length);
  return {length, SentMark(found.sent), {bulk_ + place.offset + length, room}};
}

std::size_t Sender::write_crowded(Pieces& pieces) {
  std::size_t total = 0;
  for (std::size_t left = pieces.bytes_left(); left != 0;) {
    const Crowd before = crowd(left);
    std::span<std::byte> chunk = before.behind;
    if (!chunk.empty()) {
      copy_all(pieces, chunk);
      publish(tail().neighbour(), tail().position() - 1, (before.length + chunk.size()) | kInBulk, before.mark);
    } else {
      const std::span<std::byte> claimed = claim_bulk(kUsualChunk, kManySlots);
      if (claimed.size() < kLeastChunk) break;
      chunk = claimed.first(std::min(left, claimed.size() - kLine));
      copy_all(pieces, chunk);
      publish_bulk(chunk.size(), claimed.size());
    }
    left -= chunk.size();
    total += chunk.size();
  }
  if (total != 0) count(total);
  return total;
}

std::size_t Sender::write_rest(Pieces& pieces) {
  std::size_t total = grow() ? write(pieces) : 0;
  if (!pieces.done()) total += write_crowded(pieces);
  if (!pieces.done() && grow(kManySlots - 1)) total += write_crowded(pieces);
  return total;
}

std::size_t Sender::write(Pieces& pieces) {
  std::size_t total = 0, most = kSmallMessage;
  const Ahead ahead = is_long_ ? Ahead::read : Ahead::both;
  for (std::size_t left = pieces.bytes_left(); left != 0;) {
    std::size_t sent = std::min(left, most);
    std::span<std::byte> chunk;
    if (left > kSmallMessage) {
      chunk = claim_bulk(best_chunk(pieces, left), kUsualSlots, std::nullopt, total != 0);
      // No room in the bulk area: wait for it rather than cut a large message into lines, unless there is no memory.
      if (chunk.empty() && !lacks_memory_) break;
    }
    if (chunk.empty()) {
      std::byte lines[kSmallMessage];
      Pieces after = pieces;
      for (std::size_t done = 0; done < sent;) {
        const std::size_t part = std::min(sent - done, after.size());
        std::memcpy(lines + done, after.data(), part);
        after.advance(part);
        done += part;
      }
      if (write_lines(lines, sent)) {
        pieces = after;
      } else {
        if (!slot_free()) break;
        // Slots that are full cannot say which one comes next. A chunk can, and if there is none, so few bytes can.
        chunk = claim_bulk(sent);
        if (chunk.size() < sent) {
          if (most == kBesideTrailer) break;
          most = kBesideTrailer;
          continue;
        }
      }
    }
    if (!chunk.empty()) {
      copy_all(pieces, chunk, ahead);
      sent = chunk.size();
      publish_bulk(sent, sent);
    }
    left -= sent;
    total += sent;
    most = kSmallMessage;
  }
  if (total != 0) count(total);
  return total;
}

namespace {

// Of the bulk area: what there is, may ever be, and is used.
struct Bulk {
  std::size_t size, most, used;
};

bool enough_room(std::uint32_t slots_used, const Bulk& bulk, Sender::Room wanted = Sender::Room::some) {
  constexpr std::size_t kLittle = 16;  // of which one part is left
  const auto [slots, bytes] = [&]() -> std::pair<std::uint32_t, std::size_t> {
    const std::size_t few_chunks = std::min(3 * kUsualChunk, bulk.size / 4);
    switch (wanted) {
      case Sender::Room::a_quarter_of_slots:
        return {kManySlots / 4, few_chunks};
      case Sender::Room::a_third:
        return {kManySlots / 3, bulk.size / 3};
      case Sender::Room::nearly_all:
        return {kManySlots - kManySlots / kLittle, bulk.size - std::min(bulk.size, bulk.most / kLittle)};
      default:
        return {kSlotsNoMessageTakes, few_chunks};
    }
  }();
  return slots_used <= kManySlots - slots && bulk.used + bytes <= bulk.size;
}

}  // namespace

bool Sender::has_room() {
  const auto enough = [this] {
    const SendState& state = direction_.sending;
    const std::size_t size = bulk_size();
    return enough_room(unread(tail().position()),
                       {size, size, bulk_used(state.bulk_tail.load(std::memory_order_relaxed))});
  };
  if (enough()) return true;
  refresh(direction_);
  return enough();
}

bool Sender::grow(std::uint32_t most_slots_used) {
  if (!can_grow() || has_room() || unread(tail().position()) > most_slots_used) return false;
  const std::size_t size = bulk_size();
  if (enough_room(0, {size, size, bulk_used(direction_.sending.bulk_tail.load(std::memory_order_relaxed))}))
    return false;  // slots are what it lacks
  grow_area();
  return true;
}

bool Sender::has_room_now(Room wanted, Growth growth) const {
  const SendState& state = direction_.sending;
  const ReceiveState& theirs = direction_.receiving;
  // As much as the sender knows already is enough, most of the time: no look at the receiver's line.
  const std::size_t size = bulk_size(), most = std::max(size, bulk_most());
  const auto enough = [&](std::uint32_t slots_used, std::size_t bulk_used) {
    return enough_room(slots_used, {size, most, bulk_used}, wanted);
  };
  if (enough(unread(tail().position()), bulk_used(state.bulk_tail.load(std::memory_order_relaxed)))) return true;
  const std::uint64_t read = theirs.bulk_head.load(std::memory_order_acquire);
  const std::uint32_t slots_used = tail().position() - Spot(theirs.head.load(std::memory_order_acquire)).position();
  const bool grows = growth == Growth::counted && size < most;
  return enough(slots_used, grows ? 0 : bulk_unread(state.bulk_tail.load(std::memory_order_relaxed), read));
}

void Sender::want_room() {
  const SendState& state = direction_.sending;
  RoomWait& room = direction_.room;
  const std::uint64_t used = bulk_used(state.bulk_tail.load(std::memory_order_relaxed));
  room.head_wanted.store(tail().position() - kManySlots / 2, std::memory_order_relaxed);
  const std::size_t half = bulk_size() / 2;
  room.bulk_wanted.store(used > half ? state.bulk_tail.load(std::memory_order_relaxed) - half : 0,
                         std::memory_order_relaxed);
}

// The headers are the truth: what is published counts, whether or not its sender came to note it; the second half of a
// message whose first is missing does not. Nothing more is put into a slot that may have grown. And whoever wanted the
// peer's receiving lock, as one does under this lock only, wants it no more.
void Sender::recover() {
  const int side = &direction_ == &memory_.direction(0) ? 0 : 1;
  memory_.control().end[side].request.fetch_and(~std::uint32_t{kEmptying});
  Spot at = tail();
  const auto length = [this](std::uint32_t position, std::uint8_t index) { return slots_.length(position, index); };
  // By what it says itself, it is there: goes on behind it.
  const auto go_on = [&](std::uint32_t said) {
    const std::uint8_t next = slots_.next(at.index(), said);
    if (is_few(next) != is_few(at.index())) note_left(direction_.sending, at.index());
    went_on(at, next, 0);
    at = tail();
  };
  if (const std::uint32_t first = length(at.position(), at.index()); first != Slots::kUnpublished) {
    go_on(first);
    if (const std::uint32_t second = length(at.position(), at.index()); second != Slots::kUnpublished) go_on(second);
  } else {
    // The second of two went where the first, which had no place to say so, leads without a word.
    for (const std::uint8_t index : {next_around(at.index()), next_straight(at.index())})
      if (Slots::is_of(slots_.look(index), at.position() + 1)) clear(at.position() + 1, index);
  }
  direction_.sending.growing.store(0, std::memory_order_relaxed);
  // The area was not begun anew after all.
  if (direction_.sending.bulk_tail.load(std::memory_order_relaxed) <
      direction_.tally.anew_to.load(std::memory_order_relaxed))
    direction_.tally.anew_to.store(0, std::memory_order_relaxed);
}

}  // namespace viaduct::sockets
