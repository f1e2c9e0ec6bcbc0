// Direct placement: a sender that can reach the memory of the receive descriptor its message will take copies the
// message there itself, and sends one word. No copy at the other end, and nobody waits for anybody.
//
// The receiver shows its descriptors in order (memory_table.hpp), and the sender, who counts its messages, knows which
// is its own:
//
//   receiver  shows number n: address, handle, length
//   sender    its n-th message: copies it there, under S1; kDirect
//   receiver  looks at its own descriptor once more, and completes it
//
// A descriptor that is not shown (yet), of several segments, in memory that cannot be reached or too short: the message
// goes the other ways, and says there what is wrong.
//
// Owns nothing. Under the VI's lock; only where the peer shares memory.
#pragma once

#include "via/vipl/account.hpp"
#include "via/vipl/receives.hpp"

namespace viaduct::vipl {

class Direct {
 public:
  using Moved = via::ShmReach::Moved;

  Direct(Link& link, Receives& receives, Outgoing& outgoing, Account& account)
      : link_(link), receives_(receives), outgoing_(outgoing), account_(account) {}

  // A part of a message into the receive with that number.
  Moved put_there(const WorkItem& item, std::uint64_t number, std::uint32_t offset, std::uint32_t length);
  Pushed push(WorkItem& item);  // one that is there
  bool take(const via::Fragment& fragment, Effects& effects);

 private:
  Link& link_;
  Receives& receives_;
  Outgoing& outgoing_;
  Account& account_;
};

}  // namespace viaduct::vipl
