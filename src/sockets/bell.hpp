// Who sleeps, and how it is woken: a receiver that waits for data, a sender that waits for room.
//
// A sleeper says so in the shared memory (it *arms*), looks once more, and sleeps in the kernel. Whoever publishes what
// it waits for looks at the armed word behind a fence (F1, F2), clears it, and rings:
//
//   an event bell  where the sleep has one that the waker holds: an eventfd beside the sleeper's sockets
//                  (event_bell.hpp). It wakes that sleep and nobody else.
//   a doorbell     otherwise: one byte on the TCP connection. It makes the socket readable for everybody who waits for
//                  it in whatever way; the library takes it off again before the program can see it. Doorbells rung
//                  and doorbells taken off are counted on both sides.
//
// A sleeper waits for its socket in either case: a peer that is killed between clearing the word and ringing ends the
// TCP connection.
#pragma once

#include "sockets/connection.hpp"

namespace viaduct::sockets {

// ---- falling asleep

// How a sleeper is to be woken.
struct Sleep {
  std::uint64_t name = kRingForMe;  // DataWait::armed
  std::uint64_t bell = 0;           // EventBell::id; none with kRingForMe
};

// A sleep of this process that any of its connections ends, with a name that no other sleep has, of this process or
// another; `bell`: EventBell::id, 0: a doorbell ends it.
Sleep next_sleep(std::uint64_t bell);
// The same sleep as those know it by whom a doorbell is to end it.
inline Sleep without_bell(Sleep sleep) {
  return {.name = sleep.name & ~kWithBell, .bell = 0};
}

// Whether sleeps on the connection may have an event bell: this process alone holds its end, and the peer's processes
// are this user's.
bool may_have_event_bell(const Connection& connection);

// Before sleeping, for whatever sleeps on the connection's socket: the peer must ring. Pairs with
// stop_expecting_data(). Where somebody else sleeps on it too a doorbell wakes both.
void expect_data(Connection& connection, Sleep sleep = {});
void expect_data_again(Connection& connection, Sleep sleep = {});  // counted already
void stop_expecting_data(Connection& connection);

// After a sleep that a doorbell of the peer ended: how long the wait would have been, had both sides been awake. What
// waking up costs says nothing about how soon the peer answers; counted in, two sides that once slept would sleep for
// ever.
std::uint64_t time_had_nobody_slept(Connection& connection, std::uint64_t start, std::uint64_t now);

// ---- ringing

// After publishing: rings for a receiver that sleeps, unless it was woken already.
void wake_receiver(Connection& connection, int fd);
// The thread jumps (longjmp) out of all that is on its stack before `target`, perhaps out of that.
void finish_waking(const void* target);

// One byte over TCP. False: there was no way, or no need.
bool ring_doorbell(Connection& connection, int fd);
// The same under the sending lock, on the ring.
bool ring_once(Connection& connection, int fd);
bool bell_would_lie_behind_data(const Connection& connection);

// ---- taking doorbells off

// Under the receiving lock: takes doorbells off TCP, as many as the peer says it has rung.
void drain_doorbells(Connection& connection, int fd);
// The same for a ring that was found empty, with those in mind who sleep on it and may not have seen the bell yet:
// they are rung for again, or the bell is left to them. `own_sleeps`: how many of them are the caller. False: left.
bool settle_doorbells(Connection& connection, int fd, std::uint32_t own_sleeps);

// ---- room

// Asks to be rung for when there is room again; `bell`: EventBell::id. False: there is room now.
bool expect_room(Connection& connection, std::uint64_t bell = 0);
// After giving room back: rings for the senders that wait for it; `how`: their RoomSleep bits.
[[gnu::cold]] void wake_senders_asleep(Connection& connection, int fd, std::uint32_t how);
[[gnu::always_inline]] inline void wake_senders(Connection& connection, int fd, std::uint32_t how) {
  if (how != 0) [[unlikely]]
    wake_senders_asleep(connection, fd, how);
}
// Those that sleep on the word itself.
void wake_room_sleepers(RoomWait& room);

}  // namespace viaduct::sockets
