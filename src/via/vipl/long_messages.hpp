// Messages of 8 KB and more on a reliable VI, and how each of them goes: through the ring, into the receive descriptor
// itself, by halves, or by reference.
//
// Owns the ways. Under the VI's lock.
#pragma once

#include "via/vipl/direct.hpp"
#include "via/vipl/offers.hpp"
#include "via/vipl/references.hpp"
#include "via/vipl/taking.hpp"

namespace viaduct::vipl {

class LongMessages {
 public:
  LongMessages(Link& link, Queues& queues, Receives& receives, Outgoing& outgoing, Account& account)
      : link_(link),
        queues_(queues),
        account_(account),
        taking_(link, receives),
        direct_(link, receives, outgoing, account),
        offers_(link, queues, receives, outgoing, account, taking_, direct_),
        references_(link, queues, receives, outgoing, account, taking_) {}
  void connected();

  Pushed push(WorkItem& item);
  // A message of kind kReference to kRest. False: it makes no sense.
  bool take(const via::Fragment& fragment, Effects& effects);

  // Nothing of what comes in waits: no message is being taken.
  bool idle() const { return taking_.idle(); }
  const Taking& taking() const { return taking_; }
  Offers& offers() { return offers_; }
  References& references() { return references_; }
  const References& references() const { return references_; }

  // What the other side waits for.
  bool has_to_answer() const { return references_.has_to_answer(); }
  Pushed push_answers();

  // The peer may be copying from or to what is posted.
  bool lends_memory() const { return taking_.waiting || references_.lends_memory() || offers_.any_unfinished(); }
  bool let_receive_go() { return taking_.let_receive_go(); }

 private:
  enum class Way { ring, direct, offer, reference };
  Way way_of(const WorkItem& item);

  Link& link_;
  Queues& queues_;
  Account& account_;
  Taking taking_;
  Direct direct_;
  Offers offers_;
  References references_;
};

}  // namespace viaduct::vipl
