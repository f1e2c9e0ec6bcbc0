// Waiting for an epoll set: rings first, then the kernel.
#include <sys/single_threaded.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sockets/cancellation.hpp"
#include "sockets/epoll_listen.hpp"
#include "sockets/epoll_short.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/retired.hpp"
#include "sockets/signal_turn.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::uint64_t kKernelTurnNs = 20'000;  // the kernel's descriptors are not left waiting longer than this
constexpr std::uint64_t kTellNs = 1'000'000;     // nor are the program's changes kept from it longer, sleep or not

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

class Waiting : Listening {
 public:
  Waiting(EpollSet& set, int epoll, epoll_event* events, int most, const sigset_t* mask, bool exactly)
      : Listening(set, most),
        epoch_(set.epoch.load(std::memory_order_relaxed)),
        epoll_(epoll),
        events_(events),
        mask_(mask),
        exactly_(exactly) {}

  int wait(Deadline deadline) {
    int found = 0;
    const bool kernel_first = set_.kernel_is_due;  // another thread may change it
    if (!kernel_first) {
      found = from_rings();
      if (found == 0 && !deadline.expired(0)) {
        if (lets_signal_in(mask_)) [[unlikely]]
          return -1;
        if (glance()) found = from_rings();
      }
      if (is_enough(found)) [[likely]]
        return found;
    } else if (backlog_goes_first() && (found = from_rings(set_.due_since)) != 0) {
      return found;
    }
    return wait_longer(found, deadline, kernel_first);
  }

 private:
  // What the rings had when the kernel became due, if the program takes it at once.
  bool backlog_goes_first() {
    constexpr int kMostTurns = 16;
    return ++set_.waits_since_kernel < kMostTurns && moment_now() - set_.due_since < kMostTurns * kTurnMoments;
  }

  // The clock costs as much as a look: asked now and then, unless there is time to lose. The processor's own tells when
  // a program takes its time with what it was told.
  bool is_enough(int found) {
    return found != 0 && !tcp_is_older_ && news_ && ++set_.waits_since_kernel < kWaitsPerTurn &&
           moment_now() - set_.kernel_looked < kTurnMoments;
  }

  // `found` in the rings so far; none, where the kernel comes first.
  int wait_longer(int found, Deadline deadline, bool kernel_first) {
    const Uncancelled here;
    if (kernel_first) {
      if (const int told = glance_at_kernel(0, now_ns()); told != 0) return told;
      found = from_rings();
    }
    for (bool first = true;; first = false) {
      if (!first && is_enough(found = from_rings())) return found;
      if (tcp_is_older_) [[unlikely]] {
        if (found == most_) return found;
        found = std::max(glance_at_kernel(found, now_ns()), found);
        if (found < most_) found = from_rings_behind(found);
        if (found != 0) return found;
      }
      const std::uint64_t now = now_ns();
      const bool kernel_turn = now - set_.last_kernel_ns > kKernelTurnNs && now > set_.last_kernel_ns;
      // No place for its events: it is the first next time, behind what has come to the rings until now.
      if (found == most_ && (set_.kernel_is_due = kernel_turn)) set_.due_since = moment_now();
      if (found != 0) return found < most_ && kernel_turn ? std::max(glance_at_kernel(found, now), found) : found;
      if (first && deadline.expired(now)) return what_kernel_has();
      if (set_.active_count != 0) {
        if (kernel_turn && (found = glance_at_kernel(0, now)) != 0) return found;
        if (lets_signal_in(mask_)) return -1;
        if (spin(now, deadline)) continue;
        if (interrupted_) return errno = EINTR, -1;
      }
      found = sleep(deadline);
      if (found != 0) return found;
      const bool is_time = deadline.expired(now_ns());
      // A bell may have rung in time, and the processor come later.
      if (is_time) return set_.epoch.load() == epoch_ ? from_rings() : 0;
      if (set_.epoch.load() != epoch_)
        return errno = EBADF, -1;  // closed by another thread, and perhaps another one now
    }
  }

  // Under the lock, or where there is no other thread.
  bool any_ready() {
    for (int i = 0; i < set_.active_count; ++i)
      if (ring_says(*set_.active[i]) != 0) return true;
    for (int i = 0; i < set_.nested_count; ++i)
      if (nested_with_news(set_, set_.nested[i]) != nullptr) return true;
    return false;
  }

