// A long message on its way into the next receive descriptor otherwise than through the ring: fetched by us, or moved
// by both sides, each a part.
//
// Owns what is known of it. Under the VI's lock.
#pragma once

#include "via/vipl/receives.hpp"

namespace viaduct::vipl {

class Taking {
 public:
  using Moved = via::ShmReach::Moved;
  struct Message {
    std::uint32_t word = 0;
    std::uint32_t immediate = 0;
    via::RemoteBytes there{};  // the sender's memory
  };

  Taking(Link& link, Receives& receives) : link_(link), receives_(receives) {}
  void connected() { forget(); }

  void begin(const Message& message) { message_ = message; }
  void forget() { message_ = {}, waiting = stalled = false; }
  const Message& message() const { return message_; }

  bool waiting = false;  // for the part that is the sender's to write, or for bytes from another host
  bool stalled = false;  // an offer that the sender has, for now: it stays in the ring
  bool idle() const { return !waiting && !stalled; }
  // Receives go back to the program. True: one of them may have a part of this message.
  bool let_receive_go() {
    stalled = false;
    return std::exchange(waiting, false);
  }

  // A part of it. no_way: nothing was touched.
  Moved fetch(std::size_t offset, std::size_t length);
  bool fetch_from_afar(std::uint64_t cookie);  // the whole; false: it cannot be
  void failed(Moved why);
  void finish(Effects& effects);  // all of it is there

 private:
  Link& link_;
  Receives& receives_;
  Message message_;
};

}  // namespace viaduct::vipl
