// Which way a direction goes: to the ring, back to TCP, and the doorbell that TCP carries meanwhile.
#pragma once

#include "sockets/connection.hpp"

namespace viaduct::sockets {

// Under the sending lock. False: not yet, the peer does not look at the ring or somebody writes to TCP just now.
bool switch_to_ring(Connection& connection, int fd);

// Sending goes over TCP from now on and for good; the receiver takes what the ring holds first.
void hand_back_sending(Connection& connection, int fd, Why why);

// Under the sending lock of that direction: what its receiver has not read goes over TCP, from the socket `fd`.
void send_unread_over_tcp(const StreamMemory& memory, int direction, int fd, Opened opened);
// The same for this end's own direction, because the peer wants it so.
void serve_take_back(Connection& connection, int fd);

// Both directions, unread bytes included, so that the socket may be used by somebody who knows nothing of rings. True:
// there are bytes in the ring, which the peer will send over TCP the next time it looks at the connection.
bool begin_hand_back(Connection& connection, int fd, Why why);
// Waits for the peer to have done so, for as long, and leaves no doorbell behind.
void finish_hand_back(Connection& connection, int fd, int patience_ms);

// Wakes a peer that sleeps in the kernel: one byte over TCP. False: there was no way, or no need.
bool ring_doorbell(Connection& connection, int fd);
bool bell_would_lie_behind_data(const Connection& connection);

// What the peer, or somebody outside, asked of this end; to be called when a doorbell came. Cheap when there is
// nothing.
void serve_requests(Connection& connection, int fd);

// Under the receiving lock: goes on to the stage that the sender's path, and what was read so far, allow.
std::uint32_t follow_path(Connection& connection, int fd);

// Under the receiving lock: takes doorbells off TCP, as many as the peer says it has rung.
void drain_doorbells(Connection& connection, int fd);
// The same for a ring that was found empty, with those in mind who sleep on it and may not have seen the bell yet:
// they are rung for again, or the bell is left to them. `own_sleeps`: how many of them are the caller. False: left.
bool settle_doorbells(Connection& connection, int fd, std::uint32_t own_sleeps);

// What this end has not read is to come over TCP: the peer sends it again when it next looks, or leaves the ring.
// False: there is nothing, or it will not.
bool ask_for_unread_over_tcp(Connection& connection, int fd);

// A peer that goes with unread bytes resets a TCP connection; true once.
bool peer_lost_bytes(Connection& connection, int fd);
// The same for who only looks, to be told later: true until it was.
bool find_reset(Connection& connection, int fd);

// To the peer, of halves that the program has shut down.
void tell_of_shutdown(Connection& connection);

}  // namespace viaduct::sockets
