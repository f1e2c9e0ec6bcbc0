#include "sockets/wait.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fence.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/rest.hpp"
#include "sockets/retired.hpp"
#include "sockets/signal_handlers.hpp"
#include "sockets/sleep_on_stack.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::uint64_t kShortestNapNs = 5'000'000;      // for room: a peer that dies does not wake a futex
constexpr std::uint64_t kNapBeforeGrowthNs = 1'000'000;  // of a ring: who reads much wakes us before
constexpr std::uint64_t kLongestNapNs = 100'000'000;
constexpr std::uint64_t kStalledNs = 300'000'000;  // nobody reads at all: perhaps not before we have sent everything

}  // namespace

namespace {

int poll_all(pollfd* entries, nfds_t count, Deadline deadline) {
  const Cancellable sleep;
  if (deadline.is_never()) return kernel::libc().poll(entries, count, -1);
  const timespec left = to_timespec(deadline.left_ns(Clock::steady().now_ns()));
  return kernel::libc().ppoll(entries, count, &left, nullptr);
}

}  // namespace

int poll_until(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  return poll_all(&entry, 1, deadline);
}

Deadline time_limit(const Connection& connection, int fd, int option) {
  if ((option == SO_RCVTIMEO ? connection.no_time_to_receive : connection.no_time_to_send).load())
    return Deadline::at_ns(0);
  timeval limit{};
  socklen_t size = sizeof limit;
  if (kernel::libc().getsockopt(fd, SOL_SOCKET, option, &limit, &size) != 0 ||
      (limit.tv_sec == 0 && limit.tv_usec == 0))
    return Deadline::never();
  return Deadline::after(Clock::steady(), limit.tv_sec, limit.tv_usec * 1000);
}

namespace {

Deadline receive_limit(Connection& connection, int fd) {
  const bool mine = __libc_single_threaded != 0 && !connection.shared.load(std::memory_order_relaxed) &&
                    !connection.lent.load(std::memory_order_relaxed);
  if (mine && connection.waits_for_ever.load(std::memory_order_relaxed)) return Deadline::never();
  const Deadline limit = time_limit(connection, fd, SO_RCVTIMEO);
  connection.waits_for_ever.store(mine && limit.is_never(), std::memory_order_relaxed);
  return limit;
}

}  // namespace

bool spinning_makes_sense(Connection& connection) {
  const auto core = static_cast<std::uint32_t>(::sched_getcpu()) + 1;
  std::atomic<std::uint32_t>& own = connection.own().core;
  if (own.load(std::memory_order_relaxed) != core) own.store(core, std::memory_order_relaxed);
  return connection.peer().core.load(std::memory_order_relaxed) != core;
}

// ---- data

bool ReceiveWait::spin() {
  if (!receives_on_ring(connection_)) return false;
  Receiver ring(connection_.memory, connection_.in());
  const Path& path = connection_.incoming().path;
  const auto ready = [&] {
    return ring.has_data() || connection_.peer_says_end() || path.mode.load(std::memory_order_relaxed) == kBack ||
           was_closed();
  };
  const std::uint64_t now = Clock::steady().now_ns();
  if (!spinning_makes_sense(connection_)) return connection_.receive_yielder.spin(now, ready);
  return connection_.receive_spinner.spin(now, limit_, ready);
}

namespace {

// To be disarmed however the sleep ends, unless the connection was closed meanwhile.
class Expecting final : SleepOnStack {
 public:
  Expecting(Connection& connection, BellOfThread& bell)
      : connection_(connection), generation_(connection.generation.load()), bell_(bell) {
    expect_data(connection_, bell.id() != 0 ? next_sleep(bell.id()) : Sleep{});
  }
  ~Expecting() { disarm(); }

 private:
  void disarm() override {
    bell_.leave();
    if (connection_.generation.load() == generation_) stop_expecting_data(connection_);
  }
  Connection& connection_;
  std::uint32_t generation_;
  BellOfThread& bell_;
};

}  // namespace