  // Not where others are at it anyway.
  bool any_ready_now() {
    if (__libc_single_threaded) return any_ready();
    if (!set_.lock.try_acquire()) return false;
    const bool ready = any_ready();
    set_.lock.release();
    return ready;
  }

  // Tickets of waits: what was told to another thread meanwhile is not in our events.
  std::uint32_t round() {
    if (round_ == 0) round_ = ++set_.rounds != 0 ? set_.rounds : ++set_.rounds;
    return round_;
  }

  // Another thread, whose wait began later, has told of it: the place is that among its events.
  bool is_told_elsewhere(const EpollItem& item) { return static_cast<std::int32_t>(item.round - round()) > 0; }
  void note_place(EpollItem& item, int place) {
    if (is_told_elsewhere(item)) return;
    item.round = round();
    item.place = place;
  }
  // Where among the first `already` events this wait has told of it, or -1.
  int place_of(const EpollItem& item, int already) {
    if (already == 0) return -1;
    if (item.round == round()) return item.place;
    for (int i = 0; is_told_elsewhere(item) && i < already; ++i)
      if (events_[i].data.u64 == item.data) return i;
    return -1;
  }

  // `until`: of what is new only that which was sent by then.
  int from_rings(std::uint64_t until = UINT64_MAX) {
    const BriefLock::Hold hold(set_.lock);
    const int heard = sent_until(until, listen(set_.kernel_asked)), older = older_than_tcp(heard);
    // Where the kernel fills all places with the same again and again, it is the rings' turn.
    tcp_is_older_ = older != heard && !std::exchange(set_.kernel_repeats, false);
    const int told = std::min(tcp_is_older_ ? older : heard, most_);
    for (int i = 0; i < told; ++i) tell(*set_.heard[i], i);
    news_ = told == 0 || set_.heard[told - 1]->heard_news;
    return tcp_is_older_ ? told : from_nested(told);
  }
  // After the kernel was asked, behind what was told so far.
  int from_rings_behind(int already) {
    const BriefLock::Hold hold(set_.lock);
    const int told = std::min(not_told_yet(already, listen(set_.kernel_asked)), most_ - already);
    for (int i = 0; i < told; ++i) tell(*set_.heard[i], already + i);
    news_ = true;
    return already != 0 ? already + told : from_nested(told);
  }

  // Leaves out, of the first that were heard, those which this wait has told of already: there it is added.
  int not_told_yet(int already, int heard) {
    EpollItem** const first = set_.heard;
    const auto told = [this, already](EpollItem* item) {
      const int place = place_of(*item, already);
      if (place < 0) return false;
      events_[place].events |= item->heard_bits;
      if (on_edge(*item)) note_reported(*item);
      return true;
    };
    return static_cast<int>(std::remove_if(first, first + heard, told) - first);
  }

  int from_nested(int found) {
    for (int i = 0; i < set_.nested_count && found < most_; ++i) {
      EpollSet::Nested& entry = set_.nested[i];
      EpollSet* const inner = nested_with_news(set_, entry);
      if (inner == nullptr) continue;
      if ((entry.events & EPOLLET) != 0) entry.told = contents(*inner);
      events_[found].events = entry.events & kEpollData;
      events_[found++].data.u64 = entry.data;
      if ((entry.events & EPOLLONESHOT) != 0) entry.events = EPOLLONESHOT;
    }
    return found;
  }

  void tell(EpollItem& item, int place) {
    const std::uint32_t bits = item.heard_bits | kernel_adds(item);
    if (on_edge(item)) note_reported(item);
    item.told = set_.heard_until;
    item.told_slot = item.heard_slot;
    item.told_taken = item.heard_taken;
    note_place(item, place);
    report(item, bits, events_[place]);
  }

  void report(EpollItem& item, std::uint32_t bits, epoll_event& event) {
    event.events = bits;
    event.data.u64 = item.data;
    item.idle_sleeps = 0;
    item.fresh = false;
    if ((bits & kEpollRoom) != 0) item.room_told = true;
    if ((item.events & EPOLLONESHOT) != 0) item.fired = true;
    if (set_.sleeping.load(std::memory_order_relaxed) != 0) item.connection->incoming().data.armed.store(1);
  }

  // The same, but what the program changed a moment ago it may learn later.
  int glance_at_kernel(int already, std::uint64_t now) {
    if (now - set_.last_told_ns > kTellNs) return from_kernel(already, 0);
    return ask_kernel(already, 0);
  }

