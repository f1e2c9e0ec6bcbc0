// Offers: both sides move a long message to where it belongs, each one half, at the same time.
//
//   sender    made; kOffer: this message lies here; puts the half it keeps into the receive itself; kRest
//   receiver  made -> fetching; copies the half that is offered; placed
//   sender    sees that: the send is complete
//   receiver  with kRest the receive is complete; through
//
// A sender that waits in vain takes the offer back (made -> taken), moves the bytes itself (placed), and the send is
// complete: one into a receive that is posted never needs the receiver's program. A receiver that comes too late finds
// the bytes there, or waits for them: then the offer stays in the ring, and what is behind it. A receiver that finds no
// way to the bytes, though it had said that it has one, hands the offer back (returned).
//
// The states (message.hpp) lie in the channel, for as long as what is in its rings. What a hostile peer writes
// there concerns the bytes of this message and nothing else.
#include <poll.h>
#include <sched.h>

#include <utility>

#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint32_t kPatience = 512;                    // looks at an offer, some tens of nanoseconds each
constexpr std::uint32_t kLeastPause = 4, kMostPause = 256;  // messages, after an offer in vain
constexpr std::uint32_t kPage = 4096;

}  // namespace

// ---- the sender

// kRest must follow at once: a send that is taken back is complete, and nothing of it may be missing then. While the
// leader sleeps nobody would take it back.
bool Vi::may_offer(const WorkItem& item) {
  if (item.segments != 1 || offers_.never || offers_.not_now || adapter_->leadership().leader_sleeps()) return false;
  if (offers_.pause != 0) return --offers_.pause, false;
  if (offers_.made - offers_.through >= kMostOffers) (void)some_offers_are_there();
  return offers_.made - offers_.through < kMostOffers && peer_can_fetch(item) &&
         channel_->credits(sizeof(OfferHeader)) >= 2;
}

// Our memory of the engine it can map, as we can map its own, or so it seems.
bool Vi::peer_can_fetch(const WorkItem& item) const {
  if (words(via::SharedEnd::Whose::theirs).fetches.load(std::memory_order_relaxed) == 1) return true;
  Registration here;
  return registrations_.view().find(item.data()->Handle, here) && here.region_id != 0;
}

Vi::Pushed Vi::push_offer(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const std::uint64_t offer = offers_.made + 1;
  const std::uint32_t part = item.length / 2 / kPage * kPage;
  const OfferHeader header{item.data()->Data.AddressBits,
                           item.data()->Handle,
                           item.length,
                           item.descriptor->CS.ImmediateData,
                           part,
                           static_cast<std::uint32_t>(receives_taken_),
                           0,
                           offer};
  own_offer(offer).store(offer_word(offer, OfferState::made), std::memory_order_relaxed);  // kOffer publishes it
  const Pushed pushed = push_control(kOffer | (immediate ? kWithImmediate : 0), bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  offers_.made = item.offer = offer;
  item.by_reference = true;
  item.part = part;
  item.sequence = receives_taken_++;
  ++offers_.unfinished;
  ++refer_.lent;
  offers_.looks = 0;
  static Counter count = counter("via.sends_offered");
  count.add();
  item.left = put_there(item, item.sequence, part, item.length - part) != Moved::all;
  offers_.rest = item.left ? Rest::is_not : Rest::is_there;
  return Pushed::all;
}

void Vi::offer_is_there(WorkItem& item) {
  finish(item, VIP_STATUS_OP_SEND);
  --offers_.unfinished;
  --refer_.lent;
}

// In the receive, and perhaps received. One that is left to the peer is there when the peer is through with it.
bool Vi::some_offers_are_there() {
  const auto is = [&](std::uint64_t offer, OfferState state) {
    return own_offer(offer).load(std::memory_order_acquire) == offer_word(offer, state);
  };
  while (offers_.through != offers_.made && is(offers_.through + 1, OfferState::through)) ++offers_.through;
  if (offers_.unfinished == 0) return false;
  const std::uint32_t before = offers_.unfinished;
  send_.for_each_started([&](WorkItem& item) {
    if (item.offer == 0 || item.finished) return true;
    const bool there = item.offer <= offers_.through || (!item.left && is(item.offer, OfferState::placed));
    if (there) offer_is_there(item);
    return there && offers_.unfinished != 0;  // the receiver comes to them in order
  });
  if (offers_.unfinished == before) return false;
  offers_.looks = 0;
  offers_.next_pause = kLeastPause;
  return true;
}

void Vi::look_at_offers(Effects& effects) {
  if (some_offers_are_there()) complete(false, effects);
  if (offers_.unfinished == 0) return;
  const std::uint64_t next = offers_.through + 1;  // the receiver comes to them in order
  if (own_offer(next).load(std::memory_order_relaxed) == offer_word(next, OfferState::returned))
    return offer_is_returned(effects);
  if (++offers_.looks % kPatience == 0) take_back_offers(effects);
}

// Those that the receiver has not begun with.
void Vi::take_back_offers(Effects& effects) {
  if (offers_.unfinished == 0 || state_ != VIP_STATE_CONNECTED) return;
  bool any = false;
  send_.for_each_started([&](WorkItem& item) {
    if (item.offer != 0 && !item.finished && !item.left) any = take_back(item) || any;
    return offers_.unfinished != 0;
  });
  if (!any) return;
  offers_.pause = std::clamp(offers_.next_pause, kLeastPause, kMostPause);
  offers_.next_pause = 2 * offers_.pause;
  complete(false, effects);
}

// True: the bytes are there.
bool Vi::take_back(WorkItem& item) {
  OfferPlace& place = own_offer(item.offer);
  for (const OfferState from : {OfferState::made, OfferState::returned}) {
    std::uint64_t expected = offer_word(item.offer, from);
    if (!place.compare_exchange_strong(expected, offer_word(item.offer, OfferState::taken))) continue;
    if (from == OfferState::returned) offers_.never = true;
    if (still_allowed(item, false) && put_there(item, item.sequence, 0, item.part) == Moved::all) {
      place.store(offer_word(item.offer, OfferState::placed), std::memory_order_release);
      static Counter count = counter("via.offers_taken_back");
      count.add();
      offer_is_there(item);
      return true;
    }
    item.left = true;  // the receiver finds out why
    place.store(offer_word(item.offer, from), std::memory_order_release);
    break;
  }
  return false;
}

// The receiver waits for the next offer, which it cannot fetch.
void Vi::offer_is_returned(Effects& effects) {
  WorkItem* item = nullptr;
  send_.for_each_started([&](WorkItem& one) {
    if (one.offer == offers_.through + 1 && !one.finished) item = &one;
    return item == nullptr;
  });
  offers_.never = true;
  if (item == nullptr) return;  // a peer that says so of one that is there
  if (!item->left && take_back(*item)) return complete(false, effects);
  const bool deregistered = !still_allowed(*item, false);
  finish(*item, (deregistered ? VIP_STATUS_PROTECTION_ERROR : VIP_STATUS_TRANSPORT_ERROR) | VIP_STATUS_OP_SEND);
  VIP_DESCRIPTOR* const descriptor = item->descriptor;
  complete(false, effects);
  fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, descriptor, VIP_STATUS_OP_SEND);
}

