#include "via/vipl/offers.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/counters.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint32_t kPatience = 512;                    // looks at an offer, some tens of nanoseconds each
constexpr std::uint32_t kLeastPause = 4, kMostPause = 256;  // messages, after an offer in vain
constexpr std::uint32_t kPage = 4096;

}  // namespace

void Offers::connected() {
  sent_ = {};
  coming_ = {};
  seen_ = 0;
  if (link_.shared != nullptr) say_whether_we_can_fetch();
}

// ---- the sender

// kRest must follow at once: a send that is taken back is complete, and nothing of it may be missing then. While the
// leader sleeps nobody would take it back.
bool Offers::may_offer(const WorkItem& item) {
  if (item.segments != 1 || sent_.never || sent_.not_now || link_.adapter->leadership().leader_sleeps()) return false;
  if (sent_.pause != 0) return --sent_.pause, false;
  if (sent_.made - sent_.through >= kMostOffers) (void)some_are_there();
  return sent_.made - sent_.through < kMostOffers && peer_can_fetch(item) &&
         link_.channel->credits(sizeof(OfferHeader)) >= 2;
}

// Our memory of the engine it can map, as we can map its own, or so it seems.
bool Offers::peer_can_fetch(const WorkItem& item) const {
  if (words(Whose::theirs).fetches.load(std::memory_order_relaxed) == 1) return true;
  Registration here;
  return link_.registrations.view().find(item.data()->Handle, here) && here.region_id != 0;
}

Pushed Offers::push(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const std::uint64_t offer = sent_.made + 1;
  const std::uint32_t part = item.length / 2 / kPage * kPage;
  const OfferHeader header{item.data()->Data.AddressBits,
                           item.data()->Handle,
                           item.length,
                           item.descriptor->CS.ImmediateData,
                           part,
                           static_cast<std::uint32_t>(account_.next_receive()),
                           0,
                           offer};
  ours(offer).store(offer_word(offer, OfferState::made), std::memory_order_relaxed);  // kOffer publishes it
  const Pushed pushed = outgoing_.push_control(kOffer | (immediate ? kWithImmediate : 0), bytes_of(header));
  if (pushed != Pushed::all) return pushed;
  sent_.made = item.offer = offer;
  item.by_reference = true;
  item.part = part;
  item.sequence = account_.take_receive();
  ++sent_.unfinished;
  sent_.looks = 0;
  static Counter count = counter("via.sends_offered");
  count.add();
  item.left = direct_.put_there(item, item.sequence, part, item.length - part) != Moved::all;
  sent_.rest = item.left ? Rest::is_not : Rest::is_there;
  return Pushed::all;
}

Pushed Offers::push_rest() {
  if (sent_.rest == Rest::said) return Pushed::all;
  const RestHeader header{sent_.rest == Rest::is_there ? 1u : 0u, 0};
  const Pushed pushed = outgoing_.push_control(kRest, bytes_of(header));
  if (pushed == Pushed::all) sent_.rest = Rest::said;
  return pushed;
}

void Offers::is_there(WorkItem& item) {
  item.finish(VIP_STATUS_OP_SEND);
  --sent_.unfinished;
}

// One that is left to the peer is there when the peer is through with it.
bool Offers::some_are_there() {
  const auto is = [&](std::uint64_t offer, OfferState state) {
    return ours(offer).load(std::memory_order_acquire) == offer_word(offer, state);
  };
  while (sent_.through != sent_.made && is(sent_.through + 1, OfferState::through)) ++sent_.through;
  if (sent_.unfinished == 0) return false;
  const std::uint32_t before = sent_.unfinished;
  queues_.send.for_each_started([&](WorkItem& item) {
    if (item.offer == 0 || item.finished) return true;
    const bool there = item.offer <= sent_.through || (!item.left && is(item.offer, OfferState::placed));
    if (there) is_there(item);
    return there && sent_.unfinished != 0;  // the receiver comes to them in order
  });
  if (sent_.unfinished == before) return false;
  sent_.looks = 0;
  sent_.next_pause = kLeastPause;
  return true;
}

void Offers::look(Effects& effects) {
  if (some_are_there()) queues_.complete(false, effects);
  if (sent_.unfinished == 0) return;
  const std::uint64_t next = sent_.through + 1;  // the receiver comes to them in order
  if (ours(next).load(std::memory_order_relaxed) == offer_word(next, OfferState::returned))
    return was_returned(effects);
  if (++sent_.looks % kPatience == 0) take_back(effects);
}

void Offers::take_back(Effects& effects) {
  if (sent_.unfinished == 0 || !link_.intact()) return;
  bool any = false;
  queues_.send.for_each_started([&](WorkItem& item) {
    if (item.offer != 0 && !item.finished && !item.left) any = take_one_back(item) || any;
    return sent_.unfinished != 0;
  });
  if (!any) return;
  sent_.pause = std::clamp(sent_.next_pause, kLeastPause, kMostPause);
  sent_.next_pause = 2 * sent_.pause;
  queues_.complete(false, effects);
}