  // Events behind the first `already`; returns how many there are then, or -1.
  int from_kernel(int already, int timeout_ms) {
    set_tell_kernel(set_, 0);
    set_.last_told_ns = now_ns();
    return ask_kernel(already, timeout_ms);
  }

  // Without waiting: a bell that means nothing must not hide another member where there is place for one only.
  int what_kernel_has() {
    constexpr int kMostTries = 16;
    int found = from_kernel(0, 0);
    for (int tries = 0; found == 0 && may_have_more_ && tries < kMostTries; ++tries) found = from_kernel(0, 0);
    return found;
  }

  int ask_kernel(int already, int timeout_ms) {
    set_.waits_since_kernel = 0;
    set_.kernel_is_due = false;
    const std::uint64_t asked_before = set_.kernel_asked;
    const std::uint64_t now = moment_now();
    set_.kernel_looked = now;
    tcp_heard_ = false;
    const int got = [&] {
      const Cancellable sleep;
      if (exact_ns_ == 0)
        return kernel::libc().epoll_pwait(epoll_, events_ + already, most_ - already, timeout_ms, mask_);
      const timespec exact = to_timespec(std::exchange(exact_ns_, 0));
      return kernel::libc().epoll_pwait2(epoll_, events_ + already, most_ - already, &exact, mask_);
    }();
    set_.last_kernel_ns = now_ns();
    if (got < most_ - already) set_.kernel_asked = now;  // it has no more
    const std::uint64_t first = got > 0 && got == most_ - already ? events_[already].data.u64 : 0;
    set_.kernel_repeats = first != 0 && first == set_.kernel_first;
    set_.kernel_first = first;
    set_.heard_until = std::max(set_.heard_until, slept_since_ != 0 ? moment_now() : now);
    may_have_more_ = got == most_ - already;
    if (got < 0) return already != 0 ? already : -1;
    const int all = translate(already, got);
    return tcp_heard_ && !tcp_is_older_ && already == 0 && all < most_ ? rings_before(all, asked_before) : all;
  }

  // Behind something that came over TCP: what its sender had put into rings before that goes before the first `found`.
  int rings_before(int found, std::uint64_t asked_before) {
    const BriefLock::Hold hold(set_.lock);
    const int older = not_told_yet(found, older_than_tcp(listen(asked_before)));
    const int added = std::min(older, most_ - found);
    std::copy_backward(events_, events_ + found, events_ + found + added);
    for (int i = 0; i < added; ++i) tell(*set_.heard[i], i);
    return found + added;
  }

  // A set in this one, and the rings of its members have spoken for it already.
  bool told_as_nested(int already, const epoll_event& event) const {
    for (int i = 0; i < set_.nested_count; ++i)
      for (int k = 0; set_.nested[i].data == event.data.u64 && k < already; ++k)
        if (events_[k].data.u64 == event.data.u64) return true;
    return false;
  }

  // A set in this one, and there is nothing in it after all. Not where something else may have the same data, nor where
  // the kernel tells of it once.
  bool means_nothing(const epoll_event& event) const {
    if (set_.has_others.load(std::memory_order_relaxed) || set_.inherited.load() || set_.held_by_others()) return false;
    bool found = false;
    for (int i = 0; i < set_.nested_count; ++i) {
      const EpollSet::Nested& entry = set_.nested[i];
      if (entry.data != event.data.u64) continue;
      EpollSet* const inner = (entry.events & EPOLLONESHOT) == 0 ? find_set(entry.fd) : nullptr;
      if (inner == nullptr || inner == &set_ || set_ready_after_all(*inner, entry.fd, slept_since_ != 0)) return false;
      found = true;
    }
    return found;
  }

  int translate(int already, int got) {
    const BriefLock::Hold hold(set_.lock);
    int kept = already;
    for (int i = 0; i < got; ++i) {
      epoll_event event = events_[already + i];
      const auto [is_ours, item] = member_of(set_, event.data.u64);
      if (is_ours) {
        if (event.data.u64 == kernel_data_of_bell()) hear_bell();
        if (item == nullptr || !judge(*item, event)) continue;
        if (const int place = place_of(*item, already); place >= 0) {
          events_[place].events |= event.events;
          continue;
        }
        note_place(*item, kept);
      } else if ((already != 0 && told_as_nested(already, event)) || means_nothing(event)) {
        continue;
      }
      events_[kept++] = event;
    }
    return kept;
  }

