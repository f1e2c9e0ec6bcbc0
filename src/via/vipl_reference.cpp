// Sends by reference: a message too long for the ring stays where it is, and both sides move it to where it belongs,
// each one half, at the same time.
//
//   sender    kReference: here it lies
//   receiver  kHelp: write this half there; and reads the other
//   sender    writes its half; kHelped. Now the next message may follow
//   receiver  has both: the receive is complete; kTaken
//   sender    the send is complete
//
// Neither side trusts the other: each looks at the other's registrations before it touches memory there, and what it
// touches of its own is what its program has posted.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/counters.hpp"
#include "via/vipl_activity.hpp"
#include "via/vipl_nic.hpp"

namespace viaduct::vipl {

namespace {

// What fits the ring is gone from the sender's memory as soon as it is there; longer messages need the receiver anyway.
constexpr std::uint32_t kLeastByReference = 256u << 10;

template <class Header>
std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}

template <class Header>
bool read_header(const via::Fragment& fragment, Header& header) {
  if (!fragment.last || fragment.bytes.size() != sizeof header) return false;
  std::memcpy(&header, fragment.bytes.data(), sizeof header);
  return true;
}

}  // namespace

// ---- the sender

bool Vi::goes_by_reference(const WorkItem& item) const {
  return item.length >= kLeastByReference && item.segments == 1 && reliable() && !refer_.declined;
}

Vi::Pushed Vi::push_reference(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const ReferenceHeader header{item.data()->Data.AddressBits, item.data()->Handle, item.length,
                               item.descriptor->CS.ImmediateData, 0};
  const Pushed pushed = push_control(kReference | (immediate ? kWithImmediate : 0), bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  item.by_reference = true;
  refer_.asking = true;
  ++refer_.lent;
  ++receives_taken_;
  static Counter count = counter("via.sends_by_reference");
  count.add();
  return Pushed::all;
}

// What the other side waits for, in the order in which it came about.
Vi::Pushed Vi::push_reference_words() {
  if (refer_.tell_helped != 0) {
    const HelpedHeader header{refer_.tell_helped == 2 ? 1u : 0u, 0};
    if (const Pushed pushed = push_control(kHelped, bytes_of(header)); pushed != Pushed::all) return pushed;
    refer_.tell_helped = 0;
    refer_.asking = false;  // the next one is behind this word
  }
  for (; refer_.tell_taken != 0; --refer_.tell_taken)
    if (const Pushed pushed = push_control(kTaken, {}); pushed != Pushed::all) return pushed;
  if (refer_.tell_declined) {
    if (const Pushed pushed = push_control(kDeclined, {}); pushed != Pushed::all) return pushed;
    refer_.tell_declined = false;
  }
  return Pushed::all;
}

WorkItem* Vi::oldest_reference() {
  WorkItem* oldest = nullptr;
  send_.for_each_started([&](WorkItem& item) {
    if (item.by_reference && !item.finished) oldest = &item;
    return oldest == nullptr;
  });
  return oldest;
}

// The one that waits for its answer: nothing was sent behind it. None: the peer owes us no answer.
WorkItem* Vi::asked_for() {
  if (!refer_.asking || refer_.tell_helped != 0) return nullptr;
  WorkItem* const last = send_.last_started();
  return last != nullptr && last->by_reference && !last->finished ? last : nullptr;
}

bool Vi::take_help(const via::Fragment& fragment, Effects& effects) {
  HelpHeader header;
  WorkItem* const item = asked_for();
  if (item == nullptr || !read_header(fragment, header)) return false;
  if (header.length == 0 || header.length > item->length || header.offset > item->length - header.length) return false;
  if (!still_allowed(*item, false)) {  // deregistered meanwhile
    finish(*item, VIP_STATUS_PROTECTION_ERROR | VIP_STATUS_OP_SEND);
    VIP_DESCRIPTOR* const descriptor = item->descriptor;
    complete(false, effects);
    fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, descriptor, VIP_STATUS_OP_SEND);
    return true;
  }
  RemoteNic::Moved moved = RemoteNic::Moved::no_way;
  {
    const Activity activity(registrations_.view().vi(slot_));
    Registration there;
    const iovec piece{static_cast<std::byte*>(item->data()->Data.Address) + header.offset, header.length};
    if (peer_is_there() && remote_->table().find(header.handle, there) && there.tag == peer_.tag &&
        there.covers(header.address, header.length))
      moved = remote_->move(RemoteNic::Direction::write, there, header.address, {&piece, 1}, header.length);
  }
  refer_.tell_helped = moved == RemoteNic::Moved::all ? 2 : 1;
  return true;
}

