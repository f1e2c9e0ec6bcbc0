// Leadership of an adapter: the protocol of leader_protocol.hpp on this machine.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <viaduct/via.hpp>

#include <atomic>

#include "base/fence.hpp"
#include "base/spin_lock.hpp"
#include "base/waiter.hpp"
#include "via/port/leader_protocol.hpp"

namespace viaduct::via {

class Leadership {
 public:
  std::error_code start() {
    asymmetric_ = fence::asymmetric();
    word_.promise_heavy_fence();
    std::error_code fault;
    alarm_ = make_channel_pair({.bulk_bytes = 4096, .slots = 8}, fault);
    return fault;
  }

  bool try_lead() { return lock_.try_lock(); }
  void pause() { Protocol::pause_leading(*this); }  // by a waiter, inside Progress::wait
  void stop() { Protocol::stop_leading(*this); }
  void lead() { Protocol::lead(*this); }  // never under a VI's lock
  void leave() { Protocol::leave(*this); }
  void tell_waiters() { Protocol::tell_waiters(*this); }

  WaitWord& word() { return word_; }
  bool is_claimed() const { return claims_.load(std::memory_order_acquire) != 0; }
  bool leader_sleeps() const { return leader_sleeps_.load(std::memory_order_relaxed); }
  // A leader may have looked already at what has changed, and gone to sleep: it has to look again.
  void leader_has_to_know() {
    fence::full();  // what has changed, then whether it sleeps: pairs with the fence of B2
    if (leader_sleeps()) ring_alarm();
  }

  // Sleeps as S1 left it: as leader by `as_leader(deadline)`, which stops leading by pause() and whose answer is
  // returned, or on the futex.
  template <class AsLeader>
  SleepResult sleep(std::uint32_t armed, Deadline deadline, const Clock& clock, AsLeader as_leader) {
    switch (Protocol::choose_bed(*this, armed)) {
      case Protocol::Bed::ready_queue:
        return as_leader();
      case Protocol::Bed::futex: {
        const SleepResult slept = word_.sleep(armed, deadline, clock);
        Protocol::followed(*this);
        return slept;
      }
      default:
        return SleepResult::woken;
    }
  }
  void get_up() { Protocol::get_up(*this); }

  // The end of the alarm that is in the ready queue; read by the leader.
  Channel& alarm() { return *alarm_.second; }
  void quiet_alarm() {
    Fragment fragment;
    while (alarm_.second->peek(fragment) == Got::fragment) alarm_.second->consume();
  }

 private:
  struct Hardware {
    using Desk = Leadership;
    static bool try_lock(Desk& desk) { return desk.lock_.try_lock(); }
    static void lock(Desk& desk) { desk.lock_.lock(); }
    static void unlock(Desk& desk) { desk.lock_.unlock(); }
    static int claims(Desk& desk) { return desk.claims_.load(std::memory_order_seq_cst); }
    static void count_claim(Desk& desk, int by) { desk.claims_.fetch_add(by, std::memory_order_seq_cst); }
    static int followers(Desk& desk) { return desk.followers_.load(std::memory_order_seq_cst); }
    static void count_follower(Desk& desk, int by) { desk.followers_.fetch_add(by, std::memory_order_seq_cst); }
    static bool leader_sleeps(Desk& desk) { return desk.leader_sleeps_.load(std::memory_order_seq_cst); }
    static void leader_lies_down(Desk& desk) {
      desk.leader_sleeps_.store(true, std::memory_order_relaxed);
      fence::full();
    }
    static void leader_is_awake(Desk& desk) { desk.leader_sleeps_.store(false, std::memory_order_relaxed); }
    static bool must_wake(Desk& desk) { return desk.word_.must_wake(); }
    static bool still_armed(Desk& desk, std::uint32_t armed) { return desk.word_.is_still(armed); }
    static void wake_futex(Desk& desk) { desk.word_.wake_sleepers(); }
    static void ring_alarm(Desk& desk) { desk.ring_alarm(); }
    static void heavy_fence() { fence::heavy(); }
    static void light_fence(Desk& desk) { desk.asymmetric_ ? fence::compiler_only() : fence::full(); }
  };
  using Protocol = LeaderProtocol<Hardware>;

  // A full alarm is as good: the leader has something to read.
  void ring_alarm() {
    const std::lock_guard lock(alarm_lock_);
    (void)alarm_.first->try_send({}, 0);
  }

  bool asymmetric_ = false;
  SpinLock lock_;
  std::atomic<int> claims_{0};     // who wait for leadership: nobody lies down
  std::atomic<int> followers_{0};  // who sleep on the word's futex, or are about to
  std::atomic<bool> leader_sleeps_{false};
  WaitWord word_;
  SpinLock alarm_lock_;
  ChannelPair alarm_;  // a message to ourselves wakes a leader that sleeps in the ready queue
};

}  // namespace viaduct::via