bool ReceiveWait::for_data(bool has_some) {
  const bool found = spin();
  (void)sweep_before_sleep();
  if (was_closed()) return errno = closed_meanwhile(), false;
  if (found) return true;
  if (!limit_known_) limit_ = receive_limit(connection_, fd_), limit_known_ = true;
  const std::uint64_t start = Clock::steady().now_ns();
  if (limit_.expired(start)) return errno = EAGAIN, false;
  bool go_on = true;
  {
    const bool restartable = limit_.is_never() && !has_some;
    BellOfThread bell(may_have_event_bell(connection_) && (!restartable || signal_handlers() != Handlers::differ));
    const Expecting expecting(connection_, bell);
    const bool alone = connection_.incoming().data.sleepers.load(std::memory_order_relaxed) == 1;
    if (!readable_after_all(connection_, fd_, false, 1)) {
      const bool doorbells_only = receives_on_ring(connection_) && bell.id() == 0;
      only_bell_rang_ = false;
      go_on = doorbells_only && alone && restartable ? sleep_in_recv() : sleep_in_poll(restartable, bell);
      if (was_closed()) return go_on ? (errno = closed_meanwhile(), false) : false;
      if (!only_bell_rang_) connection_.look_at_kernel.store(true, std::memory_order_relaxed);
    }
  }
  connection_.receive_spinner.learn_awake(time_had_nobody_slept(connection_, start, Clock::steady().now_ns()));
  serve_requests(connection_, fd_);
  weigh(connection_);
  return go_on;
}

// One system call, with the kernel's own ways about signals. What comes stays there: a handler may have given the
// number to another connection, on which the kernel then goes on.
bool ReceiveWait::sleep_in_recv() {
  char byte;
  const ssize_t got = [&] {
    const Cancellable sleep;
    return kernel::libc().recv(fd_, &byte, 1, MSG_PEEK);
  }();
  if (was_closed()) return got >= 0;
  if (got >= 0) return true;
  if (errno == EAGAIN) {
    // Somebody has made it non-blocking since the call began; or there is a limit after all, of no time, which the
    // kernel tells as it tells none.
    if (const int flags = kernel::libc().fcntl(fd_, F_GETFL); flags >= 0 && (flags & O_NONBLOCK) != 0)
      return poll_until(fd_, POLLIN | POLLRDHUP, Deadline::never()) >= 0;
    return errno = EAGAIN, false;
  }
  if (errno == EINTR) return false;
  connection_.pending_error.store(errno);
  return true;
}

bool ReceiveWait::sleep_in_poll(bool restartable, const BellOfThread& bell) {
  for (;;) {
    const std::uint64_t now = Clock::steady().now_ns();
    // Others may take the doorbell; and what TCP was to bring may have to be read from the ring after all.
    const bool discards = connection_.incoming().receiving.stage.load(std::memory_order_relaxed) == kDiscard;
    const bool looks = connection_.incoming().data.sleepers.load(std::memory_order_relaxed) > 1 || discards;
    if (restartable && !looks && bell.id() == 0 && signal_handlers() == Handlers::differ) return sleep_in_recv();
    const Deadline until = looks ? Deadline::at_ns(now + std::min(nap_ns_, limit_.left_ns(now))) : limit_;
    if (looks && !discards) nap_ns_ = std::min(2 * nap_ns_, kLongestNapNs);
    pollfd entries[2] = {{fd_, POLLIN | POLLRDHUP, 0}, {bell.fd(), POLLIN, 0}};
    const int found = poll_all(entries, bell.fd() >= 0 ? 2 : 1, until);
    if (found > 0 && entries[1].revents != 0) bell.hear();
    only_bell_rang_ = found > 0 && entries[0].revents == 0;
    if (found > 0) return true;
    if (found < 0) {
      if (errno == EINTR && restartable && signal_handlers() == Handlers::restart) return true;
      return false;
    }
    if (limit_.expired(Clock::steady().now_ns())) return errno = EAGAIN, false;
    return true;
  }
}

// ---- room

bool grow_ring(Connection& connection) {
  const SendingLock lock(connection.memory, connection.out());
  return Sender(connection.memory, connection.out()).grow();
}

int nap_for_room(const Connection& connection) {
  constexpr int kStalledMs = 100;
  const bool is_told = __libc_single_threaded != 0 && !connection.shared.load(std::memory_order_relaxed) &&
                       peer_rings_for_room(connection);
  return is_told ? kStalledMs : kSharedNapMs;
}

namespace {

// As a send that a signal interrupts: whether it goes on is for the handler that ran to say. Where they say different
// things, there is one way to sleep on a futex with a limit that leaves it to the kernel; which a sandbox may not know
// of, and kill for. False, and EINTR: it does not go on.
bool nap_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint64_t nap_ns, bool restartable) {
  const Handlers handlers = restartable ? signal_handlers() : Handlers::end;
  if (handlers == Handlers::differ && ::prctl(PR_GET_SECCOMP) == 0) {
    futex_waitv waiter{};
    waiter.val = value;
    waiter.uaddr = reinterpret_cast<std::uintptr_t>(&word);
    waiter.flags = FUTEX_32;
    const timespec until = to_timespec(Clock::steady().now_ns() + nap_ns);
    if (::syscall(SYS_futex_waitv, &waiter, 1, 0, &until, CLOCK_MONOTONIC) >= 0) return true;
    if (errno != ENOSYS) return errno != EINTR;
  }
  const timespec time = to_timespec(nap_ns);
  const long slept = ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
  return slept == 0 || errno != EINTR || handlers == Handlers::restart;
}

}  // namespace

