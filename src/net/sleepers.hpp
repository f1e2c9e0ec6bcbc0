// How threads sleep on an engine without missing what other threads find for them. News is counted; whoever wants to
// sleep says up to where it has looked. The bell is a descriptor that stays readable from the first news that is made
// while anybody sleeps until the last of the sleepers is awake, so all of them wake.
//
//   sleeper                                             whoever makes news
//   S1  seen = news            (no lock)                N1  deliver, under the lock
//   S2  look at all there is   (under the lock)         N2  ++news
//   S3  lock: news == seen? ++sleepers : go on          N3  sleepers > 0 and not rung: rung, ring
//   S4  sleep on the bell
//   S5  lock: --sleepers; the last, and rung: silence
//
// S1 before S2: news that S2 did not see makes S3 fail. S3 and N2, N3 are under one lock: news after S3 rings. The
// steps are written once, over a Platform, so that tests/net explores every interleaving of this very code.
#pragma once

#include <cstdint>

namespace viaduct::net {

// The lock is held in all of them.
template <class Platform>
struct SleepProtocol {
  // N2, N3
  static void make_news(Platform& platform) {
    platform.set_news(platform.news() + 1);
    if (platform.sleepers() == 0 || platform.rung()) return;
    platform.set_rung(true);
    platform.ring();
  }
  // S3. False: there is news.
  static bool prepare(Platform& platform, std::uint64_t seen) {
    if (platform.news() != seen) return false;
    platform.set_sleepers(platform.sleepers() + 1);
    return true;
  }
  // S5
  static void woke(Platform& platform) {
    const auto left = platform.sleepers() - 1;
    platform.set_sleepers(left);
    if (left > 0 || !platform.rung()) return;
    platform.set_rung(false);
    platform.silence();
  }
};

}  // namespace viaduct::net
