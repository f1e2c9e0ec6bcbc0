#include "sockets/poll_wait.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "base/spinner.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set_state.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/rendezvous.hpp"
#include "sockets/retired.hpp"
#include "sockets/signal_turn.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::uint64_t kKernelTurnNs = 20'000;
constexpr short kIn = POLLIN | POLLRDNORM;
constexpr short kOut = POLLOUT | POLLWRNORM;
constexpr short kOver = POLLERR | POLLHUP | POLLNVAL | POLLRDHUP;

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

Connection* accelerated(int fd) {
  Connection* const connection = fd < 0 ? nullptr : find_connection(fd);
  return connection != nullptr && connection->attached() ? connection : nullptr;
}

thread_local std::uint64_t last_kernel_ns [[gnu::tls_model("initial-exec")]] = 0;
thread_local std::uint64_t last_kernel_set [[gnu::tls_model("initial-exec")]] = 0;  // of which descriptors
thread_local std::uint64_t kernel_asked [[gnu::tls_model("initial-exec")]] = 0;     // the moment of that

class Polling {
 public:
  Polling(pollfd* entries, nfds_t count, pollfd* asked, const sigset_t* mask)
      : entries_(entries), count_(count), asked_(asked), mask_(mask), set_(name_of(entries, count)) {}

  int wait(Deadline deadline) {
    static thread_local Spinner spinner [[gnu::tls_model("initial-exec")]] (settings().spin_ns);
    for (;;) {
      const int found = from_rings();
      const std::uint64_t now = now_ns();
      // Room alone would hide the end for ever, and so would bytes that nobody reads.
      const bool enough = count_ == 1 && (entries_[0].revents & kIn) != 0 &&
                          (is_news(entries_[0].fd) || kernel_says(entries_[0].fd, POLLRDHUP) == 0);
      const bool asked_lately = now - last_kernel_ns < kKernelTurnNs && last_kernel_set == set_;
      if (found != 0 && !ending_ && !tcp_is_older_ && (enough || asked_lately)) return found;
      if (found != 0) {
        if (const int all = ask_kernel(Deadline::at_ns(0)); all != 0) return all;
        if (!deadline.expired(now)) continue;  // another thread has taken it meanwhile
      }
      if (deadline.expired(now)) return ask_kernel(deadline);
      if (!only_rings_ && !asked_lately)
        if (const int others = ask_kernel(Deadline::at_ns(0)); others != 0) return others;
      if (lets_signal_in(mask_)) return -1;
      if (spin(spinner, deadline)) continue;
      if (interrupted_) return errno = EINTR, -1;
      const int woken = sleep(spinner, deadline);
      if (woken != 0 || deadline.expired(now_ns())) return woken;
    }
  }

 private:
  short ring_says(const pollfd& entry, Connection& connection) {
    short bits = 0;
    if ((entry.events & kIn) != 0 && ring_readable(connection, entry.fd))
      bits |= static_cast<short>(entry.events & kIn);
    if ((entry.events & kOut) != 0 && sends_on_ring(connection) && ring_writable(connection))
      bits |= static_cast<short>(entry.events & kOut);
    return bits;
  }

  // Something was read since this was last asked.
  static bool is_news(int fd) {
    Connection* const connection = accelerated(fd);
    if (connection == nullptr) return false;
    const std::uint64_t place = connection->incoming().receiving.head.load(std::memory_order_relaxed) + 1;
    if (connection->polled_at.load(std::memory_order_relaxed) == place) return false;
    connection->polled_at.store(place, std::memory_order_relaxed);
    return true;
  }

  int from_rings() {
    int found = 0;
    only_rings_ = true;
    ending_ = tcp_is_older_ = false;
    for (nfds_t i = 0; i < count_; ++i) {
      pollfd& entry = entries_[i];
      entry.revents = 0;
      if (entry.fd < 0) continue;
      if (Connection* const connection = accelerated(entry.fd)) {
        entry.revents = ring_says(entry, *connection);
        tcp_is_older_ |= (entry.revents & kIn) != 0 && count_ != 1 && sent_after_tcp(*connection);
        // How it ended, urgent bytes, which come behind the ring, and a half on TCP are for the kernel to say.
        const bool half_on_tcp = ((entry.events & kOut) != 0 && !sends_on_ring(*connection)) ||
                                 ((entry.events & kIn) != 0 && receives_over_tcp(*connection));
        only_rings_ &= !half_on_tcp;
        ending_ |= (half_on_tcp && entry.revents != 0) || connection->peer_says_end() || connection->has_shut_down() ||
                   connection->end_seen.load(std::memory_order_relaxed) ||
                   ((entry.events & POLLPRI) != 0 &&
                    connection->incoming().path.mode.load(std::memory_order_relaxed) == kBack);
      } else if (EpollSet* const set = find_set(entry.fd)) {
        only_rings_ = false;
        if ((entry.events & kIn) != 0 && set_ready(*set)) entry.revents = static_cast<short>(entry.events & kIn);
      } else {
        only_rings_ = false;
      }
      if (entry.revents != 0) ++found;
    }
    return found;
  }

