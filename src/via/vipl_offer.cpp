// Offers: both sides move a long message to where it belongs, each one half, at the same time.
//
//   sender    kOffer: this message lies here; puts the half it keeps into the receive itself; kRest
//   receiver  `fetching`; copies the half that is offered; with the other the receive is complete; `fetched`
//   sender    sees `fetched`: the send is complete
//
// A sender that waits in vain takes the offer back and moves the bytes itself, so that a send into a receive that is
// posted never needs the receiver's program. Should both want it at the same moment (T1, T2 of vipl_table.hpp), one of
// them at least sees the other: the sender decides and leaves a verdict, and a receiver that sees its offer asked back
// waits for that. Meanwhile the offer stays in the ring, and what comes behind it.
//
// What a hostile peer writes into its words concerns the bytes of this message and nothing else.
#include <poll.h>

#include <cstring>
#include <utility>

#include "base/counters.hpp"
#include "via/vipl_activity.hpp"
#include "via/vipl_nic.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint32_t kPatience = 512;                      // looks at an offer, some tens of nanoseconds each
constexpr std::uint32_t kLeastPause = 4, kMostPause = 256;  // messages, after an offer in vain
constexpr std::uint32_t kPage = 4096;

}  // namespace

// ---- both

bool Vi::reserve_offer_words() {
  if (has_offer_words_) return true;
  has_offer_words_ = registrations_.reserve_offers(slot_);
  if (has_offer_words_) clear_offer_words();
  return has_offer_words_;
}

// Before the peer of a connection to come looks at them.
void Vi::clear_offer_words() {
  OfferWords& mine = registrations_.view().offers(slot_);
  for (auto* const word : {&mine.fetching, &mine.fetched, &mine.taken_back}) word->store(0, std::memory_order_relaxed);
  for (auto& verdict : mine.verdicts) verdict.store(0, std::memory_order_relaxed);
}

// ---- the sender

bool Vi::may_offer(const WorkItem& item) {
  if (item.segments != 1 || offers_.never) return false;
  if (offers_.pause != 0) return --offers_.pause, false;
  if (offers_.made - offers_.through >= kMostOffers && !some_were_fetched()) return false;
  return reserve_offer_words();
}

Vi::Pushed Vi::push_offer(WorkItem& item) {
  const bool immediate = (item.control & VIP_CONTROL_IMMEDIATE) != 0;
  const std::uint32_t part = item.length / 2 / kPage * kPage;
  const OfferHeader header{item.data()->Data.AddressBits,
                           item.data()->Handle,
                           item.length,
                           item.descriptor->CS.ImmediateData,
                           part,
                           static_cast<std::uint32_t>(receives_taken_),
                           0,
                           offers_.made + 1};
  const Pushed pushed = push_control(kOffer | (immediate ? kWithImmediate : 0), std::as_bytes(std::span(&header, 1)));
  if (pushed != Pushed::all) return pushed;
  item.by_reference = true;
  item.offer = ++offers_.made;
  item.part = part;
  item.sequence = receives_taken_++;
  ++offers_.unfinished;
  ++refer_.lent;
  offers_.looks = 0;
  static Counter count = counter("via.sends_offered");
  count.add();
  const RemoteNic::Moved moved = put_there(item, item.sequence, part, item.length - part);
  offers_.rest = moved == RemoteNic::Moved::all ? Rest::is_there : Rest::is_not;
  if (moved != RemoteNic::Moved::all) leave_to_peer(item);
  return Pushed::all;
}

// Asked back no more.
void Vi::leave_to_peer(const WorkItem& item) {
  OfferWords& mine = registrations_.view().offers(slot_);
  offers_.asked_back = std::max(offers_.asked_back, item.offer);
  mine.verdicts[item.offer % kMostOffers].store(verdict_word(item.offer, Verdict::yours), std::memory_order_release);
  mine.taken_back.store(offers_.asked_back, std::memory_order_release);
}

void Vi::offer_is_there(WorkItem& item) {
  finish(item, VIP_STATUS_OP_SEND);
  --offers_.unfinished;
  --refer_.lent;
}

bool Vi::some_were_fetched() {
  const std::uint64_t fetched = remote_->table().offers(peer_.slot).fetched.load(std::memory_order_acquire);  // A4
  if (fetched <= offers_.through || fetched > offers_.made) return false;
  offers_.through = fetched;
  if (offers_.unfinished == 0) return true;
  offers_.looks = 0;
  offers_.next_pause = kLeastPause;
  send_.for_each_started([&](WorkItem& item) {
    if (item.offer != 0 && item.offer <= fetched && !item.finished) offer_is_there(item);
    return offers_.unfinished != 0;
  });
  return true;
}

void Vi::look_at_offers(Effects& effects) {
  if (some_were_fetched()) complete(false, effects);
  if (offers_.unfinished != 0 && ++offers_.looks == kPatience) take_back_offers(effects);
}

// Those that the receiver has not begun with.
void Vi::take_back_offers(Effects& effects) {
  if (offers_.unfinished == 0 || state_ != VIP_STATE_CONNECTED) return;
  bool any = false;
  send_.for_each_started([&](WorkItem& item) {
    if (item.offer > offers_.asked_back && !item.finished) any = take_back(item) || any;
    return offers_.unfinished != 0;
  });
  if (!any) return;
  offers_.pause = std::clamp(offers_.next_pause, kLeastPause, kMostPause);
  offers_.next_pause = 2 * offers_.pause;
  complete(false, effects);
}

