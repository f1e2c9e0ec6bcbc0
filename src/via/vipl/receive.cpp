// What comes in: fragments are looked at in place, checked, and copied into the descriptors posted for them.
//
// Everything a fragment says is the peer's word: kinds, lengths and order are checked, and a message that makes no
// sense breaks this connection and nothing else.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/copy_loop.hpp"
#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

namespace {

void count_dropped() {
  static Counter dropped = counter("via.dropped");
  dropped.add();
}

std::uint32_t kind_of(std::uint32_t word) {
  return word & kKindMask;
}

}  // namespace

bool Vi::visit(Effects& effects) {
  return receive_some(Enough::everything, effects);
}

// True: there is more than one visit takes.
bool Vi::receive_some(Enough enough, Effects& effects) {
  int handled = 0, consumed = 0;
  bool looked_afar = far_ == nullptr || enough == Enough::everything;  // a visit: the ready queue has looked
  if (far_ != nullptr) [[unlikely]]
    take_news_from_afar(effects);
  while (state_ == VIP_STATE_CONNECTED) {
    const bool satisfied =
        enough == Enough::one_receive ? receive_.has_completed() : enough == Enough::one_send && send_.has_completed();
    if (handled != 0 && (satisfied || handled == kMostPerVisit)) break;
    via::Fragment fragment;
    const via::Got got = channel_->peek(fragment);
    if (got == via::Got::nothing) {
      if (std::exchange(looked_afar, true) || !channel_->progress()) break;
      take_news_from_afar(effects);
      continue;
    }
    if (got == via::Got::end) {
      lost(kind_of(in_.word) == kWrite ? VIP_ERROR_RDMAW_ABORT : VIP_ERROR_CONN_LOST, effects);
      break;
    }
    ++handled;
    if (!handle_fragment(fragment, effects)) {
      static Counter nonsense = counter("via.nonsense");
      nonsense.add();
      lost(kind_of(in_.word) == kWrite ? VIP_ERROR_RDMAW_DATA : VIP_ERROR_CONN_LOST, effects);
    }
    if (taking_.stalled) break;
    channel_->consume();
    ++consumed;
  }
  if (handled == 0 || state_ != VIP_STATE_CONNECTED) return false;
  if (!std::exchange(taking_.told, true) || consumed != 0) tell_of_room();
  if (messages_placed_ != placed_told_ || !replies_.empty() || send_.has_waiting() || refer_.tell_taken ||
      refer_.tell_declined)
    (void)run_sends(effects);
  return handled == kMostPerVisit || taking_.stalled;
}

bool Vi::handle_fragment(const via::Fragment& fragment, Effects& effects) {
  if (in_.word == 0 && fragment.immediate == kSend && !taking_.waiting && !taking_.stalled) [[likely]]
    return whole_send(fragment, effects);
  if (taking_.stalled && kind_of(fragment.immediate) != kOffer) return false;  // it is the one we saw before
  if (in_.word == 0) return start_message(fragment, effects);
  if (fragment.immediate != in_.word || fragment.bytes.empty()) return false;
  return more_of_message(fragment.bytes, fragment.last, effects);
}

bool Vi::start_message(const via::Fragment& fragment, Effects& effects) {
  const std::uint32_t word = fragment.immediate;
  if ((word & ~(kKindMask | kWithImmediate)) != 0) return false;
  std::size_t header = 0;
  const bool consumes =
      kind_of(word) <= kWrite || kind_of(word) == kReference || kind_of(word) == kDirect || kind_of(word) == kOffer;
  if (taking_.waiting && consumes) return false;  // behind one that is not complete
  switch (kind_of(word)) {
    case kDirect:
      return take_direct(fragment, effects);
    case kOffer:
      return take_offer(fragment, effects);
    case kReference:
      return take_reference(fragment, effects);
    case kRest:
      return take_rest(fragment, effects);
    case kTaken:
      return take_taken(fragment, effects);
    case kDeclined:
      return take_declined(fragment);
    case kSend:
      return whole_send(fragment, effects);
    case kLongSend:
      if (!start_long_send(fragment, header, effects)) return false;
      break;
    case kWrite:
      if (!start_write(fragment, header)) return false;
      break;
    case kReadReply:
      if (!start_reply(fragment, header)) return false;
      break;
    case kRdmaDone:
      return rdma_done(fragment, effects);
    case kRead:
      return start_read(fragment, effects);
    case kPlaced:
      return placed(fragment, effects);
    case kRoom:
      return fragment.last;  // a wake-up: whoever waits for room tries again
    case kBroken:
      return told_broken(fragment, effects);
    case kDisconnect:
      lost(VIP_ERROR_CONN_LOST, effects);
      return true;
    default:
      return false;
  }
  in_.word = word;
  if (state_ != VIP_STATE_CONNECTED) return true;
  return more_of_message(fragment.bytes.subspan(header), fragment.last, effects);
}

