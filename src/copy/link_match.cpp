// The other half is seen: what moves, and who can reach whose buffer. And its end is seen.
#include <algorithm>

#include "copy/link.hpp"

namespace viaduct::copy {

using namespace link_format;

bool Link::progress(Lock& lock, Effort effort) {
  for (Lane& lane : lanes_)
    if (progress(lane, lock, effort)) return true;
  return false;
}

// Matches are made in order: where one half is missing, all later ones are.
bool Link::progress(Lane& lane, Lock& lock, Effort effort) {
  if (error_ != 0) return end_everything(lane);
  bool changed = admit(lane);
  for (std::uint64_t sequence = lane.first_unfinished; sequence < lane.next_to_post; ++sequence) {
    Transfer& transfer = lane.at(sequence);
    if (transfer.ended()) continue;
    if (finish_if_done(lane, transfer)) {
      changed = true;
    } else if (transfer.state == Transfer::State::posted) {
      if (!match(lane, transfer)) break;
      changed = true;
    }
    // A chunk was copied, perhaps without the lock: nothing seen before may be relied on.
    if (error_ != 0 || (!transfer.ended() && advance(lane, transfer, lock, effort))) return true;
  }
  if (lane.direction == Direction::read && bounce_in(lane)) return true;
  return changed;
}

// True: matched, or ended, or the link has failed.
bool Link::match(Lane& lane, Transfer& transfer) {
  PostedHalf& half = lane.theirs(lane.slot(transfer));
  const std::uint64_t stamp = half.stamp.load(std::memory_order_seq_cst);  // A1, P2
  const std::uint64_t expected = stamp_of(transfer.sequence);
  if (stamp == older_stamp_of(transfer.sequence)) return false;
  // The peer uses the slot again already: then ours has ended there.
  const bool reused = stamp == expected + kSlots;
  if (stamp != expected && !reused) return corrupt(), true;
  const std::uint64_t length = half.length.load(std::memory_order_acquire);
  const std::uint64_t region = half.region.load(std::memory_order_acquire);
  const std::uint64_t offset = half.offset.load(std::memory_order_acquire);
  transfer.peer_address = half.address.load(std::memory_order_acquire);
  // While these were read, the peer may have begun to overwrite them: then it has seen the end, and so do we.
  if (finish_if_done(lane, transfer)) return true;
  if (reused || length > kLongest) return corrupt(), true;

  transfer.moving = std::min<std::size_t>(transfer.length, length);
  transfer.chunks = static_cast<std::uint32_t>(chunk_count(transfer.moving));
  if (resolve(lane, transfer, region, offset)) transfer.state = Transfer::State::matched;
  return true;
}

bool Link::resolve(Lane& lane, Transfer& transfer, std::uint64_t region, std::uint64_t offset) {
  transfer.peer_reach = transfer.place.index >= 0 ? Reach::mapped : peer_reaches_ ? Reach::cma : Reach::none;
  transfer.reach = peer_->reaches_by_cma() ? Reach::cma : Reach::none;
  if (transfer.moving == 0) return transfer.reach = Reach::mapped, true;  // nothing to reach
  if (region == 0) return true;

  // The descriptor was sent before the post that names it.
  PeerRegions::Found found = peer_regions_.find(region);
  if (!found.known) {
    const bool open = drain_control();
    if (error_ != 0) return false;
    found = peer_regions_.find(region);
    if (!found.known && finish_if_done(lane, transfer)) return false;  // an overwritten half, see match()
    if (!found.known) return open ? corrupt() : fail(ECONNRESET), false;
  }
  const std::span<std::byte> bytes = found.segment->payload();
  if (bytes.empty()) return true;
  if (offset > bytes.size() || transfer.moving > bytes.size() - offset) return corrupt(), false;
  transfer.reach = Reach::mapped;
  transfer.peer_mapped = bytes.data() + offset;
  transfer.peer_segment = std::move(found.segment);
  return true;
}

// The end is the peer's word; our own copies of the buffer must be over as well.
bool Link::finish_if_done(Lane& lane, Transfer& transfer) {
  MatchSlot& slot = lane.slot(transfer);
  const DoneWord done = DoneWord::from(slot.done.load(std::memory_order_acquire));  // A2
  if (done.stamp != short_stamp(stamp_of(transfer.sequence))) {
    if (done.stamp == short_stamp(older_stamp_of(transfer.sequence))) return false;
    return corrupt(), true;
  }
  if (transfer.state == Transfer::State::matched && done.chunks > transfer.chunks) return corrupt(), true;
  if (!done.finished || transfer.copies != 0) return false;
  const ResultWord result = ResultWord::from(slot.result.load(std::memory_order_relaxed));
  if (result.moved > transfer.length || result.path > Path::bounce) return corrupt(), true;
  if (result.path != Path::none) last_path_.store(result.path, std::memory_order_relaxed);
  finish(lane, transfer, done.error, done.error == 0 ? result.moved : 0);
  return true;
}

void Link::finish(Lane& lane, Transfer& transfer, int error, std::size_t moved) {
  transfer.state = Transfer::State::finished;
  transfer.error = error;
  transfer.moved = moved;
  transfer.peer_segment.reset();
  given_.release(transfer.place.index);
  transfer.place = {};
  while (lane.first_unfinished < lane.end() &&
         (lane.first_unfinished < lane.first || lane.at(lane.first_unfinished).ended()))
    ++lane.first_unfinished;
  if (callers_ > 1) tell_local();  // else nobody is here but whoever ended it
}

}  // namespace viaduct::copy
