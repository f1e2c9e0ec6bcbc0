// Bytes of buffers that neither side can reach: the writer copies them into shared memory, the reader out of it.
//
// A piece says whose it is, so pieces of several transfers may follow each other. Both sides do their part inside any
// of their calls: a bounced transfer needs both to call in.
#include <algorithm>

#include "base/copy_loop.hpp"
#include "copy/link.hpp"

namespace viaduct::copy {

using namespace link_format;

// We cannot reach the peer's buffer. Where it should be able to reach ours it gets the chance, and is told so.
bool Link::choose_bounce(Lane& lane, Transfer& transfer, std::uint64_t seen) {
  MatchSlot& slot = lane.slot(transfer);
  const std::uint64_t stamp = stamp_of(transfer.sequence);
  const bool peer_cannot =
      transfer.peer_reach == Reach::none || lane.theirs(slot).cannot_reach.load(std::memory_order_acquire) == stamp;
  if (!peer_cannot) {
    PostedHalf& half = lane.ours(slot);
    if (half.cannot_reach.load(std::memory_order_relaxed) == stamp) return false;
    half.cannot_reach.store(stamp, std::memory_order_seq_cst);
    tell_peer();
    return true;
  }
  if (!slot.next.compare_exchange_strong(seen, NextWord{short_stamp(stamp), NextWord::kBounce}.word(),
                                         std::memory_order_acq_rel))
    return true;  // the peer decided first: look again
  tell_peer();
  return true;
}

bool Link::bounce_out(Lane& lane, Transfer& transfer) {
  BounceRing& ring = lane.table->bounce;
  const std::uint64_t emptied = ring.emptied.load(std::memory_order_acquire);  // A4
  if (lane.pieces - emptied > kPieces) return corrupt(), true;
  bool moved = false;
  for (; transfer.bounced < transfer.moving && lane.pieces - emptied < kPieces; moved = true) {
    const std::size_t place = lane.pieces % kPieces;
    const std::size_t size = std::min(kPiece, transfer.moving - transfer.bounced);
    copy_through_ring(lane.bounce + place * kPiece, transfer.buffer + transfer.bounced, size);
    PieceHeader& header = ring.headers[place];
    header.stamp.store(stamp_of(transfer.sequence), std::memory_order_relaxed);
    header.offset.store(transfer.bounced, std::memory_order_relaxed);
    header.length.store(size, std::memory_order_relaxed);
    transfer.bounced += size;
    ring.filled.store(++lane.pieces, std::memory_order_release);  // R3
    tell_peer();
  }
  return moved;
}

bool Link::bounce_in(Lane& lane) {
  BounceRing& ring = lane.table->bounce;
  const std::uint64_t filled = ring.filled.load(std::memory_order_acquire);  // A3
  if (filled == lane.pieces) return false;
  if (filled - lane.pieces > kPieces) return corrupt(), true;
  while (lane.pieces != filled && error_ == 0) {
    const std::size_t place = lane.pieces % kPieces;
    const PieceHeader& header = ring.headers[place];
    const std::uint64_t sequence = header.stamp.load(std::memory_order_relaxed) - 1;
    const std::uint64_t offset = header.offset.load(std::memory_order_relaxed);
    const std::uint64_t size = header.length.load(std::memory_order_relaxed);
    if (sequence < lane.first_unfinished || sequence >= lane.next_to_post) return corrupt(), true;
    Transfer& transfer = lane.at(sequence);
    if (transfer.state == Transfer::State::posted) (void)match(lane, transfer);
    if (error_ != 0) return true;
    if (transfer.state != Transfer::State::matched || offset != transfer.bounced || size == 0 || size > kPiece ||
        size > transfer.moving - transfer.bounced)
      return corrupt(), true;
    copy_through_ring(transfer.buffer + offset, lane.bounce + place * kPiece, size);
    transfer.bounced += size;
    ring.emptied.store(++lane.pieces, std::memory_order_release);  // R4
    if (transfer.bounced == transfer.moving) {
      MatchSlot& slot = lane.slot(transfer);
      slot.result.store(ResultWord{Path::bounce, transfer.moving}.word(), std::memory_order_relaxed);
      const DoneWord done{short_stamp(stamp_of(sequence)), true, 0, 0};
      slot.done.store(done.word(), std::memory_order_release);  // R2
      (void)finish_if_done(lane, transfer);
    }
    tell_peer();
  }
  return true;
}

}  // namespace viaduct::copy
