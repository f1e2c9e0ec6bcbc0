// How a sleeper and its wakers find each other, whichever bell ends the sleep.
//
//   sleeper                                          waker
//   S1  which bell it has, if it has one             W1  publish
//   S2  armed = the sleep's name                     W2  full fence
//   S3  full fence (F1)                              W3  armed != 0?  no: done, nothing was paid
//   S4  look again: published? then go on            W4  take the name out: one waker wins
//   S5  sleep for the bell, and for the socket       W5  rung for that sleep already? then done
//   S6  disarm, hear the bell, look again            W6  ring: the bell if it is held, else over TCP
//
// S2 before S3 before S4, W1 before W2 before W3: one of them sees the other. One name may stand for a sleep on many
// connections, of which one ring is enough, since all are looked at behind S6: what a waker that goes away at W5 has
// published was so before S6. Where others sleep on the connection too, which that ring would not wake, the name is
// kRingForMe, and the doorbell on TCP wakes all of them.
//
// A waker that dies between W4 and W6 closes its socket, and a sleeper whose bell nobody rings any more is rung for
// over TCP: S5 is for both.
//
// The steps are written once, over a Platform: tests/sockets explores every interleaving of this very code.
#pragma once

#include "sockets/stream_format.hpp"

namespace viaduct::sockets {

template <class Platform>
struct BellProtocol {
  using Wait = typename Platform::Wait;  // armed, sleepers, bell: shared by both sides
  using Name = typename Platform::Name;  // of a sleep, and of a bell

  // S1 to S3, under the lock of all who sleep there, of whom this is one already. `bell`: 0 where the sleep has none.
  // Where others sleep there is never a name, and their bell stays what it is: a waker that took their name before is
  // about to ring it, and one that takes it now would ring for one of them only.
  static void arm(Wait& wait, Name name, Name bell) {
    if (name != kRingForMe && Platform::sleepers(wait) == 1) {
      Platform::set_bell(wait, bell);
      Platform::set_armed(wait, name);
    } else {
      Platform::set_armed(wait, kRingForMe);
    }
    Platform::fence();
  }

  // S6, under the same lock: others may sleep on, and whoever rang has disarmed for them too.
  static void disarm(Wait& wait) {
    if (Platform::sleepers(wait) == 0) return;  // somebody wrote nonsense there
    Platform::set_armed(wait, Platform::one_sleeper_less(wait) == 0 ? 0 : kRingForMe);
  }

  // W4 to W6; W1 to W3 are for the sender to do in its own way. What cannot be rung for is told to `ring.in_vain()`.
  template <class Ring>
  static void wake(Wait& wait, Ring&& ring) {
    const Name name = Platform::take_armed(wait);
    if (name == 0) return;
    const bool named = name != kRingForMe;
    if (named && ring.has_ended(name)) return;
    const bool has_bell = named && Platform::names_bell(name);
    if (has_bell && ring.by_bell(Platform::bell(wait))) return ring.note_ended(name);
    if (!ring.over_tcp()) return ring.in_vain();
    // A doorbell may be taken off by somebody else who reads that connection: it stands for others only where its
    // sleeper has seen to that (EpollSet::arm()).
    if (named && !has_bell) ring.note_ended(name);
  }
};

}  // namespace viaduct::sockets
