// How the two ends of a TCP connection come to share memory: when they look for each other at their meeting place
// (meeting_place.hpp), who may, and what they agree on. Neither keeps the program waiting for that: a peer that does
// not come costs a look now and then, and one that says no costs nothing more.
#pragma once

#include "sockets/connection.hpp"

namespace viaduct::sockets {

// At an operation on a connection that is young or offering; many bytes count as many operations. Keeps errno.
void count_operation(Connection& connection, int fd, std::size_t bytes);
// Was accepted. Where connections are to be upgraded at once, this end is there before the peer looks for it.
void count_birth(Connection& connection, int fd);

// For who sends a lot by one call.
class PeerOnItsWay {
 public:
  PeerOnItsWay(Connection& connection, int fd) : connection_(connection), fd_(fd) {}
  // Not where the last one did not.
  bool may_come() const;
  // It reads some of what was sent before it comes, and until then TCP's buffers would take as much as they can, to be
  // read at TCP's speed. So where the last one came, and the call may wait, what was sent is let arrive first: a peer
  // that does not come still has that to read, and does not wait for more.
  void wait_a_moment(std::size_t bytes_left);

 private:
  Connection& connection_;
  int fd_;
  std::uint64_t patience_ns_ = 500'000;  // for all of the call
};

// A connection is about to end: where they end too soon after meeting, later ones have to prove more first.
void learn_from_end(const Connection& connection);

// Ends the offer, if there is one.
void withdraw(Connection& connection);
// The same where another will be made later. Under its lock; false: there was none.
bool withdraw_for_now(Connection& connection);

// Takes over memory that came with the descriptor (exec), or was just made.
void attach(Connection& connection, int socket, Segment segment, int side);

// This process reads with the ring in mind only: the peer may use it now. Harmless to repeat.
void announce_if_ready(Connection& connection, int fd);

}  // namespace viaduct::sockets