// True: the bytes are there.
bool Vi::take_back(WorkItem& item) {
  OfferWords& mine = registrations_.view().offers(slot_);
  const OfferWords& theirs = remote_->table().offers(peer_.slot);
  offers_.asked_back = std::max(offers_.asked_back, item.offer);
  mine.taken_back.store(offers_.asked_back, std::memory_order_seq_cst);  // T1
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Verdict verdict = Verdict::yours;
  if (theirs.fetching.load(std::memory_order_seq_cst) < item.offer && still_allowed(item, false) &&
      put_there(item, item.sequence, 0, item.part) == RemoteNic::Moved::all)
    verdict = Verdict::placed;
  // Where the bytes cannot be put there the receiver finds out why.
  mine.verdicts[item.offer % kMostOffers].store(verdict_word(item.offer, verdict), std::memory_order_release);  // R3
  if (verdict == Verdict::yours) return false;
  static Counter count = counter("via.offers_taken_back");
  count.add();
  offer_is_there(item);
  return true;
}

// The receiver waits for the oldest offer, which it cannot fetch.
bool Vi::take_returned(const via::Fragment& fragment, Effects& effects) {
  WorkItem* item = nullptr;
  send_.for_each_started([&](WorkItem& one) {
    if (one.offer != 0 && !one.finished) item = &one;
    return item == nullptr;
  });
  if (!fragment.last) return false;
  offers_.never = true;
  if (item == nullptr) return offers_.made != 0;  // it was taken back before
  if (take_back(*item)) return complete(false, effects), true;
  const bool deregistered = !still_allowed(*item, false);
  finish(*item, (deregistered ? VIP_STATUS_PROTECTION_ERROR : VIP_STATUS_TRANSPORT_ERROR) | VIP_STATUS_OP_SEND);
  VIP_DESCRIPTOR* const descriptor = item->descriptor;
  complete(false, effects);
  fail(VIP_ERROR_CONN_LOST, effects, Tell::reason, descriptor, VIP_STATUS_OP_SEND);
  return true;
}

// ---- the receiver

bool Vi::take_offer(const via::Fragment& fragment, Effects& effects) {
  if (taking_.stalled) return settle_offer(effects);
  OfferHeader header;
  if (!reliable() || !fragment.last || fragment.bytes.size() != sizeof header) return false;
  std::memcpy(&header, fragment.bytes.data(), sizeof header);
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
  registrations_.view().offers(slot_).fetching.store(header.offer, std::memory_order_seq_cst);  // T2
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return settle_offer(effects);
}

// A peer that died before its verdict: what it has sent hides the end of the channel.
bool Vi::peer_has_died() {
  constexpr std::uint32_t kLookEvery = 64;
  pollfd end{channel_->descriptor(), POLLRDHUP, 0};
  if (++taking_.looks % kLookEvery != 0 || ::poll(&end, 1, 0) <= 0) return false;
  return std::exchange(taking_.peer_is_gone, true);  // it may have said so just before: once more
}

bool Vi::settle_offer(Effects& effects) {
  OfferWords& mine = registrations_.view().offers(slot_);
  const OfferWords& theirs = remote_->table().offers(peer_.slot);
  const bool connected = peer_is_there();  // before we look for a verdict
  bool placed = false;
  if (taking_.returned || theirs.taken_back.load(std::memory_order_seq_cst) >= taking_.offer) {
    const std::uint64_t verdict =
        theirs.verdicts[taking_.offer % kMostOffers].load(std::memory_order_acquire);  // A3, pairs with R3
    placed = verdict == verdict_word(taking_.offer, Verdict::placed);
    const bool left_to_us = !taking_.returned && verdict == verdict_word(taking_.offer, Verdict::yours);
    taking_.stalled = !placed && !left_to_us;
    if (taking_.stalled) {
      if (!connected || peer_has_died()) lost(VIP_ERROR_CONN_LOST, effects);
      return true;
    }
  }
  taking_.stalled = false;
  if (!still_allowed(receive_.first_open(), true))
    return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const RemoteNic::Moved moved = placed ? RemoteNic::Moved::all : fetch(0, taking_.theirs_from);
  if (moved == RemoteNic::Moved::no_way) {  // or not registered any more: the sender says so
    mine.fetching.store(taking_.offer - 1, std::memory_order_seq_cst);
    return taking_.returned = taking_.stalled = refer_.tell_returned = true;
  }
  if (moved != RemoteNic::Moved::all) return fetch_failed(moved, effects), true;
  return taking_.waiting = true;
}

bool Vi::take_rest(const via::Fragment& fragment, Effects& effects) {
  RestHeader header;
  if (!taking_.waiting || !fragment.last || fragment.bytes.size() != sizeof header) return false;
  std::memcpy(&header, fragment.bytes.data(), sizeof header);
  if (!still_allowed(receive_.first_open(), true))
    return receive_cannot_take(VIP_STATUS_PROTECTION_ERROR, effects), true;
  const RemoteNic::Moved moved =
      header.is_there != 0 ? RemoteNic::Moved::all : fetch(taking_.theirs_from, taking_.length - taking_.theirs_from);
  if (moved != RemoteNic::Moved::all)
    fetch_failed(moved, effects);
  else
    long_one_is_there(effects);
  return true;
}

}  // namespace viaduct::vipl