  static std::uint64_t name_of(const pollfd* entries, nfds_t count) {
    std::uint64_t name = count;
    for (nfds_t i = 0; i < count; ++i) name = (name ^ static_cast<std::uint32_t>(entries[i].fd)) * 0x100000001b3;
    return name;
  }

  // Its sender had used TCP before: the kernel would tell of that too.
  static bool sent_after_tcp(const Connection& connection) {
    const Stillness ring(connection.memory, connection.in());
    return ring.first_unread().mark.after_tcp() &&
           connection.incoming().tally.tcp_used.load(std::memory_order_relaxed) > kernel_asked;
  }

  bool spin(Spinner& spinner, Deadline deadline) {
    const std::uint64_t start = now_ns();
    for (nfds_t i = 0; i < count_; ++i)
      if (Connection* const connection = accelerated(entries_[i].fd);
          connection != nullptr && !spinning_makes_sense(*connection)) {
        const auto any = [this] { return from_rings() != 0; };
        return connection->receive_yielder.spin(start, any);
      }
    std::uint64_t asked = start;
    bool kernel_ready = false;
    int looks = 0;
    const auto ready = [&] {
      if (from_rings() != 0) return true;
      if (++looks % 32 != 0) return false;
      for (nfds_t i = 0; i < count_; ++i)
        if (Connection* const connection = accelerated(entries_[i].fd);
            connection != nullptr && connection->peer_says_end())
          return kernel_ready = true;
      if ((interrupted_ = lets_signal_in(mask_))) return true;
      if (only_rings_) return false;
      const std::uint64_t now = now_ns();
      if (now - asked < kKernelTurnNs / 2) return false;
      asked = now;
      prepare();
      return kernel_ready = kernel::libc().poll(asked_, count_, 0) > 0;
    };
    return spinner.spin(start, deadline, ready) && !kernel_ready && !interrupted_;
  }

  // Doorbells, ends and errors of accelerated ones; TCP's room means nothing while the ring is used.
  void prepare() {
    for (nfds_t i = 0; i < count_; ++i) {
      asked_[i] = entries_[i];
      asked_[i].revents = 0;
      Connection* const connection = accelerated(entries_[i].fd);
      if (connection == nullptr) {
        if (EpollSet* const set = entries_[i].fd < 0 ? nullptr : find_set(entries_[i].fd)) set_tell_kernel(*set);
        continue;
      }
      const bool wants_any = (entries_[i].events & (kIn | kOut | POLLRDHUP)) != 0;  // else the end is news once
      if (wants_data(i) ||
          (connection->peer().finished.load(std::memory_order_relaxed) == 0 && (wants_any || !asked_once_)))
        asked_[i].events |= POLLRDHUP;
      const bool wants_room = (entries_[i].events & kOut) != 0 && bell_tells_room(*connection, entries_[i].fd);
      if ((entries_[i].events & kIn) != 0 || wants_room) asked_[i].events |= POLLIN;
      if (sends_on_ring(*connection)) asked_[i].events &= static_cast<short>(~kOut);
    }
  }

  // What is there to read on TCP is a bell, and not one that stands for bytes which nobody here asks for.
  static bool bell_tells_room(Connection& connection, int fd) {
    const Direction& in = connection.incoming();
    if (!sends_on_ring(connection) || in.path.mode.load() == kBack) return false;
    // A peer that only receives has never sent in its ring: its first bell is the first thing to come.
    if (!receives_on_ring(connection)) return in.receiving.stage.load() == kReadTcp && kernel_says(fd, POLLIN) == 0;
    return in.path.rung.load() == in.receiving.drained.load() ||
           !Receiver(connection.memory, connection.in()).has_data();
  }