// True: the bytes are there.
bool Offers::take_one_back(WorkItem& item) {
  Place& place = ours(item.offer);
  for (const OfferState from : {OfferState::made, OfferState::returned}) {
    std::uint64_t expected = offer_word(item.offer, from);
    if (!place.compare_exchange_strong(expected, offer_word(item.offer, OfferState::taken))) continue;
    if (from == OfferState::returned) sent_.never = true;
    if (queues_.still_allowed(item, false) && direct_.put_there(item, item.sequence, 0, item.part) == Moved::all) {
      place.store(offer_word(item.offer, OfferState::placed), std::memory_order_release);
      static Counter count = counter("via.offers_taken_back");
      count.add();
      is_there(item);
      return true;
    }
    item.left = true;  // the receiver finds out why
    place.store(offer_word(item.offer, from), std::memory_order_release);
    break;
  }
  return false;
}

// The receiver waits for the next offer, which it cannot fetch.
void Offers::was_returned(Effects& effects) {
  WorkItem* item = nullptr;
  queues_.send.for_each_started([&](WorkItem& one) {
    if (one.offer == sent_.through + 1 && !one.finished) item = &one;
    return item == nullptr;
  });
  sent_.never = true;
  if (item == nullptr) return;  // a peer that says so of one that is there
  if (!item->left && take_one_back(*item)) return queues_.complete(false, effects);
  const bool deregistered = !queues_.still_allowed(*item, false);
  item->finish((deregistered ? VIP_STATUS_PROTECTION_ERROR : VIP_STATUS_TRANSPORT_ERROR) | VIP_STATUS_OP_SEND);
  VIP_DESCRIPTOR* const descriptor = item->descriptor;
  queues_.complete(false, effects);
  link_.fail(VIP_ERROR_CONN_LOST, Link::Tell::reason, descriptor, VIP_STATUS_OP_SEND);
}

// ---- the receiver

bool Offers::take(const via::Fragment& fragment, Effects& effects) {
  if (taking_.stalled) return settle(effects);
  OfferHeader header;
  if (link_.shared == nullptr || !link_.reliable() || !read_whole(fragment, header)) return false;
  if (header.number != static_cast<std::uint32_t>(receives_.used()) || header.offer != seen_ + 1) return false;
  if (header.length > kMostTransfer || header.part == 0 || header.part >= header.length) return false;
  if (!receives_.shows_any() || !receives_.find(header.length, effects)) return receives_.shows_any();
  taking_.begin({fragment.immediate, header.immediate, {header.handle, header.address, header.length}});
  coming_ = {.number = header.offer, .part = header.part};
  seen_ = header.offer;
  return settle(effects);
}

bool Offers::settle(Effects& effects) {
  Place& place = theirs(coming_.number);
  const auto word = [&](OfferState state) { return offer_word(coming_.number, state); };
  const bool connected = link_.shared->peer_is_there();  // before we look how far it is
  std::uint64_t seen = word(OfferState::made);
  const bool fetching = !coming_.returned && place.compare_exchange_strong(seen, word(OfferState::fetching));
  if (!fetching) {
    seen = place.load(std::memory_order_acquire);
    if (seen != word(OfferState::placed)) return wait_for_sender(connected);
  }
  taking_.stalled = false;
  if (!receives_.next_is_still_allowed()) return receives_.next_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const Moved moved = fetching ? taking_.fetch(0, coming_.part) : Moved::all;
  if (moved == Moved::no_way) {  // or not registered any more: the sender says so
    place.store(word(OfferState::returned), std::memory_order_release);
    say_whether_we_can_fetch();
    coming_.told = false;
    return coming_.returned = taking_.stalled = true;
  }
  if (moved != Moved::all) return taking_.failed(moved), true;
  if (fetching) place.store(word(OfferState::placed), std::memory_order_release);
  return taking_.waiting = true;
}

// The bytes are the sender's to move. One that died hides the end of its channel behind the offer; it may have said
// that they are there just before, so we look once more.
bool Offers::wait_for_sender(bool connected) {
  constexpr std::uint32_t kLookEvery = 64;
  taking_.stalled = true;
  bool gone = !connected;
  if (++coming_.looks % kLookEvery == 0) {
    pollfd end{link_.channel->shared()->descriptor(), POLLRDHUP, 0};
    if (::poll(&end, 1, 0) > 0) gone = std::exchange(coming_.peer_is_gone, true);
    ::sched_yield();  // it may be waiting for our processor
  }
  if (gone) link_.lost(VIP_ERROR_CONN_LOST);
  return true;
}

bool Offers::take_rest(const via::Fragment& fragment, Effects& effects) {
  RestHeader header;
  if (link_.shared == nullptr || !taking_.waiting || !read_whole(fragment, header)) return false;
  if (!receives_.next_is_still_allowed()) return receives_.next_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const Moved moved =
      header.is_there != 0 ? Moved::all : taking_.fetch(coming_.part, taking_.message().there.length - coming_.part);
  if (moved != Moved::all) return taking_.failed(moved), true;
  taking_.finish(effects);
  theirs(coming_.number).store(offer_word(coming_.number, OfferState::through), std::memory_order_release);
  coming_ = {};
  return true;
}

}  // namespace viaduct::vipl
