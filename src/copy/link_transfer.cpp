// Chunks are taken off a slot's counter and copied: by whoever calls in on either side, and by the engine.
#include <sys/uio.h>
#include <viaduct/copy.hpp>

#include <algorithm>

#include "base/copy_loop.hpp"
#include "copy/kernels.hpp"
#include "copy/link.hpp"

namespace viaduct::copy {

using namespace link_format;

namespace {

// From here on the bytes would push everything else out of the cache.
constexpr std::size_t kStreamFrom = std::size_t{16} << 20;

// Up to here a post copies what it can at once: handing it to the engine would take as long.
constexpr std::size_t kAtOnce = std::size_t{128} << 10;

void copy_mapped(std::byte* to, const std::byte* from, std::size_t size, std::size_t whole) {
  if (whole >= kStreamFrom)
    copy_streaming(to, from, size, Copier::shared);
  else
    copy_through_ring(to, from, size);
}

int error_of(PeerMemory::Moved moved) {
  switch (moved) {
    case PeerMemory::Moved::all:
      return 0;
    case PeerMemory::Moved::no_way:
      return EPERM;
    case PeerMemory::Moved::fault:
      return EFAULT;
    case PeerMemory::Moved::gone:
      break;
  }
  return ECONNRESET;
}

struct Range {
  std::size_t offset;
  std::size_t size;
};

Range range_of(const Transfer& transfer, std::uint32_t chunk) {
  const std::size_t whole = chunk_size(transfer.moving), offset = chunk * whole;
  return {offset, std::min(whole, transfer.moving - offset)};
}

}  // namespace

// Goes on with a matched transfer. True: something changed, the lock may have been released in between.
bool Link::advance(Lane& lane, Transfer& transfer, Lock& lock, Effort effort) {
  const std::uint64_t seen = lane.slot(transfer).next.load(std::memory_order_acquire);
  const NextWord next = NextWord::from(seen);
  if (next.stamp == short_stamp(stamp_of(transfer.sequence))) {
    if (next.taken == NextWord::kBounce) return lane.direction == Direction::write && bounce_out(lane, transfer);
    if (next.taken == NextWord::kWithdrawn) return fail(ECONNRESET), true;
    if (next.taken > transfer.chunks) return corrupt(), true;
    if (next.taken == transfer.chunks) return false;
  } else if (next.stamp != short_stamp(older_stamp_of(transfer.sequence))) {
    return corrupt(), true;
  } else if (transfer.reach == Reach::none) {
    return choose_bounce(lane, transfer, seen);
  }
  if (transfer.reach == Reach::none) return false;
  const bool caller_goes_on = effort == Effort::post || effort == Effort::check;
  if (caller_goes_on && transfer.reach == Reach::mapped && transfer.moving > kAtOnce) {
    if (transfer.pumping) return false;
    transfer.pumping = true;
    ++transfer.copies, ++copies_;
    to_pump_.emplace_back(&lane, &transfer);
    return false;
  }
  return may_take(lane, transfer, effort) && copy_one_chunk(lane, transfer, lock);
}

// The peer spins on this very transfer and can copy it without a system call. It is best done by the reader, in whose
// cache the bytes are wanted, and by whoever needs no system call.
bool Link::peer_does_it(Lane& lane, const Transfer& transfer) const {
  if (transfer.peer_reach != Reach::mapped) return false;
  if (transfer.reach == Reach::mapped && lane.direction == Direction::read) return false;
  const std::uint64_t waits = lane.theirs(lane.slot(transfer)).waits.load(std::memory_order_relaxed);
  return waits == stamp_of(transfer.sequence) && peer_side().sleeping.load(std::memory_order_relaxed) == 0;
}

bool Link::may_take(Lane& lane, const Transfer& transfer, Effort effort) {
  if (transfer.chunks == 1) {
    if (effort == Effort::last_resort || !peer_does_it(lane, transfer)) return true;
    left_to_peer_ = true;
    return false;
  }
  switch (effort) {
    case Effort::post:
      // Long system calls are left to whoever waits, unless the peer could do nothing.
      return transfer.moving <= kAtOnce || transfer.peer_reach == Reach::none;
    case Effort::check:
      return true;
    case Effort::post_and_wait:
      return false;
    case Effort::wait:
    case Effort::last_resort:
      return true;
  }
  return false;
}

// Nothing: all taken, or not ours to take. Needs no lock.
std::optional<std::uint32_t> Link::take_chunk(MatchSlot& slot, const Transfer& transfer) {
  const std::uint32_t stamp = short_stamp(stamp_of(transfer.sequence));
  std::uint64_t seen = slot.next.load(std::memory_order_acquire);
  for (;;) {
    NextWord next = NextWord::from(seen);
    if (next.stamp == short_stamp(older_stamp_of(transfer.sequence))) next = {stamp, 0};
    if (next.stamp != stamp || next.taken >= transfer.chunks) return std::nullopt;
    if (slot.next.compare_exchange_weak(seen, NextWord{stamp, next.taken + 1}.word(), std::memory_order_acq_rel))
      return next.taken;
  }
}

// A short transfer whose other half is there already: copied before ours is even posted, so that the two sides do not
// both reach for it. Not by a writer whose reader could: it may be looking, and then is faster.
bool Link::do_at_once(Lane& lane, Transfer& transfer) {
  if (lane.direction == Direction::write && transfer.place.index >= 0) return false;
  MatchSlot& slot = lane.slot(transfer);
  if (lane.theirs(slot).stamp.load(std::memory_order_acquire) != stamp_of(transfer.sequence)) return false;
  if (!match(lane, transfer) || transfer.state != Transfer::State::matched) return false;
  if (transfer.reach != Reach::mapped || transfer.moving > kUnderLock) return false;
  const auto chunk = take_chunk(slot, transfer);
  if (!chunk) return false;
  (void)copy_chunk(lane, transfer, *chunk);
  fill_half(lane, transfer);
  lane.ours(slot).stamp.store(stamp_of(transfer.sequence), std::memory_order_release);  // R1
  chunk_done(slot, transfer, 0);
  (void)finish_if_done(lane, transfer);
  return true;
}

bool Link::copy_one_chunk(Lane& lane, Transfer& transfer, Lock& lock) {
  MatchSlot& slot = lane.slot(transfer);
  const auto chunk = take_chunk(slot, transfer);
  if (!chunk) return false;
  ++transfer.copies, ++copies_;
  const bool brief = transfer.reach == Reach::mapped && range_of(transfer, *chunk).size <= kUnderLock;
  if (!brief) lock.unlock();
  const int error = copy_chunk(lane, transfer, *chunk);
  chunk_done(slot, transfer, error);
  if (!brief) lock.lock();
  --transfer.copies, --copies_;
  (void)finish_if_done(lane, transfer);
  if (error == ECONNRESET) fail(ECONNRESET);
  if (closing_) tell_local();
  return true;
}

int Link::copy_chunk(const Lane& lane, const Transfer& transfer, std::uint32_t chunk) {
  const auto [offset, size] = range_of(transfer, chunk);
  if (size == 0) return 0;
  std::byte* const here = transfer.buffer + offset;
  const bool writing = lane.direction == Direction::write;
  if (transfer.reach == Reach::mapped) {
    std::byte* const there = transfer.peer_mapped + offset;
    copy_mapped(writing ? there : here, writing ? here : there, size, transfer.moving);
    return 0;
  }
  const iovec piece{here, size};
  return error_of(peer_->move_by_cma(writing ? PeerMemory::Direction::write : PeerMemory::Direction::read,
                                     transfer.peer_address + offset, {&piece, 1}, size, control_->fd()));
}

// The last of all chunks ends the transfer, for both sides. Needs no lock.
void Link::chunk_done(MatchSlot& slot, const Transfer& transfer, int error) {
  const std::uint32_t stamp = short_stamp(stamp_of(transfer.sequence));
  const Path path = transfer.moving == 0 ? Path::none : transfer.reach == Reach::mapped ? Path::mapped : Path::cma;
  slot.result.store(ResultWord{path, transfer.moving}.word(), std::memory_order_relaxed);
  if (transfer.chunks == 1) {
    slot.done.store(DoneWord{stamp, true, static_cast<std::uint8_t>(error), 1}.word(),
                    std::memory_order_release);  // R2
    return tell_peer();
  }
  std::uint64_t seen = slot.done.load(std::memory_order_relaxed);
  DoneWord done{};
  do {
    done = DoneWord::from(seen);
    if (done.stamp != stamp) done = {stamp, false, 0, 0};
    done.chunks += done.chunks < transfer.chunks;
    if (error != 0 && done.error == 0) done.error = static_cast<std::uint8_t>(error);
    done.finished = done.finished || done.chunks == transfer.chunks;
  } while (!slot.done.compare_exchange_weak(seen, done.word(), std::memory_order_acq_rel));  // R2
  if (done.finished) tell_peer();
}

// ---- in the background

// Runs by itself: first in the thread that posted, then in the engine's, which resumes it after each chunk.
struct Link::Pump {
  struct promise_type {
    Pump get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Link::Pump Link::pump(Lane& lane, Transfer& transfer) {
  MatchSlot& slot = lane.slot(transfer);
  const bool writing = lane.direction == Direction::write;
  copy::Options options;
  options.channel = Choice::cpu;
  options.intent = transfer.moving >= kStreamFrom ? Intent::stream : Intent::keep;
  for (auto chunk = take_chunk(slot, transfer); chunk; chunk = take_chunk(slot, transfer)) {
    const auto [offset, size] = range_of(transfer, *chunk);
    std::byte* const here = transfer.buffer + offset;
    std::byte* const there = transfer.peer_mapped + offset;
    Operation operation = start(writing ? here : there, writing ? there : here, size, options);
    const std::error_code fault = co_await operation;
    if (fault) (void)copy_chunk(lane, transfer, *chunk);  // the engine is full: then here
    chunk_done(slot, transfer, 0);
  }
  const Lock lock(mutex_);
  transfer.pumping = false;
  --transfer.copies, --copies_;
  (void)finish_if_done(lane, transfer);
  tell_local();
}

void Link::start_pumps(Lock& lock) {
  if (to_pump_.empty()) return;
  const auto starting = std::exchange(to_pump_, {});
  lock.unlock();
  for (const auto& [lane, transfer] : starting) (void)pump(*lane, *transfer);
  lock.lock();
}

}  // namespace viaduct::copy