  // `bell`: to be waited for too.
  int ask_kernel(Deadline deadline, const BellOfThread* bell = nullptr) {
    prepare();
    asked_[count_] = {bell != nullptr ? bell->fd() : -1, POLLIN, 0};
    const RawPolling raw(entries_, count_);  // those that are not accelerated yet stay so meanwhile
    int got;
    kernel_asked = moment_now();
    {
      const Cancellable sleep;
      const timespec left = to_timespec(deadline.left_ns(now_ns()));
      got = kernel::libc().ppoll(asked_, asked_[count_].fd >= 0 ? count_ + 1 : count_,
                                 deadline.is_never() ? nullptr : &left, mask_);
    }
    last_kernel_ns = now_ns();
    last_kernel_set = set_;
    asked_once_ = true;
    if (got < 0) return -1;
    const bool rung = got > 0 && asked_[count_].revents != 0;
    if (rung) bell->hear();
    return judge(rung);
  }

  int judge(bool rung) {
    int found = 0;
    for (nfds_t i = 0; i < count_; ++i) {
      pollfd& entry = entries_[i];
      const short said = asked_[i].revents;
      Connection* const connection = accelerated(entry.fd);
      if (connection == nullptr) {
        entry.revents = said;
        EpollSet* const set = entry.fd >= 0 && (entry.events & kIn) != 0 ? find_set(entry.fd) : nullptr;
        if (set != nullptr && said == 0 && set_ready(*set)) entry.revents = static_cast<short>(entry.events & kIn);
        if (set != nullptr && (said & ~kIn) == 0 && said != 0 &&
            !set_ready_after_all(*set, entry.fd, slept_since_ != 0))
          entry.revents = 0;
      } else {
        if (rung && slept_since_ != 0) {
          serve_requests(*connection, entry.fd);
          took_ = std::min(took_, time_had_nobody_slept(*connection, slept_since_, last_kernel_ns));
        }
        entry.revents = truth(entry, said, *connection);
        // It has gone back to TCP just now, and the kernel was not asked for room.
        if ((entry.events & ~asked_[i].events & kOut) != 0 && !sends_on_ring(*connection))
          entry.revents |= static_cast<short>(kernel_says(entry.fd, entry.events & kOut) & kOut);
      }
      if (entry.revents != 0) ++found;
    }
    return found;
  }

  static int kernel_says(int fd, int events) {
    pollfd entry{fd, static_cast<short>(events), 0};
    return kernel::libc().poll(&entry, 1, 0) > 0 ? entry.revents : 0;
  }

  // A peer that has said that it sends no more may still read: then only room is room.
  static bool end_means_room(const Connection& connection, short said) {
    return (said & kOver & ~POLLRDHUP) != 0 ||
           ((said & POLLRDHUP) != 0 && connection.peer().finished.load(std::memory_order_relaxed) == 0);
  }

  short truth(const pollfd& entry, short said, Connection& connection) {
    if (said != 0) serve_requests(connection, entry.fd);
    if (said != 0 && slept_since_ != 0)
      took_ = std::min(took_, time_had_nobody_slept(connection, slept_since_, last_kernel_ns));
    if ((said & POLLRDHUP) != 0 && find_reset(connection, entry.fd)) said |= POLLERR | POLLHUP;
    const bool over = (said & kOver) != 0;
    if (over) connection.note_end();
    const std::uint32_t own_sleeps = slept_since_ != 0 && (entry.events & kIn) != 0 ? 1 : 0;
    short bits = static_cast<short>(said & (entry.events | POLLERR | POLLHUP | POLLNVAL) & ~(kIn | kOut));
    bits |= ring_says(entry, connection);
    if (said != 0) connection.look_at_kernel.store(true, std::memory_order_relaxed);
    if ((said & kIn) != 0 && (entry.events & kIn) != 0 &&
        (over || readable_after_all(connection, entry.fd, true, own_sleeps)))
      bits |= static_cast<short>(entry.events & kIn);
    else if ((said & kIn) != 0 && !over)
      (void)readable_after_all(connection, entry.fd, true, own_sleeps);  // a doorbell for room
    if ((entry.events & kOut) != 0 && ((said & kOut) != 0 || end_means_room(connection, said) ||
                                       (sends_on_ring(connection) && ring_writable(connection))))
      bits |= static_cast<short>(entry.events & kOut);
    return bits;
  }

