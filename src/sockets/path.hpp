// Which way a direction goes, TCP or the ring, and how its receiver follows. The doorbell that TCP carries meanwhile is
// in bell.hpp.
// How a direction leaves the ring again is in hand_back.hpp.
#pragma once

#include "sockets/connection.hpp"
#include "sockets/stream_lock.hpp"

namespace viaduct::sockets {

// Under the receiving lock, which was left behind: what the ring, and the kernel, say of what was taken.
[[gnu::cold, gnu::noinline]] void put_receiving_right(Connection& connection);

// Of a receiving half: what was left in the middle is put right first.
class ReceivingLock : public StreamLock {
 public:
  [[gnu::always_inline]] explicit ReceivingLock(Connection& connection, bool alone = false)
      : StreamLock(connection.incoming().receiving.lock, alone) {
    if (was_left_behind()) [[unlikely]]
      put_receiving_right(connection);
  }
  [[gnu::always_inline]] ~ReceivingLock() {}  // so that nothing of it is left in the usual case
};

// Under the sending lock. False: not yet, the peer does not look at the ring or somebody writes to TCP just now.
bool switch_to_ring(Connection& connection, int fd);

// Under the receiving lock: goes on to the stage that the sender's path, and what was read so far, allow.
std::uint32_t follow_path(Connection& connection, int fd);

// Before the ring is reached: what it holds will come over TCP.
bool ring_comes_over_tcp(const Connection& connection);
// Under the receiving lock: it did not, so it is read from the ring after all.
void read_ring_again(Connection& connection);

// A peer that goes with unread bytes resets a TCP connection; true once.
bool peer_lost_bytes(Connection& connection, int fd);
// The same for who only looks, to be told later: true until it was.
bool find_reset(Connection& connection, int fd);

// The peer's end of stream comes, or a reset, within that time; where the end is our own doing, there may be another
// behind it.
bool has_ended(const Connection& connection, int fd, int patience_ms);

// To the peer, of halves that the program has shut down.
void tell_of_shutdown(Connection& connection);

}  // namespace viaduct::sockets
