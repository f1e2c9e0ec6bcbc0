// Where a call that moves bytes goes: to the kernel's own, for as long as a connection is not accelerated, or to the
// ring.
#pragma once

#include <sys/single_threaded.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "sockets/cancellation.hpp"
#include "sockets/connection.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

// What the kernel has said to another call than the one that is to tell it.
inline bool tells_error(Connection& connection) {
  if (connection.pending_error.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  const int error = connection.pending_error.exchange(0);
  return error != 0 && error != EPIPE && (errno = error, true);  // which the kernel says again
}

// The kernel's own call for a connection that is not attached; `ring` when it turns out to be, or has just become so.
template <class Call, class Ring>
ssize_t receiving(Connection& connection, int fd, Call&& call, Ring&& ring) {
  const Life life = connection.life.load(std::memory_order_acquire);
  if (life == Life::attached) [[likely]]
    return ring();
  if (tells_error(connection)) [[unlikely]]
    return -1;
  if (life == Life::plain) return call();
  Counted raw(connection.raw_receivers);
  if (connection.attached()) {
    raw.end();
    return ring();
  }
  const ssize_t got = call();
  raw.end();
  if (got > 0) count_operation(connection, fd, static_cast<std::size_t>(got));
  return got;
}

template <class Call, class Ring>
ssize_t sending(Connection& connection, int fd, Call&& call, Ring&& ring, std::size_t bytes = 0) {
  Life life = connection.life.load(std::memory_order_acquire);
  if (life == Life::attached) [[likely]]
    return ring();
  if (tells_error(connection)) [[unlikely]]
    return -1;
  if (life == Life::plain) return call();
  count_operation(connection, fd, bytes);
  if (connection.attached()) return ring();
  Counted raw(connection.raw_senders);
  if (connection.attached()) {
    raw.end();
    return ring();
  }
  note_tcp_use();
  return call();
}

// One call that moves a lot would leave the connection where it is to its end. So it is cut while the peer may still
// come: the kernel's own `call(offset, size)` for each part, `ring(offset)` for all the rest. Each part is as large as
// all before it, since TCP is slower with small ones: a peer that comes is found before twice as much was sent.
constexpr std::size_t kFirstPart = std::size_t{64} << 10;

// What goes wrong behind the first part is for the next call to tell.
inline int quiet_behind(std::size_t offset) {
  return offset != 0 ? MSG_NOSIGNAL : 0;
}

// An error of the socket, which the kernel tells one call only.
inline bool is_said_once(int error) {
  return error != EAGAIN && error != EINTR && error != EPIPE && error != EFAULT;
}

// Not where a time limit is for all of the call, nor where somebody else's bytes could get in between.
inline bool cuts_are_unseen(const Connection& connection, int fd) {
  return __libc_single_threaded != 0 && !connection.shared.load(std::memory_order_relaxed) &&
         time_limit(connection, fd, SO_SNDTIMEO).is_never();
}

template <class Call, class Ring>
ssize_t sending_parts(Connection& connection, int fd, std::size_t size, Call&& call, Ring&& ring) {
  PeerOnItsWay peer(connection, fd);
  const bool may_cut = peer.may_come() && cuts_are_unseen(connection, fd);
  std::size_t done = 0;
  for (bool last = false; !last;) {
    if (done != 0) peer.wait_a_moment(size - done);
    const std::size_t next = std::max(kFirstPart, done);
    const bool cut = may_cut && size - done >= 2 * next && peer.may_come();
    const std::size_t part = cut ? next : size - done;
    last = !cut;
    const ssize_t sent = sending(
        connection, fd, [&] { return call(done, part); }, [&] { return last = true, ring(done); }, part);
    if (sent < 0 && done != 0 && is_said_once(errno)) connection.pending_error.store(errno);
    if (sent < 0) return done != 0 ? static_cast<ssize_t>(done) : -1;
    done += static_cast<std::size_t>(sent);
    if (static_cast<std::size_t>(sent) < part) break;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace viaduct::sockets
