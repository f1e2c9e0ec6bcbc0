#include "sockets/stream.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/copy_loop.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::size_t kLeastChunk = 4096;  // do not cut large messages smaller than this
constexpr std::size_t kStartOverAfter = std::size_t{64}
                                        << 10;  // bytes used before an empty bulk area starts at 0 again
constexpr std::uint64_t kFrontierStep = std::uint64_t{1} << 20;  // more than a slot can say
constexpr std::size_t kCommitStep = std::size_t{64} << 10;
constexpr std::size_t kTimesTheCache = 4;

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

// So many as the chunk has room for.
void copy_all(Pieces& pieces, std::span<std::byte> chunk) {
  while (!chunk.empty()) {
    const std::size_t part = std::min(chunk.size(), pieces.size());
    copy_into_ring(chunk.data(), pieces.data(), part);
    pieces.advance(part);
    chunk = chunk.subspan(part);
  }
}

}  // namespace

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

// ---- sending

// More than the area has: a peer wrote nonsense, and gets no more bytes.
std::size_t Sender::bulk_used(std::uint64_t tail) const {
  const SendState& state = direction_.sending;
  const std::uint64_t head =
      std::max(state.seen_bulk_head.load(std::memory_order_relaxed), state.bulk_floor.load(std::memory_order_relaxed));
  return static_cast<std::size_t>(std::min<std::uint64_t>(tail - head, bulk_size()));
}

bool Sender::commit(std::size_t bytes) {
  std::atomic<std::uint64_t>& committed = direction_.sending.committed;
  const std::uint64_t have = std::min<std::uint64_t>(committed.load(std::memory_order_relaxed), memory_.bulk_bytes);
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
  committed.store(want, std::memory_order_relaxed);
  return true;
}

