#include "sockets/receiver.hpp"

#include <cstring>

#include "base/copy_loop.hpp"

namespace viaduct::sockets {

bool Receiver::look(Spot at, Look& look) {
  const std::uint32_t said = slots_.length(at.position(), at.index());
  if (said == Slots::kUnpublished) return false;
  const std::byte* const payload = slots_.payload(at.index());
  const std::uint32_t length = bytes_of(said);
  if ((said & kInBulk) == 0) {
    if (said >= kInlineLimit || length > kInlineBytes || length == 0) return broken_ = true, false;
    look = {payload, length, 0, false};
    return true;
  }
  BulkPlace place;
  std::memcpy(&place, payload, sizeof place);
  if (length == 0 || length > kLargestChunk || place.offset > bulk_bytes_ || length > bulk_bytes_ - place.offset)
    return broken_ = true, false;
  look = {bulk_ + place.offset, length, place.position + whole_lines(length), place.in_memory != 0};
  return true;
}

std::size_t Receiver::read(Pieces& pieces, Take take) {
  ReceiveState& state = direction_.receiving;
  Spot at = head();
  std::size_t taken = at.taken();
  std::size_t total = 0;
  const Ahead ahead = pieces.bytes_left() < kLong ? Ahead::read : Ahead::both;
  for (Look found; !pieces.done() && look(at, found);) {
    __builtin_prefetch(slots_.at(at.neighbour()));
    if (taken > found.length) {
      broken_ = true;
      break;
    }
    if (taken == found.length) {
      // Done with this one only when there is a next: until then it may grow, and may have grown just now.
      const std::uint32_t next = slots_.length(at.position() + 1, at.neighbour());
      if (next == Slots::kUnpublished) break;
      if (!look(at, found) || found.length != taken) continue;
      taken = 0;
      at = behind(at, next);
      if (take == Take::peek) continue;
      if ((next & (kWithTrailer | kInBulk)) != 0)
        heed(SlotTrailer(slots_.trailer(at.index()).load(std::memory_order_relaxed)));
      set_head(at);
      continue;
    }
    const std::size_t part = std::min(found.length - taken, pieces.size());
    if (take != Take::discard) {
      if (part <= kInlineBytes)
        copy_small(pieces.data(), found.data + taken, part);
      else
        copy_through_ring(pieces.data(), found.data + taken, part, found.in_memory ? Ahead::nothing : ahead);
    }
    pieces.advance(part);
    total += part;
    taken += part;
    const bool chunk_done = taken == found.length && found.bulk_end != 0;
    if (chunk_done && take != Take::peek) {
      set_head(at.with(taken));
      state.bulk_head.store(found.bulk_end, std::memory_order_release);  // R2
    }
  }
  if (take != Take::peek && total != 0) set_head(at.with(taken));
  return total;
}

void Receiver::recover() {
  const Spot at = head();
  if (Look found; look(at, found) && found.bulk_end != 0 && at.taken() == found.length)
    direction_.receiving.bulk_head.store(found.bulk_end, std::memory_order_release);  // R2
}

// In a stream the slots follow each other, but for the few, which are left out. One look, where it does no harm: those
// in between are the sender's to fill.
bool Receiver::is_behind_by(std::uint32_t slots) const {
  const Spot at = head();
  const auto is_there = [&](std::uint32_t index) {
    return slots_.length(at.position() + slots, static_cast<std::uint8_t>(index)) != Slots::kUnpublished;
  };
  return is_there(at.index() + slots) || is_there(at.index() + slots + kFewSlots);
}

std::size_t Receiver::bytes_ready() {
  Spot at = head();
  const std::size_t taken = at.taken();
  std::size_t sum = 0;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const std::uint32_t next = slots_.length(at.position() + 1, at.neighbour());  // then this one grows no more
    Look found;
    if (!look(at, found)) break;
    sum += found.length;
    if (next == Slots::kUnpublished) break;
    at = behind(at, next);
  }
  return sum > taken ? sum - taken : 0;
}

// Position, length and index of the last slot, in this order: it goes on from there, where it is not given back yet.
std::uint64_t Receiver::frontier(std::uint64_t from) const {
  constexpr int kIndexBits = 8, kLengthBits = 15;
  const auto position = static_cast<std::uint32_t>(from >> (kIndexBits + kLengthBits));
  Spot at = head();
  if (position - at.position() - 1 < kSlots) {
    const auto index = static_cast<std::uint8_t>(from);
    if (const std::uint32_t said = slots_.length(position, index); said != Slots::kUnpublished)
      at = Spot(position, index, slots_.next(index, said));
  }
  std::uint32_t said = slots_.length(at.position(), at.index());
  if (said == Slots::kUnpublished) return from;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const std::uint32_t next = slots_.length(at.position() + 1, at.neighbour());
    if (next == Slots::kUnpublished) break;
    at = behind(at, next);
  }
  said = slots_.length(at.position(), at.index());
  if (said == Slots::kUnpublished) return from;
  const std::uint64_t length = std::min<std::uint64_t>(bytes_of(said), (1U << kLengthBits) - 1);
  return (std::uint64_t{at.position()} << kLengthBits | length) << kIndexBits | at.index();
}

std::uint32_t Receiver::senders_waiting_for_this(bool ring_is_empty) {
  RoomWait& room = direction_.room;
  const bool enough = static_cast<std::int32_t>(head().position() - room.head_wanted.load()) >= 0 &&
                      direction_.receiving.bulk_head.load(std::memory_order_relaxed) >= room.bulk_wanted.load();
  return enough || ring_is_empty ? room.armed.exchange(0) : 0;
}

}  // namespace viaduct::sockets
