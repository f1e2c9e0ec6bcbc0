// Back to TCP: one direction or both, at any time and for good, so that nothing is lost and the socket may be used by
// somebody who knows nothing of rings.
#pragma once

#include "sockets/connection.hpp"

namespace viaduct::sockets {

// Sending goes over TCP from now on and for good; the receiver takes what the ring holds first.
void hand_back_sending(Connection& connection, int fd, Why why);

// The same because somebody outside has asked for it, with time to leave nothing behind: where there is more unread
// than can go over TCP first, it is put off.
inline bool is_asked_back(const Connection& connection) {
  return (connection.own().request.load(std::memory_order_relaxed) & kHandBack) != 0;
}
bool hand_back_is_due(const Connection& connection);  // and not put off
void hand_back_if_read(Connection& connection, int fd);
// By who would send on: not before he has waited for a peer that reads.
void hand_back_while_read(Connection& connection, int fd);

// Not for good (rest.hpp): by who sends, where nothing is unread.
void hand_back_to_rest(Connection& connection, int fd);

// Under the sending lock: what the peer has not read goes over TCP, because it wants it so.
void serve_take_back(Connection& connection, int fd);

// What this end has not read is to come over TCP: the peer sends it again when it next looks, or leaves the ring.
// False: there is nothing, or it will not.
bool ask_for_unread_over_tcp(Connection& connection, int fd);

// Both directions, unread bytes included, so that the socket may be used by somebody who knows nothing of rings. True:
// there are bytes in the ring, which the peer will send over TCP the next time it looks at the connection.
bool begin_hand_back(Connection& connection, int fd, Why why);
// Waits for the peer to have done so, for as long, and leaves no doorbell behind.
void finish_hand_back(Connection& connection, int fd, int patience_ms);

// There is something in the ring for a receiver who may sleep until something comes behind what is unread on TCP, where
// a bell must not lie: what is in the ring goes there, and the sending with it, unless he reads meanwhile.
void wake_past_data(Connection& connection, int fd);

// What the peer, or somebody outside, asked of this end; to be called when a doorbell came. Cheap when there is
// nothing.
void serve_requests(Connection& connection, int fd);

}  // namespace viaduct::sockets