void relieve_stalled(Connection& connection, int fd) {
  const std::uint64_t now = Clock::steady().now_ns();
  const std::uint64_t head = connection.outgoing().receiving.head.load(std::memory_order_relaxed);
  const std::uint64_t since = connection.full_since_ns.load(std::memory_order_relaxed);
  if (since == 0 || connection.full_head.exchange(head) != head)
    connection.full_since_ns.store(now, std::memory_order_relaxed);
  else if (now - since > kStalledNs && sends_on_ring(connection))
    hand_back_sending(connection, fd, Why::stalled);
}

bool SendWait::for_room(bool has_some) {
  Sender ring(connection_.memory, connection_.out());
  const End& peer = connection_.peer();
  const auto closed = [&] {
    return peer.closed.load(std::memory_order_relaxed) != 0 ||
           connection_.own().finished.load(std::memory_order_relaxed) != 0;  // by another thread, or process
  };
  // Who is to leave the ring with nothing in it does not fill it again before.
  const auto has_room = [&](Sender::Room wanted) {
    return ring.has_room_now(is_asked_back(connection_) ? Sender::Room::nearly_all : wanted);
  };
  const auto ready = [&] { return has_room(Sender::Room::some) || closed(); };
  // Not for the first slot that comes free: both sides would work on one line from then on.
  const auto worth_it = [&] { return has_room(Sender::Room::a_quarter_of_slots) || closed(); };
  if (spinning_makes_sense(connection_) &&
      connection_.send_spinner.spin(Clock::steady().now_ns(), Deadline::never(), worth_it))
    return true;
  if (!limit_known_) limit_ = time_limit(connection_, fd_, SO_SNDTIMEO), limit_known_ = true;
  const std::uint64_t start = Clock::steady().now_ns();
  const std::uint32_t generation = connection_.generation.load();
  RoomWait& room = connection_.outgoing().room;
  const std::uint64_t head = connection_.outgoing().receiving.head.load();
  // TCP's buffers would have taken it at once: found out before the time is over.
  const std::uint64_t patience = std::min(kStalledNs, limit_.left_ns(start) / 2);
  for (std::uint64_t nap = ring.can_grow() ? kNapBeforeGrowthNs : kShortestNapNs;;
       nap = std::min(nap * 2, kLongestNapNs)) {
    {
      const SendingLock lock(connection_.memory, connection_.out());
      ring.want_room();
    }
    const std::uint32_t armed = room.armed.fetch_or(kOnFutex) | kOnFutex;
    fence::full();  // F2
    if (ready()) break;
    const std::uint64_t now = Clock::steady().now_ns();
    if (limit_.expired(now)) return errno = EAGAIN, false;
    {
      const Cancellable here;
      ::pthread_testcancel();
    }
    // Who should read sleeps on and on: a thread has jumped away before it could ring.
    if (nap > kShortestNapNs && connection_.outgoing().data.sleepers.load() != 0 &&
        connection_.outgoing().data.armed.load() == 0)
      ring_doorbell(connection_, fd_);
    const bool go_on =
        nap_on(room.armed, armed, std::min({nap, limit_.left_ns(now), patience}), limit_.is_never() && !has_some);
    if (connection_.generation.load() != generation) return errno = EBADF, false;  // closed; its memory may be gone
    if (ready()) break;
    if (!go_on) return errno = EINTR, false;
    if (!is_asked_back(connection_) && grow_ring(connection_)) return true;
    pollfd entry{fd_, POLLRDHUP, 0};
    // Closed or reset: for the caller to find out. A peer that has said that it sends no more may still read.
    if (kernel::libc().poll(&entry, 1, 0) > 0 &&
        ((entry.revents & (POLLHUP | POLLERR)) != 0 || peer.finished.load() == 0))
      return true;
    serve_requests(connection_, fd_);
    // TCP takes more than the ring: two ends that both send a lot before they read, or one thread with both ends, go
    // on.
    if (connection_.outgoing().receiving.head.load() == head && Clock::steady().now_ns() - start >= patience)
      hand_back_sending(connection_, fd_, Why::stalled);
    if (connection_.outgoing().path.mode.load() != kRing) return true;
  }
  connection_.hand_back_from_ns.store(0, std::memory_order_relaxed);  // if it was put off: there is little unread now
  connection_.send_spinner.learn(Clock::steady().now_ns() - start);
  return true;
}

}  // namespace viaduct::sockets
