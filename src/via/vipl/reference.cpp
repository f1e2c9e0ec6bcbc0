// Sends by reference: a message too long for the ring, into a receive that the sender cannot reach (yet), stays where
// it is, and the receiver fetches it.
//
//   sender    kReference: here it lies. Nothing is sent behind it until there is an answer
//   receiver  fetches it: the receive is complete; kTaken. Or kDeclined
//   sender    the send is complete; or the bytes go through the ring, as will all others
//
// Neither side trusts the other: each looks at the other's registrations before it touches memory there, and what it
// touches of its own is what its program has posted.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

namespace {

// What fits the ring is gone from the sender's memory as soon as it is there; longer messages need the receiver anyway.
constexpr std::uint32_t kLeastByReference = 256u << 10;
// Between hosts the copies on the way are saved.
constexpr std::uint32_t kLeastFromAfar = 64u << 10;

}  // namespace

// ---- the sender

bool Vi::goes_by_reference(const WorkItem& item) const {
  return item.length >= (far_ != nullptr ? kLeastFromAfar : kLeastByReference) && item.segments == 1 && reliable() &&
         !refer_.declined;
}

Vi::Pushed Vi::push_reference(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  VIP_MEM_HANDLE key = item.data()->Handle;
  if (far_ != nullptr) {
    if (item.lent == 0) item.lent = far_->lend(item.data()->Data.Address, item.length);
    if (item.lent == 0) {  // the table is full
      refer_.declined = true;
      return push_send_and_count(item);
    }
    key = item.lent;
  }
  const ReferenceHeader header{item.data()->Data.AddressBits, key, item.length, item.descriptor->CS.ImmediateData, 0};
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
Vi::Pushed Vi::push_answers() {
  if (offers_.rest != Rest::said) {
    const RestHeader header{offers_.rest == Rest::is_there ? 1u : 0u, 0};
    if (const Pushed pushed = push_control(kRest, bytes_of(header)); pushed != Pushed::all) return pushed;
    offers_.rest = Rest::said;
  }
  if (refer_.tell_taken) {
    if (const Pushed pushed = push_control(kTaken, {}); pushed != Pushed::all) return pushed;
    refer_.tell_taken = false;
  }
  if (refer_.tell_declined) {
    if (const Pushed pushed = push_control(kDeclined, {}); pushed != Pushed::all) return pushed;
    refer_.tell_declined = false;
  }
  return Pushed::all;
}

// The one that waits for its answer: nothing was sent behind it. None: the peer owes us no answer.
WorkItem* Vi::asked_for() {
  if (!refer_.asking) return nullptr;
  WorkItem* const last = send_.last_started();
  return last != nullptr && last->by_reference && last->offer == 0 && !last->finished ? last : nullptr;
}

bool Vi::take_taken(const via::Fragment& fragment, Effects& effects) {
  WorkItem* const item = asked_for();
  if (item == nullptr || !fragment.last) return false;
  refer_.asking = false;
  --refer_.lent;
  take_back_lent(*item);
  finish(*item, VIP_STATUS_OP_SEND);
  complete(false, effects);
  return true;
}

bool Vi::take_declined(const via::Fragment& fragment) {
  WorkItem* const item = asked_for();
  if (item == nullptr || !fragment.last) return false;
  item->by_reference = false;
  take_back_lent(*item);
  refer_.asking = false;
  --refer_.lent;
  --receives_taken_;
  refer_.declined = true;
  send_.not_started();
  return true;
}

// ---- the receiver

// A part of the message into the receive descriptor that is next. no_way: nothing was touched.
Vi::Moved Vi::fetch(std::size_t offset, std::size_t length) {
  const WorkItem& item = receive_.first_open();
  iovec pieces[kMostSegments];
  const std::size_t count = gather(item.data(), item.segments, offset, length, pieces);
  return shared_->fetch({taking_.handle, taking_.address, taking_.length}, offset, {pieces, count}, length);
}

bool Vi::take_reference(const via::Fragment& fragment, Effects& effects) {
  ReferenceHeader header;
  if (!reliable() || !read_whole(fragment, header)) return false;
  if (header.length < kLeastFromAfar || header.length > kMostTransfer) return false;
  if (!find_receive(header.length, effects)) return true;
  taking_ = {.word = fragment.immediate,
             .length = header.length,
             .immediate = header.immediate,
             .handle = header.handle,
             .address = header.address,
             .theirs_from = header.length};
  if (far_ != nullptr) return fetch_from_afar();
  const Moved moved = fetch(0, header.length);
  // Also where the memory is not registered any more: the sender will find that out, and say what is wrong with it.
  if (moved == Moved::no_way) return refer_.tell_declined = true;
  if (moved != Moved::all)
    fetch_failed(moved, effects);
  else
    long_one_is_there(effects);
  return true;
}

void Vi::fetch_failed(Moved why, Effects& effects) {
  if (why == Moved::gone) return lost(VIP_ERROR_CONN_LOST, effects);
  fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, receive_.first_open().descriptor, VIP_STATUS_OP_RECEIVE);
}

void Vi::long_one_is_there(Effects& effects) {
  const auto done = std::exchange(taking_, {});
  finish_receive(VIP_STATUS_OP_RECEIVE, done.word, done.immediate, done.length, effects);
  if (done.offer != 0)
    their_offer(done.offer).store(offer_word(done.offer, OfferState::through), std::memory_order_release);
  else
    refer_.tell_taken = true;
}

}  // namespace viaduct::vipl
