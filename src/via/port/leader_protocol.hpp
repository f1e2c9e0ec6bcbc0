// Who does an adapter's work when several threads wait, and how none of them sleeps through what it waits for.
//
// There is one leader at a time: it looks at the ready queue, and only it may sleep there. Other waiters, the
// followers, sleep on the futex of a WaitWord. Two things end a sleep: something has completed, whoever completed it
// (T), or leadership has become free and a follower must take it (L). A leader that sleeps is woken by the alarm, a
// message to the ready queue that nobody but a leader reads.
//
//   waiter                                               who completes something
//   S1  word |= armed                                    T1  publish it
//   S2  heavy fence                                      T2  light fence
//   S3  look for what it waits for, leading meanwhile    T3  word armed?  no: done
//       if nobody else does                              T4  word: armed -> not armed, one further
//   then choose_bed():                                   T5  followers? wake the futex
//   B1  nobody claims, leadership is free: take it       T6  a leader sleeps? ring the alarm
//   B2  "a leader sleeps", full fence
//   B3  claims, or word not as S1 left it?               who stops leading
//       give all back, and start again                   L1  leadership is free
//   B4  sleep in the ready queue                         L2  light fence
//   B5  B1 failed: count as follower, heavy fence        L3  followers?  no: done
//   B6  B1 again; if it fails                            L4  T3 to T6
//   B7  sleep on the futex while word is what S1 left
//
// Between S1 and B4 nothing but T4 may touch the bit, or the leader sleeps where nobody wakes it: so L4 is not done by
// a waiter that stops leading inside S3. It is going to lead again, or finds somebody who does, or does L2 to L4 when
// it leaves (leave()). B3 comes after B1 because an alarm that was rung before may have been read by another leader.
//
// lead() is for who must have leadership: it claims it, so that no waiter lies down in between, and rings the alarm.
//
// The steps are written once, over a Platform, so that tests/via explores their interleavings on a model of the
// machine.
#pragma once

#include <cstdint>

namespace viaduct::via {

template <class Platform>
struct LeaderProtocol {
  using Desk = typename Platform::Desk;  // what the threads share
  enum class Bed { ready_queue, futex, none };

  // B1 to B3, B5, B6. ready_queue: the caller leads, and calls get_up() after it has slept; futex: it is counted as a
  // follower, and calls followed() after it has slept; none: it looks again.
  static Bed choose_bed(Desk& desk, std::uint32_t armed) {
    if (Bed bed; try_ready_queue(desk, armed, bed)) return bed;
    Platform::count_follower(desk, 1);  // B5
    Platform::heavy_fence();
    if (Bed bed; try_ready_queue(desk, armed, bed)) {  // B6
      Platform::count_follower(desk, -1);
      return bed;
    }
    return Bed::futex;
  }
  static void get_up(Desk& desk) { Platform::leader_is_awake(desk); }
  static void followed(Desk& desk) { Platform::count_follower(desk, -1); }

  // T2 to T6.
  static void tell_waiters(Desk& desk) {
    if (!Platform::must_wake(desk)) return;
    if (Platform::followers(desk) != 0) Platform::wake_futex(desk);
    if (Platform::leader_sleeps(desk)) Platform::ring_alarm(desk);
  }

  // L1, by a waiter that goes on to wait or to leave().
  static void pause_leading(Desk& desk) { Platform::unlock(desk); }
  // L1 to L4, by everybody else.
  static void stop_leading(Desk& desk) {
    Platform::unlock(desk);
    leave(desk);
  }
  static void leave(Desk& desk) {
    Platform::light_fence(desk);
    if (Platform::followers(desk) != 0) tell_waiters(desk);
  }

  static void lead(Desk& desk) {
    Platform::count_claim(desk, 1);
    if (!Platform::try_lock(desk)) {
      Platform::ring_alarm(desk);
      Platform::lock(desk);
    }
    Platform::count_claim(desk, -1);
  }

 private:
  // False: somebody else leads, or is about to.
  static bool try_ready_queue(Desk& desk, std::uint32_t armed, Bed& bed) {
    if (Platform::claims(desk) != 0 || !Platform::try_lock(desk)) return false;  // B1
    bed = Bed::ready_queue;
    Platform::leader_lies_down(desk);                                                    // B2
    if (Platform::claims(desk) == 0 && Platform::still_armed(desk, armed)) return true;  // B3
    bed = Bed::none;
    Platform::leader_is_awake(desk);
    Platform::unlock(desk);
    return true;
  }
};

}  // namespace viaduct::via