bool Vi::more_of_message(std::span<const std::byte> bytes, bool last, Effects& effects) {
  const bool complete_now = bytes.size() == in_.length - in_.have;
  if (bytes.size() > in_.length - in_.have || last != complete_now) return false;
  switch (kind_of(in_.word)) {
    case kLongSend:
      if (in_.has_receive) place_long_send(bytes, effects);
      break;
    case kWrite:
      place_write(bytes, effects);
      break;
    case kReadReply:
      place_reply(bytes, effects);
      break;
    default:
      break;
  }
  in_.have += static_cast<std::uint32_t>(bytes.size());
  if (last && state_ == VIP_STATE_CONNECTED) end_of_message(effects);
  return true;
}

void Vi::end_of_message(Effects& effects) {
  const auto done = std::exchange(in_, {});
  switch (kind_of(done.word)) {
    case kLongSend:
      if (done.has_receive) finish_receive(VIP_STATUS_OP_RECEIVE, done.word, done.immediate, done.length, effects);
      break;
    case kWrite:
      if ((done.word & kWithImmediate) != 0 && find_receive(0, effects))
        finish_receive(VIP_STATUS_OP_REMOTE_RDMA_WRITE, done.word, done.immediate, done.length, effects);
      break;
    case kReadReply: {
      WorkItem& item = *oldest_read();
      item.read_under_way = false;
      --reads_under_way_;
      finish(item, VIP_STATUS_OP_RDMA_READ);
      complete(false, effects);
      return;
    }
    default:
      break;
  }
  ++messages_placed_;
  if (!acknowledged()) placed_told_ = messages_placed_;
}

// ---- messages of one fragment

bool Vi::whole_send(const via::Fragment& fragment, Effects& effects) {
  const std::uint32_t word = fragment.immediate;
  const std::size_t head = (word & kWithImmediate) != 0 ? sizeof(std::uint32_t) : 0;
  std::uint32_t immediate = 0;
  if (!fragment.last || fragment.bytes.size() < head) return false;
  std::memcpy(&immediate, fragment.bytes.data(), head);
  const auto bytes = fragment.bytes.subspan(head);
  if (find_receive(bytes.size(), effects)) {
    place_small(receive_.first_open(), bytes);
    finish_receive(VIP_STATUS_OP_RECEIVE, word, immediate, static_cast<std::uint32_t>(bytes.size()), effects);
  }
  ++messages_placed_;
  if (!acknowledged()) placed_told_ = messages_placed_;
  return true;
}

bool Vi::rdma_done(const via::Fragment& fragment, Effects& effects) {
  RdmaDoneHeader header;
  if (!fragment.last || !read_header(fragment, header)) return false;
  if (find_receive(0, effects))
    finish_receive(VIP_STATUS_OP_REMOTE_RDMA_WRITE, kWithImmediate, header.immediate, header.length, effects);
  ++messages_placed_;
  if (!acknowledged()) placed_told_ = messages_placed_;
  return true;
}

bool Vi::start_long_send(const via::Fragment& fragment, std::size_t& header_size, Effects& effects) {
  LongHeader header;
  if (fragment.last || !read_header(fragment, header) || header.length > kMostTransfer) return false;
  header_size = sizeof header;
  in_.length = header.length;
  in_.immediate = header.immediate;
  in_.has_receive = find_receive(header.length, effects);
  return true;
}

// Everything up to a count is in the peer's memory.
bool Vi::placed(const via::Fragment& fragment, Effects& effects) {
  PlacedHeader header;
  if (!acknowledged() || !fragment.last || !read_header(fragment, header)) return false;
  if (header.messages > messages_sent_ || header.messages < messages_acknowledged_) return false;
  messages_acknowledged_ = header.messages;
  send_.for_each_started([&](WorkItem& item) {
    if (item.finished || item.read_under_way || item.by_reference || item.under_way) return true;
    if (item.sequence > header.messages) return false;
    finish(item, item.send_operation());
    return true;
  });
  complete(false, effects);
  return true;
}