// ---- the receiver

bool Vi::take_offer(const via::Fragment& fragment, Effects& effects) {
  if (taking_.stalled) return settle_offer(effects);
  OfferHeader header;
  if (shared_ == nullptr || !reliable() || !read_whole(fragment, header)) return false;
  if (header.number != static_cast<std::uint32_t>(posted_.used) || header.offer != offers_seen_ + 1) return false;
  if (header.length > kMostTransfer || header.part == 0 || header.part >= header.length) return false;
  if (!posted_.has_place || !find_receive(header.length, effects)) return posted_.has_place;
  taking_ = {.word = fragment.immediate,
             .length = header.length,
             .immediate = header.immediate,
             .handle = header.handle,
             .address = header.address,
             .theirs_from = header.part,
             .offer = header.offer};
  offers_seen_ = header.offer;
  return settle_offer(effects);
}

bool Vi::settle_offer(Effects& effects) {
  OfferPlace& place = their_offer(taking_.offer);
  const auto word = [&](OfferState state) { return offer_word(taking_.offer, state); };
  const bool connected = shared_->peer_is_there();  // before we look how far it is
  std::uint64_t seen = word(OfferState::made);
  const bool ours = !taking_.returned && place.compare_exchange_strong(seen, word(OfferState::fetching));
  if (!ours) {
    seen = place.load(std::memory_order_acquire);
    if (seen != word(OfferState::placed)) return wait_for_sender(connected, effects);
  }
  taking_.stalled = false;
  if (!still_allowed(receive_.first_open(), true))
    return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const Moved moved = ours ? fetch(0, taking_.theirs_from) : Moved::all;
  if (moved == Moved::no_way) {  // or not registered any more: the sender says so
    place.store(word(OfferState::returned), std::memory_order_release);
    say_whether_we_can_fetch();
    taking_.told = false;
    return taking_.returned = taking_.stalled = true;
  }
  if (moved != Moved::all) return fetch_failed(moved, effects), true;
  if (ours) place.store(word(OfferState::placed), std::memory_order_release);
  return taking_.waiting = true;
}

// The bytes are the sender's to move. One that died hides the end of its channel behind the offer; it may have said
// that they are there just before, so we look once more.
bool Vi::wait_for_sender(bool connected, Effects& effects) {
  constexpr std::uint32_t kLookEvery = 64;
  taking_.stalled = true;
  bool gone = !connected;
  if (++taking_.looks % kLookEvery == 0) {
    pollfd end{channel_->shared()->descriptor(), POLLRDHUP, 0};
    if (::poll(&end, 1, 0) > 0) gone = std::exchange(taking_.peer_is_gone, true);
    ::sched_yield();  // it may be waiting for our processor
  }
  if (gone) lost(VIP_ERROR_CONN_LOST, effects);
  return true;
}

bool Vi::take_rest(const via::Fragment& fragment, Effects& effects) {
  RestHeader header;
  if (shared_ == nullptr || !taking_.waiting || !read_whole(fragment, header)) return false;
  if (!still_allowed(receive_.first_open(), true))
    return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const Moved moved =
      header.is_there != 0 ? Moved::all : fetch(taking_.theirs_from, taking_.length - taking_.theirs_from);
  if (moved != Moved::all)
    fetch_failed(moved, effects);
  else
    long_one_is_there(effects);
  return true;
}

}  // namespace viaduct::vipl
