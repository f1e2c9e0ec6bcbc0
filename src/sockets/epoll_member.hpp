// What a member of an epoll set has to tell, for epoll_wait.cpp: inline, for this is asked of all active ones in each
// wait.
#pragma once

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

#include "sockets/epoll_set_state.hpp"
#include "sockets/kernel.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

inline bool wants_data(const EpollItem& item) {
  return (item.events & kEpollData) != 0;
}
inline bool on_edge(const EpollItem& item) {
  return (item.events & EPOLLET) != 0;
}

// The events that the ring alone can tell; `unread`: of which slot, if of data.
inline std::uint32_t ring_says(EpollItem& item, Stillness::FirstUnread* unread = nullptr) {
  if (item.connection == nullptr) return 0;  // a signal handler has just closed it
  Connection& connection = *item.connection;
  if (connection.two_lines.load(std::memory_order_relaxed)) item.still.prefetch_behind();
  if (item.still.holds()) [[likely]]
    return 0;
  if (item.fired || item.deleted || !connection.attached()) return 0;
  std::uint32_t bits = 0;
  if (wants_data(item)) {
    const Stillness before(connection.memory, connection.in());
    const bool plainly = receives_on_ring(connection) && connection.low_water.load(std::memory_order_relaxed) == 1;
    const bool readable =
        plainly ? before.has_data() : ring_readable(connection, item.fd) || has_new_data_behind_tcp(item);
    if (!readable) {
      const bool lasting = (item.events & kEpollRoom) == 0 && receives_on_ring(connection) &&
                           connection.low_water.load(std::memory_order_relaxed) == 1 &&
                           before.is_of_head(connection.memory, connection.in());
      item.still = lasting ? before : Stillness();
    } else if (!on_edge(item) || has_new_data(item)) {
      bits = item.events & kEpollData;
      before.prefetch_behind();
      if (unread != nullptr) *unread = before.first_unread();
    }
  }
  if (EpollSet::wants_room(item) && !(on_edge(item) && item.room_told && bits == 0) && ring_writable(connection))
    bits |= item.events & kEpollRoom;
  return bits;
}

// What it has to add: how the stream ended, and of a half that is on TCP.
inline std::uint32_t kernel_adds(const EpollItem& item) {
  const bool known = !item.fresh && (item.events & EPOLLONESHOT) == 0;  // else it is to be told all at once
  const std::uint32_t events = on_edge(item) && known ? 0 : item.events;
  const bool in_on_tcp = (events & kEpollData) != 0 && receives_over_tcp(*item.connection);
  const bool out_on_tcp = (item.events & kEpollRoom) != 0 && !sends_on_ring(*item.connection);  // on an edge too
  const bool over = item.connection->peer_says_end() || item.connection->has_shut_down() ||
                    item.connection->end_seen.load(std::memory_order_relaxed);
  if (!over && !in_on_tcp && !out_on_tcp) [[likely]]
    return 0;
  pollfd entry{item.fd, static_cast<short>(POLLRDHUP | (in_on_tcp ? kEpollData : 0) | (out_on_tcp ? kEpollRoom : 0)),
               0};
  kernel::libc().poll(&entry, 1, 0);
  auto bits = static_cast<std::uint32_t>(entry.revents);
  if (item.connection->pending_error.load(std::memory_order_relaxed) == ECONNRESET) bits |= EPOLLERR | EPOLLHUP;
  if ((bits & EPOLLRDHUP) != 0) bits |= kEpollData;
  if ((bits & kEpollData) != 0 && in_on_tcp && !readable_after_all(*item.connection, item.fd, true))
    bits &= ~kEpollData;
  return bits & (item.events | EPOLLERR | EPOLLHUP);
}

}  // namespace viaduct::sockets
