// A connection rests on TCP where that costs less (judge.hpp): both directions go back as by a hand-back, with nothing
// left in the ring, and may go to the ring again later. Meanwhile its calls are the kernel's own, but for a count.
//
//   1  either end sets kRest in both ends' `request`
//   2  each sender, at a send that finds its ring empty: `rests`, then `mode` kBack; the receiver follows to kReadBack
//   3  somebody clears kRest in both
//   4  each sender, at a send that finds its receiver at kReadBack: `mode` kTcp
//   5  the receiver, none of whose threads is inside the kernel's recv without the ring in mind: stage kReadTcp
//   6  the sender goes to the ring as it did first, and not before it sees 5
//
// Whoever gives the socket away makes it stay: a sender by clearing `rests`, a receiver by asking for what it has not
// read over TCP, which holds 4 and 5 back.
#pragma once

#include <optional>

#include "sockets/connection.hpp"
#include "sockets/judge.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

// Either end says so.
inline bool is_to_rest(const Connection& connection) {
  return ((connection.own().request.load(std::memory_order_relaxed) |
           connection.peer().request.load(std::memory_order_relaxed)) &
          kRest) != 0;
}
// What this end sends goes over TCP, not for good.
inline bool sender_rests(const Connection& connection) {
  const Path& path = connection.outgoing().path;
  return path.mode.load(std::memory_order_relaxed) == kBack && path.rests.load(std::memory_order_relaxed) != 0;
}

// Whether 2 or 4 is due for who sends; and it is done, by who holds no lock.
bool sender_is_to_change_over(const Connection& connection);
void change_over_for_rest(Connection& connection, int fd);
// Under the receiving lock, in stage kReadBack. False: not yet.
bool receive_as_before_rest(Connection& connection, int fd);  // 5

// The kernel's own call. Nothing: the connection does not rest, or not any more, or there is more to it.
std::optional<ssize_t> send_at_rest(Connection& connection, int fd, const iovec* pieces, std::size_t count, int flags);
std::optional<ssize_t> receive_at_rest(Connection& connection, int fd, const iovec* pieces, std::size_t count,
                                       int flags, Beside* beside);

Judge new_judge();
// After somebody was rung for, or has slept, or something was sent or received at rest: one time in many the judge
// looks.
void weigh_now(Connection& connection);
constexpr std::uint32_t kEventsPerLook = 16;
inline void weigh(Connection& connection) {
  const std::uint32_t events = connection.events_to_weigh.load(std::memory_order_relaxed) + 1;
  connection.events_to_weigh.store(events, std::memory_order_relaxed);
  if (events % kEventsPerLook == 0) [[unlikely]]
    weigh_now(connection);
}
// For tests, where the judge is to look at everything.
void weigh_if_always(Connection& connection);

}  // namespace viaduct::sockets