  // What a sleep has armed, to be disarmed whatever becomes of the descriptors meanwhile, or of the thread.
  class Armed final : SleepOnStack {
   public:
    explicit Armed(Polling& polling)
        : polling_(polling), expected_(polling.count_), bell_(polling.may_ask_for_one_more()) {}
    const BellOfThread& bell() const { return bell_; }
    ~Armed() { disarm(); }

    // Else it is not to be armed, but looked at now and then.
    bool remembers(nfds_t which) const { return which < expected_.length(); }
    void note(nfds_t which, Connection& connection) {
      expected_[which] = {.connection = &connection, .generation = connection.generation.load(), .set = {}};
    }
    void note(nfds_t which, EpollSet& set) { expected_[which].set = SetAsleep(set); }

   private:
    void disarm() override {
      const int kept = errno;
      bell_.leave();
      for (nfds_t i = 0; i < polling_.count_ && remembers(i); ++i) disarm(expected_[i], polling_.wants_data(i));
      errno = kept;
    }
    struct Expected {
      Connection* connection = nullptr;
      std::uint32_t generation = 0;
      SetAsleep set{};
    };
    static void disarm(Expected& one, bool data) {
      Connection* const connection = one.connection;
      if (connection == nullptr)
        one.set.leave();
      else if (data && connection->generation.load() == one.generation && connection->attached())
        stop_expecting_data(*connection);
    }
    Polling& polling_;
    FewOrMany<Expected, 32> expected_;
    BellOfThread bell_;
  };

  int sleep(Spinner& spinner, Deadline deadline) {
    const std::uint64_t start = now_ns();
    slept_since_ = start;
    const int found = armed_sleep(deadline);
    const int kept = errno;
    if (took_ != UINT64_MAX)
      spinner.learn_awake(took_);
    else
      spinner.learn(now_ns() - start);
    slept_since_ = 0;
    took_ = UINT64_MAX;
    errno = kept;
    return found;
  }

  int armed_sleep(Deadline deadline) {
    bool room = false;
    Armed armed(*this);
    const std::uint64_t bell = armed.bell().id();
    const Sleep sleep = bell != 0 ? next_sleep(bell) : Sleep{};  // all are looked at after it
    for (nfds_t i = 0; i < count_; ++i) {
      if (!armed.remembers(i)) {
        looks_ = true;
        break;
      }
      if (Connection* const connection = accelerated(entries_[i].fd)) {
        armed.note(i, *connection);
        const bool has_bell = may_have_event_bell(*connection);
        if (wants_data(i))
          expect_data(*connection, has_bell ? sleep : Sleep{});
        else
          take_stale_bells(*connection, entries_[i].fd);
        if ((entries_[i].events & kOut) != 0 && sends_on_ring(*connection))
          room |= !expect_room(*connection, has_bell ? bell : 0);
      } else if (EpollSet* const set = entries_[i].fd < 0 ? nullptr : find_set(entries_[i].fd)) {
        armed.note(i, *set);
        set_expect(*set, bell != 0 && set->sleeping.load() == 1 ? sleep : Sleep{});
      }
    }
    const int found = from_rings();
    if (found != 0 || room) return found;
    return doorbells_settled() ? ask_kernel(nap(deadline), &armed.bell()) : ask_kernel(Deadline::at_ns(0));
  }

  // Of more than so many descriptors the kernel takes the list for an error.
  bool may_ask_for_one_more() const {
    constexpr nfds_t kAlways = 8;
    rlimit limit{};
    return count_ < kAlways || (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && count_ < limit.rlim_cur);
  }

  bool wants_data(nfds_t which) const { return (entries_[which].events & kIn) != 0; }

  // Who waits for room only could not tell its bell from one for bytes that nobody here reads.
  static void take_stale_bells(Connection& connection, int fd) {
    Direction& in = connection.incoming();
    {
      const ReceivingLock lock(connection);
      if (!receives_on_ring(connection) || in.data.sleepers.load() != 0 ||
          in.path.rung.load() == in.receiving.drained.load())
        return;
      drain_doorbells(connection, fd);
    }
    sets_note_read(connection);
  }

  // Doorbells that were left behind would end the sleep at once.
  bool doorbells_settled() {
    bool settled = true;
    for (nfds_t i = 0; i < count_; ++i)
      if (Connection* const connection = accelerated(entries_[i].fd))
        if (readable_after_all(*connection, entries_[i].fd, false, wants_data(i) ? 1 : 0) && wants_data(i))
          settled = false;
    return settled;
  }