bool Vi::told_broken(const via::Fragment& fragment, Effects& effects) {
  BrokenHeader header;
  if (!read_header(fragment, header) || header.code > VIP_ERROR_CATASTROPHIC) return false;
  auto code = static_cast<VIP_ERROR_CODE>(header.code);
  // What did it is the oldest of its kind that is not acknowledged.
  const bool read = code == VIP_ERROR_RDMAR_PROT;
  const std::uint32_t status = header.descriptor != 0                 ? VIP_STATUS_REMOTE_DESC_ERROR
                               : read || code == VIP_ERROR_RDMAW_PROT ? VIP_STATUS_RDMA_PROT_ERROR
                                                                      : 0;
  (void)some_offers_are_there();
  if (status != 0)
    send_.for_each_started([&](WorkItem& item) {
      if (item.finished || item.read_under_way != read) return true;
      finish(item, status | item.send_operation());
      return false;
    });
  if (code == VIP_ERROR_RECVQ_EMPTY) code = VIP_ERROR_CONN_LOST;  // the peer's queue, not ours
  fail(code, effects, Tell::nothing);
  return true;
}

// ---- receive descriptors

// The next one, if there is one and it takes so many bytes. If not, a reliable connection breaks, and on an unreliable
// one the message is dropped.
bool Vi::find_receive(std::size_t length, Effects& effects) {
  if (!receive_.has_open()) [[unlikely]] {
    if (!reliable())
      count_dropped();
    else
      fail(VIP_ERROR_RECVQ_EMPTY, effects, Tell::our_descriptor);
    return false;
  }
  WorkItem& item = receive_.first_open();
  if (!still_allowed(item, true)) [[unlikely]]
    return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), false;
  if (length > item.length) [[unlikely]]
    return receive_cannot_take(VIP_STATUS_LENGTH_ERROR, effects), false;
  if (length > item.usable) [[unlikely]]
    return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), false;
  return true;
}

void Vi::receive_cannot_take(std::uint32_t status, Effects& effects) {
  WorkItem& item = receive_.first_open();
  if (descriptor_is_there(item)) item.descriptor->CS.Length = 0;
  finish(item, status | VIP_STATUS_OP_RECEIVE);
  complete(true, effects);
  if (!reliable())
    count_dropped();
  else
    fail(VIP_ERROR_CONN_LOST, effects, Tell::our_descriptor, item.descriptor, VIP_STATUS_OP_RECEIVE);
}

// Checked for each fragment: the program may deregister while they come.
void Vi::place_long_send(std::span<const std::byte> bytes, Effects& effects) {
  if (still_allowed(receive_.first_open(), true)) return place(receive_.first_open(), in_.have, bytes);
  in_.has_receive = false;
  receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects);
}

void Vi::finish_receive(std::uint32_t operation, std::uint32_t word, std::uint32_t data, std::uint32_t length,
                        Effects& effects) {
  WorkItem& item = receive_.first_open();
  VIP_CONTROL_SEGMENT& control = item.descriptor->CS;
  control.Length = length;
  if ((word & kWithImmediate) != 0) {
    control.ImmediateData = data;
    operation |= VIP_STATUS_IMMEDIATE;
  }
  finish(item, operation);
  posted_.took_one();
  complete(true, effects);
  if (receive_.has_waiting()) [[unlikely]]
    show_receives();
}

// A message that fits a cache line and the first segment, which most do.
void Vi::place_small(const WorkItem& item, std::span<const std::byte> bytes) {
  const VIP_DATA_SEGMENT* const segment = item.data();
  if (bytes.empty()) return;
  if (item.segments == 0 || bytes.size() > 64 || bytes.size() > segment->Length) return place(item, 0, bytes);
  std::memcpy(segment->Data.Address, bytes.data(), bytes.size());
}

void Vi::place(const WorkItem& item, std::size_t offset, std::span<const std::byte> bytes) {
  const VIP_DATA_SEGMENT* segment = item.data();
  for (std::uint16_t i = 0; i < item.segments && !bytes.empty(); ++i, ++segment) {
    if (offset >= segment->Length) {
      offset -= segment->Length;
      continue;
    }
    const std::size_t part = std::min<std::size_t>(segment->Length - offset, bytes.size());
    copy_through_ring(static_cast<std::byte*>(segment->Data.Address) + offset, bytes.data(), part);
    bytes = bytes.subspan(part);
    offset = 0;
  }
}

// A sender that sleeps for want of room hears of it by a message; if that does not fit either, it has plenty to read.
void Vi::tell_of_room() {
  if (shared_ == nullptr) return;  // credit tells
  adapter_->light_fence();         // what we consumed, then the wish: pairs with the heavy fence in ask_for_room()
  if (!shared_->wants_room() || out_.begun) return;
  (void)push_control(kRoom, {});
}

}  // namespace viaduct::vipl
