// Messages that come through the channel: copied into the descriptors posted for them, or into memory by RDMA, fragment
// by fragment.
//
// Everything a fragment says is the peer's word: lengths and order are checked. Functions that are given one say false
// where it makes no sense.
//
// Owns what has come of a message in part. Under the VI's lock.
#pragma once

#include <span>

#include "via/vipl/account.hpp"
#include "via/vipl/partial_message.hpp"
#include "via/vipl/rdma.hpp"
#include "via/vipl/receives.hpp"

namespace viaduct::vipl {

class Incoming {
 public:
  Incoming(Link& link, Receives& receives, Account& account, Rdma& rdma)
      : link_(link), receives_(receives), account_(account), rdma_(rdma) {}
  void connected() { in_ = {}; }

  bool take_send(const via::Fragment& fragment, Effects& effects);
  bool take_rdma_done(const via::Fragment& fragment, Effects& effects);
  // A long send, a write or a reply: the first fragment, and the others.
  bool start(const via::Fragment& fragment, Effects& effects);
  bool go_on(const via::Fragment& fragment, Effects& effects);

  bool in_part() const { return in_.word != 0; }
  bool is_write() const { return in_.kind() == kWrite; }
  // Receives go back to the program. True: one of them has a part of this message.
  bool let_receive_go() { return std::exchange(in_.has_receive, false) && in_.have != 0; }

 private:
  bool start_long_send(const via::Fragment& fragment, std::size_t& header, Effects& effects);
  void place_long_send(std::span<const std::byte> bytes, Effects& effects);
  bool take_bytes(std::span<const std::byte> bytes, bool last, Effects& effects);
  void end_of_message(Effects& effects);

  Link& link_;
  Receives& receives_;
  Account& account_;
  Rdma& rdma_;
  PartialMessage in_;
};

}  // namespace viaduct::vipl
