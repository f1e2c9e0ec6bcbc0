// Sends by reference: a message too long for the ring, into a receive that the sender cannot reach (yet), stays where
// it is, and the receiver fetches it.
//
//   sender    kReference: here it lies. Nothing is sent behind it until there is an answer
//   receiver  fetches it: the receive is complete; kTaken. Or kDeclined
//   sender    the send is complete; or the bytes go through the ring, as will all others
//
// Neither side trusts the other: each looks at the other's registrations before it touches memory there, and what it
// touches of its own is what its program has posted. Between hosts the sender lends the bytes under a key of their own,
// and the receiver pulls them without waiting.
//
// Owns the question that waits for its answer, and the answers that are to be given. Under the VI's lock.
#pragma once

#include "via/vipl/account.hpp"
#include "via/vipl/taking.hpp"

namespace viaduct::vipl {

class References {
 public:
  static constexpr std::uint64_t kFetching = UINT64_MAX;  // a get's cookie; those of RDMA are positions in a queue

  References(Link& link, Queues& queues, Receives& receives, Outgoing& outgoing, Account& account, Taking& taking)
      : link_(link), queues_(queues), receives_(receives), outgoing_(outgoing), account_(account), taking_(taking) {}
  void connected() { asking_ = declined_ = tell_declined_ = tell_taken_ = false, lent_ = 0; }

  // ---- the sender

  bool goes_by_reference(const WorkItem& item) const;
  Pushed push(WorkItem& item);
  bool asking() const { return asking_; }
  bool lends_memory() const { return lent_ != 0; }
  bool take_taken(const via::Fragment& fragment, Effects& effects);
  bool take_declined(const via::Fragment& fragment);
  void take_back_key(WorkItem& item);  // by which another host reads the bytes

  // ---- the receiver

  bool take(const via::Fragment& fragment, Effects& effects);
  // From another host. True: there is an answer to be given.
  bool was_fetched(via::Reach::Began how, Effects& effects);
  bool has_to_answer() const { return tell_taken_ || tell_declined_; }
  Pushed push_answer();

 private:
  using Moved = via::ShmReach::Moved;
  WorkItem* asked_for();

  Link& link_;
  Queues& queues_;
  Receives& receives_;
  Outgoing& outgoing_;
  Account& account_;
  Taking& taking_;
  bool asking_ = false;         // the last one sent has not been answered, and nothing is sent behind it
  bool declined_ = false;       // the peer cannot reach our memory: never again
  bool tell_declined_ = false;  // what could not be pushed yet
  bool tell_taken_ = false;
  std::uint32_t lent_ = 0;  // sent, and not taken yet: the peer may be reading them
};

}  // namespace viaduct::vipl