  // Where others sleep on the same doorbell, whoever misses it looks by itself, more and more rarely. So does who waits
  // for room.
  Deadline nap(Deadline deadline) {
    constexpr int kLongestNapMs = 100;
    int shortest = 0;
    bool others_sleep = false;
    const auto at_most = [&](int ms) { shortest = shortest == 0 ? ms : std::min(shortest, ms); };
    if (looks_) at_most(kSharedNapMs);
    if (const int rest = sweep_before_sleep(); rest > 0) at_most(rest);
    for (nfds_t i = 0; i < count_; ++i) {
      Connection* const connection = accelerated(entries_[i].fd);
      if (EpollSet* const set = connection != nullptr || entries_[i].fd < 0 ? nullptr : find_set(entries_[i].fd))
        if (const int ms = nap_for_room(*set); ms > 0) at_most(ms);
      if (connection == nullptr) continue;
      const Direction& in = connection->incoming();
      others_sleep |= in.data.sleepers.load(std::memory_order_relaxed) > 1;
      if (in.receiving.stage.load() == kDiscard) at_most(kSharedNapMs);
      if ((entries_[i].events & kOut) == 0 || !sends_on_ring(*connection)) continue;
      if (ring_writable(*connection)) return Deadline::at_ns(0);  // by now, and its bell may have been taken
      relieve_stalled(*connection, entries_[i].fd);
      at_most(bell_tells_room(*connection, entries_[i].fd) ? nap_for_room(*connection) : kSharedNapMs);
    }
    if (others_sleep) {
      at_most(shared_nap_ms_);
      shared_nap_ms_ = std::min(2 * shared_nap_ms_, kLongestNapMs);
    }
    if (shortest == 0) return deadline;
    const std::uint64_t now = now_ns();
    return Deadline::at_ns(now + std::min(static_cast<std::uint64_t>(shortest) * 1'000'000, deadline.left_ns(now)));
  }

  pollfd* entries_;
  nfds_t count_;
  pollfd* asked_;
  const sigset_t* mask_;
  std::uint64_t set_;
  int shared_nap_ms_ = kSharedNapMs;
  bool asked_once_ = false;
  bool interrupted_ = false;  // by a signal that the mask lets in
  bool looks_ = false;        // there was no memory to wait for all of them
  bool only_rings_ = false;
  bool ending_ = false;        // the kernel has something to add
  bool tcp_is_older_ = false;  // perhaps
  std::uint64_t slept_since_ = 0;
  std::uint64_t took_ = UINT64_MAX;
};

}  // namespace

RawPolling::RawPolling(const pollfd* entries, nfds_t count)
    : entries_(entries), counted_(count), count_(std::min<nfds_t>(count, counted_.length())) {
  sweep_retired();
  for (nfds_t i = 0; i < count_; ++i) {
    Connection* const connection =
        entries_[i].fd < 0 || (entries_[i].events & kIn) == 0 ? nullptr : find_connection(entries_[i].fd);
    const bool counts = connection != nullptr && connection->life.load() <= Life::offering;
    if (counts) connection->raw_receivers.fetch_add(1);
    counted_[i] = counts ? connection : nullptr;
  }
}

// Another connection may have the number by now.
RawPolling::~RawPolling() {
  const int kept = errno;
  for (nfds_t i = 0; i < count_; ++i) {
    Connection* const connection = counted_[i];
    if (connection == nullptr) continue;
    connection->raw_receivers.fetch_sub(1);
    if (connection->attached() && find_connection(entries_[i].fd) == connection)
      announce_if_ready(*connection, entries_[i].fd);
  }
  errno = kept;
}

bool any_accelerated(const pollfd* entries, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) {
    if (entries[i].fd < 0) continue;
    if (accelerated(entries[i].fd) != nullptr) return true;
    if (is_epoll_set(entries[i].fd)) return true;  // members may become so while somebody sleeps
  }
  return false;
}

int poll_wait(pollfd* entries, nfds_t count, Deadline deadline, const sigset_t* mask) {
  act_on_cancellation();
  const Uncancelled here;
  PollEntries asked(count + 1);  // the kernel gets a copy, with what makes sense to ask it, and a bell
  if (asked.length() < count + 1) return errno = ENOMEM, -1;
  const AtMemory at_rings;
  return Polling(entries, count, asked.get(), mask).wait(deadline);
}

}  // namespace viaduct::sockets
