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
//
// Owns how far our offers are, and the peer's that is being received. Under the VI's lock; only where the peer shares
// memory.
#pragma once

#include "via/vipl/direct.hpp"
#include "via/vipl/taking.hpp"

namespace viaduct::vipl {

class Offers {
 public:
  Offers(Link& link, Queues& queues, Receives& receives, Outgoing& outgoing, Account& account, Taking& taking,
         Direct& direct)
      : link_(link),
        queues_(queues),
        receives_(receives),
        outgoing_(outgoing),
        account_(account),
        taking_(taking),
        direct_(direct) {}
  void connected();

  // ---- the sender

  bool may_offer(const WorkItem& item);
  Pushed push(WorkItem& item);
  Pushed push_rest();  // what must follow the last offer
  std::uint64_t made() const { return sent_.made; }
  bool any_unfinished() const { return sent_.unfinished != 0; }
  // True: some are in the receive, and perhaps received.
  bool some_are_there();
  void look(Effects& effects);
  void take_back(Effects& effects);  // those that the receiver has not begun with
  void not_now(bool now) { sent_.not_now = now; }
  void let_sends_go() { sent_.unfinished = 0; }

  // ---- the receiver

  bool take(const via::Fragment& fragment, Effects& effects);
  bool take_rest(const via::Fragment& fragment, Effects& effects);
  bool has_handed_back() { return !std::exchange(coming_.told, true); }  // since the last time

 private:
  using Moved = via::ShmReach::Moved;
  using Place = std::atomic<std::uint64_t>;
  using Whose = via::SharedEnd::Whose;
  enum class Rest { said, is_there, is_not };

  OfferWords& words(Whose whose) const { return *reinterpret_cast<OfferWords*>(link_.channel->shared()->words(whose)); }
  Place& ours(std::uint64_t offer) const { return words(Whose::ours).states[offer % kMostOffers]; }
  Place& theirs(std::uint64_t offer) const { return words(Whose::theirs).states[offer % kMostOffers]; }
  void say_whether_we_can_fetch() { words(Whose::ours).fetches = link_.shared->reaches_by_cma() ? 1 : 0; }

  bool peer_can_fetch(const WorkItem& item) const;
  bool take_one_back(WorkItem& item);
  void is_there(WorkItem& item);
  void was_returned(Effects& effects);
  bool settle(Effects& effects);
  bool wait_for_sender(bool connected);

  Link& link_;
  Queues& queues_;
  Receives& receives_;
  Outgoing& outgoing_;
  Account& account_;
  Taking& taking_;
  Direct& direct_;

  // To the peer, by number: open are those behind `through`.
  struct {
    Rest rest = Rest::said;  // of the last one
    std::uint64_t made = 0;
    std::uint64_t through = 0;     // by the peer
    std::uint32_t unfinished = 0;  // sends
    std::uint32_t looks = 0;       // since the peer was through with one
    std::uint32_t pause = 0;       // messages until the next offer
    std::uint32_t next_pause = 0;
    bool not_now = false;
    bool never = false;  // the peer cannot reach our memory
  } sent_;

  // The peer's that is being received.
  struct {
    std::uint64_t number = 0;
    std::uint32_t part = 0;  // bytes at the front that are ours to fetch
    std::uint32_t looks = 0;
    bool returned = false;  // by us
    bool told = true;       // that it is
    bool peer_is_gone = false;
  } coming_;
  std::uint64_t seen_ = 0;  // of the peer's
};

}  // namespace viaduct::vipl