  // The set's bell, which the kernel tells once: another who sleeps on the set may have been meant. Who rings has
  // published before, so where there is nothing nobody was; else idle threads would pass it round for ever.
  void hear_bell() {
    if (others_sleep() && set_.bell != nullptr && any_ready()) ring_bell(set_.bell->id.load());
    if (slept_since_ == 0) return;
    for (int i = 0; i < set_.active_count; ++i)
      if (EpollItem& item = *set_.active[i]; !item.deleted && item.connection->attached())
        took_ = std::min(took_, time_had_nobody_slept(*item.connection, slept_since_, set_.last_kernel_ns));
  }

  // What the kernel says of a TCP socket, put into what is true of the connection. False: nothing.
  bool judge(EpollItem& item, epoll_event& event) {
    event.data.u64 = item.data;
    if (item.connection == nullptr) return true;  // another process holds it still, we do not
    Connection& connection = *item.connection;
    const bool shot = (item.kernel_events & EPOLLONESHOT) != 0;  // then it is spent, perhaps on a doorbell
    if (item.fired && (item.events & EPOLLONESHOT) != 0 && item.kernel_events != EPOLLET)
      item.kernel_events = shot ? kEpollSpent : 0;  // told by the ring meanwhile
    if (item.deleted || item.fired) return false;
    if (!connection.attached()) {
      tcp_heard_ = true;
      if ((item.events & EPOLLONESHOT) != 0) item.fired = true, item.kernel_events = shot ? kEpollSpent : 0;
      return true;
    }
    serve_requests(connection, item.fd);
    if (!receives_on_ring(connection)) tcp_heard_ = true;
    if (slept_since_ != 0)
      took_ = std::min(took_, time_had_nobody_slept(connection, slept_since_, set_.last_kernel_ns));
    std::uint32_t bits = event.events;
    std::uint32_t over = bits & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if (over != 0) tcp_heard_ = true, connection.note_end();
    const std::uint32_t in = bits & kEpollData;
    if (over != 0 || in != 0) connection.look_at_kernel.store(true, std::memory_order_relaxed);
    if ((over != 0 || in != 0) && find_reset(connection, item.fd)) over |= EPOLLERR | EPOLLHUP;
    if (slept_since_ != 0 && alone_) connection.named.store(false);  // that sleep is over
    // It is rung for another's sleep, on this and other connections.
    if (slept_since_ == 0 && connection.named.load()) end_sleep(set_, item);
    if (in != 0 && over == 0 && !readable_after_all(connection, item.fd, true, own_sleeps(item))) bits &= ~kEpollData;
    if ((item.events & EPOLLONESHOT) != 0) item.kernel_events = 0;
    set_.activate(item);
    if (others_sleep()) connection.incoming().data.armed.store(kRingForMe);
    if (sends_on_ring(connection) && over == 0) bits &= ~kEpollRoom;
    if (over != 0 && ring_writable(connection)) bits |= kEpollRoom;
    if (on_edge(item) && (bits & kEpollData) != 0 && ring_writable(connection)) bits |= kEpollRoom;  // all at once
    if ((bits & (kEpollData | kEpollRoom)) != 0 || over != 0) bits |= ring_says(item) | over;
    bits &= item.events | EPOLLERR | EPOLLHUP;
    bits &= ~static_cast<std::uint32_t>(EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP);
    if (on_edge(item) && (bits & kEpollData) != 0) note_reported(item);
    if (bits == 0) {
      // The end, of which it does not want to hear: nor again, before it asks for something else.
      if (in != 0 && (item.events & kEpollData) == 0 && tcp_peer_ended(item.fd)) item.ended = true;
      if ((item.events & EPOLLONESHOT) != 0 && others_sleep()) tell_kernel(item);
      return false;
    }
    event.events = bits;
    item.fresh = false;
    if ((item.events & EPOLLONESHOT) != 0) {
      item.fired = true;
      if (shot) item.kernel_events = kEpollSpent;
    } else if (over != 0 && !item.ended && !on_edge(item)) {  // which a change would make anew
      item.ended = true;
      tell_kernel(item);
    }
    return true;
  }

  std::uint32_t own_sleeps(const EpollItem& item) const {
    return item.armed && slept_since_ != 0 && !others_sleep() ? 1U : 0U;
  }
  bool others_sleep() const { return set_.sleeping.load() > (slept_since_ != 0 ? 1 : 0); }

  // Before anything else, where the last answer came at once.
  bool glance() {
    constexpr int kFew = 8;
    if (set_.active_count > kFew) return false;
    const auto ready = [this] { return any_ready_now(); };
    return set_.spinner.glance(ready);
  }

