// What becomes of what has come: fragments are looked at in place, and each kind of message goes to the part whose
// business it is.
//
// Everything a fragment says is the peer's word. A message that makes no sense breaks this connection and nothing else.
#include <utility>

#include "base/counters.hpp"
#include "via/vipl/vi.hpp"

namespace viaduct::vipl {

// Receives until this queue has something, unless somebody else leads: then that one does it.
void Vi::try_to_receive(bool receive_queue, Effects& effects) {
  if (!link_.intact()) return;
  const bool lead = attended;
  if (lead && !link_.adapter->leadership().try_lead()) return;
  (void)receive_some(receive_queue ? Enough::one_receive : Enough::one_send, effects);
  if (lead) link_.adapter->stop_leading(effects);
}

// True: there is more than one visit takes.
bool Vi::receive_some(Enough enough, Effects& effects) {
  int handled = 0, consumed = 0;
  bool looked_afar = link_.far == nullptr || enough == Enough::everything;  // a visit: the ready queue has looked
  if (link_.far != nullptr) [[unlikely]]
    take_news_from_afar(effects);
  while (link_.intact()) {
    const bool satisfied = enough == Enough::one_receive ? queues_.receive.has_completed()
                                                         : enough == Enough::one_send && queues_.send.has_completed();
    if (handled != 0 && (satisfied || handled == kMostPerVisit)) break;
    via::Fragment fragment;
    const via::Got got = link_.channel->peek(fragment);
    if (got == via::Got::nothing) {
      if (std::exchange(looked_afar, true) || !link_.channel->progress()) break;
      take_news_from_afar(effects);
      continue;
    }
    if (got == via::Got::end) {
      link_.lost(incoming_.is_write() ? VIP_ERROR_RDMAW_ABORT : VIP_ERROR_CONN_LOST);
      end_if_broken(effects);
      break;
    }
    ++handled;
    if (!take_fragment(fragment, effects)) {
      static Counter nonsense = counter("via.nonsense");
      nonsense.add();
      link_.lost(incoming_.is_write() ? VIP_ERROR_RDMAW_DATA : VIP_ERROR_CONN_LOST);
    }
    end_if_broken(effects);
    if (long_.taking().stalled) break;
    link_.channel->consume();
    ++consumed;
  }
  if (handled == 0 || !link_.intact()) return false;
  if (long_.offers().has_handed_back() || consumed != 0) tell_of_room();
  if (account_.has_to_tell() || rdma_.has_to_reply() || queues_.send.has_waiting() || long_.has_to_answer())
    (void)run_sends(effects);
  return handled == kMostPerVisit || long_.taking().stalled;
}

// False: it makes no sense.
bool Vi::take_fragment(const via::Fragment& fragment, Effects& effects) {
  const Taking& taking = long_.taking();
  if (!incoming_.in_part() && fragment.immediate == kSend && taking.idle()) [[likely]]
    return incoming_.take_send(fragment, effects);
  if (taking.stalled && kind_of(fragment.immediate) != kOffer) return false;  // it is the one we saw before
  return incoming_.in_part() ? incoming_.go_on(fragment, effects) : take_message(fragment, effects);
}

bool Vi::take_message(const via::Fragment& fragment, Effects& effects) {
  const std::uint32_t word = fragment.immediate;
  if ((word & ~(kKindMask | kWithImmediate)) != 0) return false;
  const std::uint32_t kind = kind_of(word);
  const bool consumes = kind <= kWrite || kind == kReference || kind == kDirect || kind == kOffer;
  if (long_.taking().waiting && consumes) return false;  // behind one that is not complete
  switch (kind) {
    case kSend:
      return incoming_.take_send(fragment, effects);
    case kLongSend:
    case kWrite:
    case kReadReply:
      return incoming_.start(fragment, effects);
    case kRdmaDone:
      return incoming_.take_rdma_done(fragment, effects);
    case kRead:
      return rdma_.take_read(fragment);
    case kPlaced:
      return account_.take_placed(fragment, effects);
    case kReference:
    case kTaken:
    case kDeclined:
    case kDirect:
    case kOffer:
    case kRest:
      return long_.take(fragment, effects);
    case kRoom:
      return fragment.last;  // a wake-up: whoever waits for room tries again
    case kBroken:
      return take_broken(fragment);
    case kDisconnect:
      link_.lost(VIP_ERROR_CONN_LOST);
      return true;
    default:
      return false;
  }
}

bool Vi::take_broken(const via::Fragment& fragment) {
  BrokenHeader header;
  if (!read_header(fragment, header) || header.code > VIP_ERROR_CATASTROPHIC) return false;
  auto code = static_cast<VIP_ERROR_CODE>(header.code);
  // What did it is the oldest of its kind that is not acknowledged.
  const bool read = code == VIP_ERROR_RDMAR_PROT;
  const std::uint32_t status = header.descriptor != 0                 ? VIP_STATUS_REMOTE_DESC_ERROR
                               : read || code == VIP_ERROR_RDMAW_PROT ? VIP_STATUS_RDMA_PROT_ERROR
                                                                      : 0;
  (void)long_.offers().some_are_there();
  if (status != 0)
    queues_.send.for_each_started([&](WorkItem& item) {
      if (item.finished || item.read_under_way != read) return true;
      item.finish(status | item.send_operation());
      return false;
    });
  if (code == VIP_ERROR_RECVQ_EMPTY) code = VIP_ERROR_CONN_LOST;  // the peer's queue, not ours
  link_.fail(code, Link::Tell::nothing);
  return true;
}

// Ends of gets and puts that were under way between hosts, and sends that are complete since the peer's side has them.
void Vi::take_news_from_afar(Effects& effects) {
  via::Reach::End end;
  while (link_.intact() && link_.reach->take_end(end)) {
    const bool more_to_send = end.cookie == References::kFetching ? long_.references().was_fetched(end.how, effects)
                                                                  : rdma_.transfer_ended(end, effects);
    end_if_broken(effects);
    if (more_to_send) (void)run_sends(effects);
  }
  if (link_.intact() && account_.waits_for_delivery()) account_.finish_what_is_delivered(effects);
}

// A sender that sleeps for want of room hears of it by a message; if that does not fit either, it has plenty to read.
void Vi::tell_of_room() {
  if (link_.shared == nullptr) return;  // credit tells
  link_.adapter->light_fence();         // what we consumed, then the wish: pairs with the heavy fence in ask_for_room()
  if (!link_.shared->wants_room() || outgoing_.begun()) return;
  (void)outgoing_.push_control(kRoom, {});
}

}  // namespace viaduct::vipl
