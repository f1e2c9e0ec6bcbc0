#include "via/channel/shm_channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/config.hpp"
#include "base/copy_loop.hpp"
#include "base/fence.hpp"

namespace viaduct::via {

namespace {

// A spinning receiver looks at the socket this rarely, to notice a peer that has gone.
constexpr std::uint32_t kLooksPerSocketCheck = 4096;
constexpr std::uint64_t kRefusalsPerSocketCheck = 64;

// SIZE_MAX where the sum does not fit.
std::size_t length_of(std::span<const iovec> pieces) {
  std::size_t length = 0;
  for (const iovec& piece : pieces)
    if (__builtin_add_overflow(length, piece.iov_len, &length)) return SIZE_MAX;
  return length;
}

std::size_t whole_lines(std::size_t length) {
  return (length + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void gather(std::byte* to, std::span<const iovec> pieces) {
  for (const iovec& piece : pieces) {
    copy_through_ring(to, piece.iov_base, piece.iov_len, Ahead::both);
    to += piece.iov_len;
  }
}

std::uint64_t spin_bound_ns() {
  return Config::process().number("VIADUCT_SPIN_US") * 1000;
}

}  // namespace

Result<std::unique_ptr<ShmChannel>> ShmChannel::attach(Segment segment, ChannelGeometry geometry, int side, Fd socket) {
  VIADUCT_CHECK(geometry.check());
  if (segment.payload().size() < geometry.bytes())
    return Error(EPROTO, fmt::format("channel: the segment has {} bytes where {} are needed", segment.payload().size(),
                                     geometry.bytes()));
  // A peer that does not read its socket must not hold us up.
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0) return Error::from_errno("channel: socket");
  const auto ring = [&](int direction) {
    return segment.payload().subspan(geometry.ring_offset(direction), geometry.ring().bytes());
  };
  VIADUCT_TRY(SlotProducer out, SlotProducer::attach(ring(side), geometry.ring()));
  VIADUCT_TRY(SlotConsumer in, SlotConsumer::attach(ring(1 - side), geometry.ring()));
  return std::unique_ptr<ShmChannel>(
      new ShmChannel(std::move(segment), geometry, side, std::move(socket), std::move(out), std::move(in)));
}

ShmChannel::ShmChannel(Segment segment, ChannelGeometry geometry, int side, Fd socket, SlotProducer out,
                       SlotConsumer in)
    : segment_(std::move(segment)),
      geometry_(geometry),
      side_(side),
      socket_(std::move(socket)),
      out_(std::move(out)),
      bulk_tail_after_(geometry.slots),
      send_waiter_(spin_bound_ns()),
      in_(std::move(in)),
      receive_waiter_(spin_bound_ns()) {}

ShmChannel::~ShmChannel() {
  finish_sending();
  mine().closed.store(1, std::memory_order_release);  // R4, pairs with A4 in look_for_end()
  in_.shared().space.wake_if_armed();
}

CloseReason ShmChannel::close_reason() const {
  if (const CloseReason end = received_end_.load(std::memory_order_relaxed); end != CloseReason::open) return end;
  if (peer_gone()) return theirs().closed.load() != 0 ? CloseReason::peer_finished : CloseReason::peer_died;
  return finished_sending_.load(std::memory_order_relaxed) ? CloseReason::closed_here : CloseReason::open;
}

Channel::Statistics ShmChannel::statistics() const {
  return {fragments_sent_.get(),
          fragments_received_.get(),
          bytes_sent_.get(),
          bytes_received_.get(),
          data_wakes_.get() + space_wakes_.get(),
          refused_full_.get()};
}

// ---- sending

void ShmChannel::note_broken() {
  received_end_.store(CloseReason::broken, std::memory_order_relaxed);
  sending_over_.store(true, std::memory_order_relaxed);
}

void ShmChannel::note_peer_gone() {
  peer_gone_.store(true, std::memory_order_release);
  sending_over_.store(true, std::memory_order_relaxed);
}

Sent ShmChannel::refused() {
  if (out_.corrupt()) note_broken();
  refused_full_.add(1);
  if (refused_full_.get() % kRefusalsPerSocketCheck == 0) look_for_end();  // a peer that is gone makes no room
  return sending_is_over() ? Sent::closed : Sent::full;
}

// A contiguous place: the rest of the area is skipped where the fragment does not fit before its end.
std::uint64_t ShmChannel::place_for(std::size_t length) const {
  const std::size_t left = geometry_.bulk_bytes - bulk_tail_ % geometry_.bulk_bytes;
  return length > left ? bulk_tail_ + left : bulk_tail_;
}

bool ShmChannel::bulk_fits(std::uint64_t position, std::size_t length) {
  if (position + length - bulk_head_ <= geometry_.bulk_bytes) return true;
  if (const std::uint64_t back = out_.given_back(); back > 0)
    bulk_head_ = bulk_tail_after_[(back - 1) & (geometry_.slots - 1)];
  return position + length - bulk_head_ <= geometry_.bulk_bytes;
}

Sent ShmChannel::try_send(std::span<const iovec> pieces, std::uint32_t immediate, bool more) {
  const std::size_t length = length_of(pieces);
  if (sending_is_over() || length > geometry_.largest_fragment()) return Sent::closed;
  const std::uint16_t flag = more ? kMore : 0;
  std::byte* slot = nullptr;
  if (out_.try_claim(slot) != RingState::ok) return refused();
  if (length <= kInlineBytes) {
    std::memcpy(slot, &immediate, sizeof immediate);
    std::byte* to = slot + kInlineOffset;
    for (const iovec& piece : pieces) {
      if (piece.iov_len == 0) continue;
      std::memcpy(to, piece.iov_base, piece.iov_len);
      to += piece.iov_len;
    }
    publish(static_cast<std::uint16_t>(kInline | flag), static_cast<std::uint16_t>(kInlineOffset + length));
  } else {
    const FragmentHeader header{immediate, static_cast<std::uint32_t>(length), place_for(length)};
    if (!bulk_fits(header.position, length)) return refused();
    gather(bulk(side_) + header.position % geometry_.bulk_bytes, pieces);
    std::memcpy(slot, &header, sizeof header);
    bulk_tail_ = header.position + whole_lines(length);
    publish(static_cast<std::uint16_t>(kBulk | flag), sizeof header);
  }
  fragments_sent_.add(1);
  bytes_sent_.add(length);
  return Sent::taken;
}

void ShmChannel::publish(std::uint16_t kind, std::uint16_t length) {
  bulk_tail_after_[out_.position() & (geometry_.slots - 1)] = bulk_tail_;
  out_.publish(kind, length);
  if (out_.shared().data.must_wake()) [[unlikely]]
    wake_receiver();
}

std::size_t ShmChannel::slots_free() {
  const std::uint64_t back = out_.given_back();
  if (out_.corrupt()) note_broken();
  return sending_is_over() ? 0 : geometry_.slots - static_cast<std::size_t>(out_.position() - back);
}

std::size_t ShmChannel::credits(std::size_t length) {
  const std::size_t slots = slots_free();
  if (slots == 0 || length <= kInlineBytes) return slots;
  const std::uint64_t position = place_for(length);
  if (length > geometry_.largest_fragment() || !bulk_fits(position, length)) return 0;
  // No fragment goes round the end of the area: those before it and those after it are counted apart.
  const std::size_t room = geometry_.bulk_bytes - static_cast<std::size_t>(position - bulk_head_);
  const std::size_t before_end = std::min(room, geometry_.bulk_bytes - position % geometry_.bulk_bytes);
  const std::size_t each = whole_lines(length);
  return std::min(slots, before_end / each + (room - before_end) / each);
}

void ShmChannel::finish_sending() {
  if (finished_sending_.exchange(true, std::memory_order_relaxed)) return;
  sending_over_.store(true, std::memory_order_relaxed);
  mine().finished.store(1, std::memory_order_release);  // R3, pairs with A3 in nothing_in_ring()
  if (out_.shared().data.must_wake()) wake_receiver();
}

// ---- receiving

Got ShmChannel::ended(CloseReason reason) {
  CloseReason still = CloseReason::open;
  if (reason == CloseReason::broken)
    note_broken();
  else
    received_end_.compare_exchange_strong(still, reason);  // the sender may have found it broken meanwhile
  return Got::end;
}

Got ShmChannel::nothing_in_ring(SlotConsumer::Message& message) {
  in_.publish_head();
  if (++empty_looks_ % kLooksPerSocketCheck == 0) look_for_end();
  const bool finished = theirs().finished.load(std::memory_order_acquire) != 0;  // A3, pairs with R3
  if (!finished && !peer_gone()) return Got::nothing;
  // What it sent before is still to be received; only then it is the end.
  switch (in_.try_peek(message)) {
    case RingState::ok:
      return Got::fragment;
    case RingState::empty:
      return ended(finished || theirs().closed.load() != 0 ? CloseReason::peer_finished : CloseReason::peer_died);
    default:
      return ended(CloseReason::broken);
  }
}

Got ShmChannel::peek(Fragment& fragment) {
  if (received_end_.load(std::memory_order_relaxed) != CloseReason::open) return Got::end;
  peeked_.valid = false;
  SlotConsumer::Message message;
  if (const RingState state = in_.try_peek(message); state == RingState::empty) {
    if (const Got got = nothing_in_ring(message); got != Got::fragment) return got;
  } else if (state != RingState::ok) {
    return ended(CloseReason::broken);
  }
  const auto kind = static_cast<std::uint16_t>(message.tag & ~kMore);
  const bool last = (message.tag & kMore) == 0;
  if (kind == kInline && message.payload.size() >= kInlineOffset) {
    std::uint32_t immediate;
    std::memcpy(&immediate, message.payload.data(), sizeof immediate);
    fragment = {immediate, message.payload.subspan(kInlineOffset), last};
  } else if (kind == kBulk && message.payload.size() == sizeof(FragmentHeader)) {
    FragmentHeader header;
    std::memcpy(&header, message.payload.data(), sizeof header);
    fence::compiler_only();  // checked and used is this copy: the memory is not read again
    const std::size_t at = header.position % geometry_.bulk_bytes;
    if (header.length > geometry_.largest_fragment() || header.length > geometry_.bulk_bytes - at)
      return ended(CloseReason::broken);
    fragment = {header.immediate, {bulk(1 - side_) + at, header.length}, last};
  } else {
    return ended(CloseReason::broken);
  }
  peeked_ = {true, kind == kBulk, fragment.bytes.size()};
  return Got::fragment;
}

void ShmChannel::consume() {
  if (!peeked_.valid) return;
  peeked_.valid = false;
  fragments_received_.add(1);
  bytes_received_.add(peeked_.length);
  // Bulk space is scarce: give it back at once. Slots go back in batches.
  bool given = in_.release();
  if (peeked_.in_bulk) in_.publish_head(), given = true;
  if (given && in_.shared().space.must_wake()) [[unlikely]] {
    space_wakes_.add(1);
    in_.shared().space.wake_sleepers();
  }
}

bool ShmChannel::has_news() {
  Fragment fragment;
  return peek(fragment) != Got::nothing;
}

}  // namespace viaduct::via