std::span<std::byte> Sender::claim_bulk(std::size_t most, std::uint32_t slots) {
  SendState& state = direction_.sending;
  const std::size_t size = bulk_size();
  if (!slot_free(slots)) return {};
  most = std::min(most, kLargestChunk);
  const std::size_t least = std::min(whole_lines(most), kLeastChunk);
  std::uint64_t tail = state.bulk_tail.load(std::memory_order_relaxed);
  const auto free = [&] {
    const std::size_t used = bulk_used(tail);
    return used == 0 ? size : size - std::min(size, used + kLine);  // crowd()
  };
  const std::size_t skipped = size - tail % size < least ? size - tail % size : 0;
  if (free() < least + skipped || tail % size >= kStartOverAfter) refresh(direction_);
  // All of it was read: start over, so that a connection with little to say stays within little memory and cache.
  if (tail % size >= kStartOverAfter && bulk_used(tail) == 0) {
    tail += size - tail % size;
    state.bulk_floor.store(tail, std::memory_order_relaxed);
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
  state.bulk_tail.store(tail, std::memory_order_relaxed);
  return {bulk_ + offset, room};
}

void Sender::publish_bulk(std::size_t bytes, std::size_t claimed) {
  SendState& state = direction_.sending;
  const std::uint64_t position = state.bulk_tail.load(std::memory_order_relaxed);
  const std::uint64_t tail = state.tail.load(std::memory_order_relaxed);
  const BulkPlace place{position, position % bulk_size()};
  std::memcpy(slot(tail) + 8, &place, sizeof place);
  state.bulk_tail.store(position + whole_lines(claimed), std::memory_order_relaxed);
  publish(tail, bytes | kInBulk);
  state.tail.store(tail + 1, std::memory_order_relaxed);
  state.growing.store(0, std::memory_order_relaxed);
}

// A chunk that was claimed larger than it is, in the last slot: the receiver keeps its place there until there is a
// next. A receiver that has read what there was gives back whole lines, also one into which more comes later. So the
// last line of such a chunk stays empty, as does one of the area: nothing is ever put over bytes that are unread. What
// the memory says is a peer's to change, so it must make sense.
Sender::Crowd Sender::crowd(std::size_t most) {
  const SendState& state = direction_.sending;
  const std::uint64_t tail = state.tail.load(std::memory_order_relaxed);
  const auto found = std::bit_cast<SlotHeader>(header(tail - 1).load(std::memory_order_relaxed));
  if (found.stamp != static_cast<std::uint16_t>(tail) || (found.length & kInBulk) == 0) return {};
  BulkPlace place;
  std::memcpy(&place, slot(tail - 1) + 8, sizeof place);
  const std::size_t size = bulk_size(), length = found.length & ~std::uint32_t{kInBulk};
  const std::uint64_t claimed = state.bulk_tail.load(std::memory_order_relaxed) - place.position;
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
      const std::uint64_t position = direction_.sending.tail.load(std::memory_order_relaxed) - 1;
      publish(slot(position), before.mark, position, (before.length + chunk.size()) | kInBulk);
    } else {
      const std::span<std::byte> claimed = claim_bulk(kLargestChunk, kSlots);
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

std::size_t Sender::write(Pieces& pieces) {
  std::size_t total = 0;
  for (std::size_t left = pieces.bytes_left(); left != 0;) {
    std::size_t sent = 0;
    const std::span<std::byte> chunk = left > kSmallMessage ? claim_bulk(left) : std::span<std::byte>{};
    if (!chunk.empty()) {
      copy_all(pieces, chunk);
      sent = chunk.size();
      publish_bulk(sent, sent);
    } else {
      // No room in the bulk area: wait for it rather than cut a large message into lines, unless there is no memory.
      if (left > kSmallMessage && !lacks_memory_) break;
      std::byte lines[kSmallMessage];
      Pieces after = pieces;
      while (sent < sizeof lines && !after.done()) {
        const std::size_t part = std::min(sizeof lines - sent, after.size());
        std::memcpy(lines + sent, after.data(), part);
        after.advance(part);
        sent += part;
      }
      if (!(sent <= kInlineBytes ? write_into_slot(lines, sent) : write_into_two_slots(lines, sent))) break;
      pieces = after;
    }
    left -= sent;
    total += sent;
  }
  if (total != 0) count(total);
  return total;
}

namespace {

bool enough_room(std::uint64_t slots_used, std::size_t bulk_size, std::size_t bulk_used,
                 Sender::Room wanted = Sender::Room::some) {
  const bool third = wanted == Sender::Room::a_third;
  const std::uint64_t slots = third                                        ? kSlots / 3
                              : wanted == Sender::Room::a_quarter_of_slots ? kSlots / 4
                                                                           : kSlotsForCrowds + 2;
  const std::size_t bulk = third ? bulk_size / 3 : std::min(3 * kLargestChunk, bulk_size / 4);
  return slots_used <= kSlots - slots && bulk_size - bulk_used >= bulk;
}

}  // namespace

bool Sender::has_room() {
  const auto enough = [this] {
    const SendState& state = direction_.sending;
    return enough_room(state.tail.load(std::memory_order_relaxed) - state.seen_head.load(std::memory_order_relaxed),
                       bulk_size(), bulk_used(state.bulk_tail.load(std::memory_order_relaxed)));
  };
  if (enough()) return true;
  refresh(direction_);
  return enough();
}

bool Sender::has_room_now(Room wanted) const {
  const SendState& state = direction_.sending;
  const ReceiveState& theirs = direction_.receiving;
  // As much as the sender knows already is enough, most of the time: no look at the receiver's line.
  const std::uint64_t used =
      state.tail.load(std::memory_order_relaxed) - state.seen_head.load(std::memory_order_relaxed);
  const std::size_t size = bulk_size();
  if (enough_room(used, size, bulk_used(state.bulk_tail.load(std::memory_order_relaxed)), wanted)) return true;
  const std::uint64_t head =
      std::max(theirs.bulk_head.load(std::memory_order_acquire), state.bulk_floor.load(std::memory_order_relaxed));
  return enough_room(state.tail.load(std::memory_order_relaxed) - theirs.head.load(std::memory_order_acquire), size,
                     std::min<std::uint64_t>(state.bulk_tail.load(std::memory_order_relaxed) - head, size), wanted);
}

void Sender::want_room() {
  const SendState& state = direction_.sending;
  RoomWait& room = direction_.room;
  const std::uint64_t used = bulk_used(state.bulk_tail.load(std::memory_order_relaxed));
  room.head_wanted.store(state.tail.load(std::memory_order_relaxed) - kSlots / 2, std::memory_order_relaxed);
  const std::size_t half = bulk_size() / 2;
  room.bulk_wanted.store(used > half ? state.bulk_tail.load(std::memory_order_relaxed) - half : 0,
                         std::memory_order_relaxed);
}

// The headers are the truth: what is published counts, whether or not its sender came to note it; the second half of a
// message whose first is missing does not. Nothing more is put into a slot that may have grown.
void Sender::recover() {
  SendState& state = direction_.sending;
  std::uint64_t tail = state.tail.load(std::memory_order_relaxed);
  const auto is_published = [this](std::uint64_t position) {
    const auto there = std::bit_cast<SlotHeader>(header(position).load(std::memory_order_relaxed));
    return there.stamp == static_cast<std::uint16_t>(position + 1);
  };
  if (!is_published(tail)) {
    if (is_published(tail + 1)) header(tail + 1).store(0, std::memory_order_relaxed);
  } else {
    tail += is_published(tail + 1) ? 2 : 1;
  }
  state.tail.store(tail, std::memory_order_relaxed);
  state.growing.store(0, std::memory_order_relaxed);
}

// ---- receiving

bool Receiver::look(std::uint64_t position, Look& look) {
  const std::uint32_t header = slot_length(position);
  if (header == kUnpublished) return false;
  const std::byte* const payload = slot(position) + 8;
  if ((header & kInBulk) == 0) {
    if (header > kInlineBytes) return broken_ = true, false;
    look = {payload, header, 0};
    return true;
  }
  BulkPlace place;
  std::memcpy(&place, payload, sizeof place);
  const std::uint32_t length = header & ~std::uint32_t{kInBulk};
  if (length > kLargestChunk || place.offset > bulk_bytes_ || length > bulk_bytes_ - place.offset)
    return broken_ = true, false;
  look = {bulk_ + place.offset, length, place.position + whole_lines(length)};
  return true;
}

std::size_t Receiver::read(Pieces& pieces, Take take) {
  ReceiveState& state = direction_.receiving;
  std::uint64_t head = state.head.load(std::memory_order_relaxed);
  std::size_t consumed = state.consumed.load(std::memory_order_relaxed);
  std::size_t total = 0;
  for (Look found; !pieces.done() && look(head, found);) {
    __builtin_prefetch(slot(head + 1));
    if (consumed > found.length) {
      broken_ = true;
      break;
    }
    if (consumed == found.length) {
      // Done with this one only when there is a next: until then it may grow, and may have grown just now.
      if (slot_length(head + 1) == kUnpublished) break;
      if (!look(head, found) || found.length != consumed) continue;
      consumed = 0;
      ++head;
      if (take == Take::peek) continue;
      state.consumed.store(0, std::memory_order_relaxed);
      state.head.store(head, std::memory_order_release);  // R2
      continue;
    }
    const std::size_t part = std::min(found.length - consumed, pieces.size());
    if (take != Take::discard) {
      if (part <= kInlineBytes)
        copy_small(pieces.data(), found.data + consumed, part);
      else
        copy_through_ring(pieces.data(), found.data + consumed, part);
    }
    pieces.advance(part);
    total += part;
    consumed += part;
    const bool chunk_done = consumed == found.length && found.bulk_end != 0;
    if (chunk_done && take != Take::peek) state.bulk_head.store(found.bulk_end, std::memory_order_release);  // R2
  }
  if (take != Take::peek) state.consumed.store(static_cast<std::uint32_t>(consumed), std::memory_order_relaxed);
  return total;
}

std::size_t Receiver::bytes_ready() {
  std::uint64_t head = direction_.receiving.head.load(std::memory_order_relaxed);
  const std::size_t consumed = direction_.receiving.consumed.load(std::memory_order_relaxed);
  std::size_t sum = 0;
  Look found;
  for (std::uint32_t i = 0; i < kSlots && look(head, found); ++i, ++head) sum += found.length;
  return sum > consumed ? sum - consumed : 0;
}

std::uint64_t Receiver::frontier(std::uint64_t from) const {
  std::uint64_t position = std::max(from / kFrontierStep, direction_.receiving.head.load(std::memory_order_relaxed));
  for (std::uint32_t i = 0; i < kSlots && slot_length(position + 1) != kUnpublished; ++i) ++position;
  const std::uint32_t length = slot_length(position);
  if (length == kUnpublished) return from;
  return position * kFrontierStep + std::min<std::uint64_t>(length & ~std::uint32_t{kInBulk}, kFrontierStep - 1);
}

std::uint32_t Receiver::senders_waiting_for_this(bool ring_is_empty) {
  RoomWait& room = direction_.room;
  const ReceiveState& state = direction_.receiving;
  const bool enough =
      static_cast<std::int64_t>(state.head.load(std::memory_order_relaxed) - room.head_wanted.load()) >= 0 &&
      state.bulk_head.load(std::memory_order_relaxed) >= room.bulk_wanted.load();
  return enough || ring_is_empty ? room.armed.exchange(0) : 0;
}

}  // namespace viaduct::sockets