  bool spin(std::uint64_t start, Deadline deadline) {
    bool shares_processor;
    {
      const BriefLock::Hold hold(set_.lock);
      if (set_.active_count == 0) return false;
      const unsigned some = set_.turn % static_cast<unsigned>(set_.active_count);
      if (!set_.active[some]->connection->attached()) return false;
      shares_processor = !spinning_makes_sense(*set_.active[some]->connection);
    }
    if (shares_processor) {
      const auto any = [this] { return any_ready_now(); };
      return set_.yielder.spin(start, any);
    }
    std::uint64_t asked = start;
    bool kernel_has_some = false;
    int looks = 0;
    const auto ready = [&] {
      if (any_ready_now()) return true;
      if (++looks % 256 != 0) return false;
      const std::uint64_t now = now_ns();
      if (now - asked < kKernelTurnNs / 2) return false;
      asked = now;
      pollfd entry{epoll_, POLLIN, 0};
      kernel_has_some = kernel::libc().poll(&entry, 1, 0) > 0;
      if (!kernel_has_some) interrupted_ = lets_signal_in(mask_);
      return kernel_has_some || interrupted_;
    };
    return set_.spinner.spin(start, deadline, ready) && !kernel_has_some && !interrupted_;
  }

  int sleep(Deadline deadline) {
    const std::uint64_t start = now_ns();
    slept_since_ = start;
    took_ = UINT64_MAX;
    const int found = armed_sleep(deadline);
    const int kept = errno;
    if (took_ != UINT64_MAX)
      set_.spinner.learn_awake(took_);
    else
      set_.spinner.learn(now_ns() - start);
    slept_since_ = 0;
    errno = kept;
    return found;
  }

  int armed_sleep(Deadline deadline) {
    WhileAsleep asleep(set_);
    // All active members are looked at after the sleep, so one bell is enough; unless others sleep on.
    alone_ = asleep.alone();
    set_expect(set_, alone_ ? sleep_with_bell(set_, epoll_) : Sleep{});
    set_tell_kernel(set_, 0);  // before the look: who changes something after it ends the sleep
    set_.last_told_ns = slept_since_;
    if (any_ready_locked()) return 0;
    int timeout = -1;
    if (!deadline.is_never()) {
      const std::uint64_t left = deadline.left_ns(now_ns());
      timeout = static_cast<int>(std::min<std::uint64_t>((left + 999'999) / 1'000'000, INT32_MAX));
      exact_ns_ = exactly_ ? left : 0;
    }
    const auto at_most = [&](int ms) {
      if (timeout < 0 || timeout > ms) timeout = ms, exact_ns_ = 0;
    };
    if (const int rest = sweep_before_sleep(); rest > 0) at_most(rest);
    if (const int nap = nap_for_room(set_); nap > 0) {
      asleep.only_naps();
      at_most(nap);
    }
    return ask_kernel(0, timeout);
  }

  bool any_ready_locked() {
    const BriefLock::Hold hold(set_.lock);
    return any_ready();
  }

  std::uint32_t epoch_;
  std::uint32_t round_ = 0;
  int epoll_;
  epoll_event* events_;
  const sigset_t* mask_;
  bool exactly_;                // the program's limit is one of nanoseconds
  std::uint64_t exact_ns_ = 0;  // of the next sleep; 0: whole milliseconds do
  bool news_ = true;            // the rings have something that was not told and left
  bool tcp_is_older_ = false;   // something in a ring was sent after its sender had used TCP: the kernel is to be asked
  bool tcp_heard_ = false;      // and has told of TCP
  bool may_have_more_ = false;  // and there was no place for more
  bool interrupted_ = false;    // a signal that the mask lets in
  bool alone_ = false;          // nobody slept on the set before us
  std::uint64_t slept_since_ = 0;
  std::uint64_t took_ = UINT64_MAX;  // the shortest wait that a doorbell ended, had nobody slept
};

}  // namespace

int set_wait(EpollSet& set, int epoll, epoll_event* events, int most, Deadline deadline, const sigset_t* mask,
             bool exactly) {
  act_on_cancellation();
  const AtMemory here;
  if (set.inherited.load(std::memory_order_relaxed)) [[unlikely]]
    wake_inherited(set);
  return Waiting(set, epoll, events, most, mask, exactly).wait(deadline);
}

}  // namespace viaduct::sockets