bool Vi::take_taken(const via::Fragment& fragment, Effects& effects) {
  WorkItem* const item = oldest_reference();
  if (item == nullptr || !fragment.last) return false;
  if (item == send_.last_started() && refer_.asking) {  // taken without our help
    if (asked_for() == nullptr) return false;
    refer_.asking = false;
  }
  --refer_.lent;
  finish(*item, VIP_STATUS_OP_SEND);
  complete(false, effects);
  return true;
}

bool Vi::take_declined(const via::Fragment& fragment) {
  WorkItem* const item = asked_for();
  if (item == nullptr || !fragment.last) return false;
  item->by_reference = false;
  refer_.asking = false;
  --refer_.lent;
  --receives_taken_;
  refer_.declined = true;
  send_.not_started();
  return true;
}

// ---- the receiver

// A part of the message into the receive descriptor that is next. no_way: nothing was touched.
RemoteNic::Moved Vi::fetch(std::size_t offset, std::size_t length) {
  const WorkItem& item = receive_.first_open();
  iovec pieces[kMostSegments];
  std::size_t count = 0, skip = offset, left = length;
  for (std::uint16_t i = 0; i < item.segments && left > 0; ++i) {
    const VIP_DATA_SEGMENT& segment = item.data()[i];
    const std::size_t passed = std::min<std::size_t>(skip, segment.Length);
    const std::size_t part = std::min<std::size_t>(segment.Length - passed, left);
    skip -= passed, left -= part;
    if (part != 0) pieces[count++] = {static_cast<std::byte*>(segment.Data.Address) + passed, part};
  }
  const Activity activity(registrations_.view().vi(slot_));
  Registration there;
  if (!peer_is_there()) return RemoteNic::Moved::gone;
  if (!remote_->table().find(taking_.handle, there) || there.tag != peer_.tag ||
      !there.covers(taking_.address, taking_.length))
    return RemoteNic::Moved::no_way;
  return remote_->move(RemoteNic::Direction::read, there, taking_.address + offset, {pieces, count}, length);
}

bool Vi::take_reference(const via::Fragment& fragment, Effects& effects) {
  ReferenceHeader header;
  if (!reliable() || !read_header(fragment, header)) return false;
  if (header.length < kLeastByReference || header.length > kMostTransfer) return false;
  if (!find_receive(header.length, effects)) return true;
  taking_ = {false, fragment.immediate, header.length, header.immediate, header.handle, header.address, header.length};
  const WorkItem& item = receive_.first_open();
  Registration there;
  // Also where the memory is not registered any more: the sender will find that out, and say what is wrong with it.
  if (!remote_->table().find(header.handle, there) || !remote_->reaches(there)) return refer_.tell_declined = true;
  constexpr std::uint32_t kPage = 4096;
  const std::uint32_t half = header.length / 2 / kPage * kPage;
  if (item.segments == 1 && !out_.begun) {
    const HelpHeader help{item.data()->Data.AddressBits + half, item.data()->Handle, half, header.length - half, 0};
    taking_.waiting = push_control(kHelp, bytes_of(help)) == Pushed::all;
    if (taking_.waiting) taking_.theirs_from = half;
  }
  const RemoteNic::Moved moved = fetch(0, taking_.theirs_from);
  if (moved == RemoteNic::Moved::no_way && !taking_.waiting) return refer_.tell_declined = true;
  if (moved != RemoteNic::Moved::all)
    fetch_failed(moved, effects);
  else if (!taking_.waiting)
    reference_placed(effects);
  return true;
}

void Vi::fetch_failed(RemoteNic::Moved why, Effects& effects) {
  if (why == RemoteNic::Moved::gone) return lost(VIP_ERROR_CONN_LOST, effects);
  fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, receive_.first_open().descriptor, VIP_STATUS_OP_RECEIVE);
}

bool Vi::take_helped(const via::Fragment& fragment, Effects& effects) {
  HelpedHeader header;
  if (!taking_.waiting || !read_header(fragment, header)) return false;
  WorkItem& item = receive_.first_open();
  if (!still_allowed(item, true)) return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const RemoteNic::Moved moved =
      header.done != 0 ? RemoteNic::Moved::all : fetch(taking_.theirs_from, taking_.length - taking_.theirs_from);
  if (moved != RemoteNic::Moved::all)
    fetch_failed(moved, effects);
  else
    reference_placed(effects);
  return true;
}

void Vi::reference_placed(Effects& effects) {
  const auto done = std::exchange(taking_, {});
  finish_receive(VIP_STATUS_OP_RECEIVE, done.word, done.immediate, done.length, effects);
  ++refer_.tell_taken;
}

}  // namespace viaduct::vipl
