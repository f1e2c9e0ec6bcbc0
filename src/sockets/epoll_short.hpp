// The usual wait, in as few instructions as it takes: of a program with one thread, for a set with one active member
// that wants data or room and nothing else, and has it; the servers and clients of short_message.hpp. What Waiting
// (epoll_wait.cpp) would do, which has everything else.
#pragma once

#include <sys/epoll.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <cstdint>

#include "sockets/epoll_set_state.hpp"
#include "sockets/order.hpp"
#include "sockets/retired.hpp"

namespace viaduct::sockets {

// While rings have something, so many waits may go by between looks at the clock, if they take no longer than a turn by
// the processor's own counter.
constexpr int kWaitsPerTurn = 256;

// Both halves are on the ring, and there is no end to be told of.
[[gnu::always_inline]] inline bool is_plainly_on_ring(const Connection& connection) {
  const Direction& in = connection.incoming();
  const End& own = connection.own();
  const End& peer = connection.peer();
  return in.receiving.stage.load(std::memory_order_relaxed) == kReadRing &&
         in.path.mode.load(std::memory_order_relaxed) == kRing &&
         connection.outgoing().path.mode.load(std::memory_order_relaxed) == kRing &&
         (peer.closed.load(std::memory_order_relaxed) | peer.finished.load(std::memory_order_relaxed) |
          own.closed.load(std::memory_order_relaxed)) == 0 &&
         !connection.end_seen.load(std::memory_order_relaxed) &&
         !connection.reads_no_more.load(std::memory_order_relaxed) &&
         connection.low_water.load(std::memory_order_relaxed) == 1;
}

// 1, with `event`; 0: to be waited for otherwise.
[[gnu::always_inline]] inline int wait_short(EpollSet& set, epoll_event& event, bool may_wait) {
  const AtMemory here;
  if (__libc_single_threaded == 0 || set.active_count.load(std::memory_order_relaxed) != 1 || set.nested_count != 0 ||
      set.kernel_is_due || set.inherited.load(std::memory_order_relaxed) ||
      set.sleeping.load(std::memory_order_relaxed) != 0 || (set.turn + 1) % EpollSet::kTurnsPerRest == 0 ||
      set.waits_since_kernel + 1 >= kWaitsPerTurn)
    return 0;
  EpollItem& item = *set.active.load(std::memory_order_relaxed)[0];
  if (item.connection == nullptr || item.fired || item.deleted ||
      (item.events & ~(kEpollData | kEpollRoom | EPOLLRDHUP | EPOLLPRI)) != 0)
    return 0;
  const Connection& connection = *item.connection;
  if (!connection.attached() || !is_plainly_on_ring(connection)) return 0;
  std::uint32_t bits = 0;
  if ((item.events & kEpollRoom) != 0 &&
      Sender(connection.memory, connection.outgoing(), connection.incoming(), connection.out_slots)
          .has_room_now(Sender::Room::a_third, Sender::Growth::counted))
    bits = item.events & kEpollRoom;
  Stillness::FirstUnread unread;
  if ((item.events & kEpollData) != 0) {
    const ReceiveState& state = connection.incoming().receiving;
    Stillness before(state, connection.in_slots);
    bool found = before.has_data();
    if (!found && bits == 0 && may_wait) {
      const bool two_lines = connection.two_lines.load(std::memory_order_relaxed);
      const auto ready = [&]() __attribute__((always_inline)) {
        if (two_lines) before.prefetch_behind();
        return !before.holds();
      };
      if (!set.spinner.glance(ready)) return 0;
      before.look_again();
      found = before.has_data();
    }
    if (found) {
      unread = before.first_unread();
      // What was told and left, or sent after something that the kernel may have, is looked into.
      if ((unread.position == item.told_slot && unread.taken == item.told_taken) || unread.mark.after_tcp()) return 0;
      bits |= item.events & kEpollData;
      if (unread.position != item.told_slot)
        set.heard_until = std::max(set.heard_until, unread.mark.moment(set.heard_until));
    }
  }
  if (bits == 0 || moment_now() - set.kernel_looked >= kTurnMoments) return 0;
  ++set.waits_since_kernel;
  item.heard_in = ++set.turn;
  item.told = set.heard_until;
  item.told_slot = unread.position;
  item.told_taken = unread.taken;
  item.idle_sleeps = 0;
  item.fresh = false;
  if ((bits & kEpollRoom) != 0) item.room_told = true;
  event.events = bits;
  event.data.u64 = item.data;
  return 1;
}

}  // namespace viaduct::sockets
