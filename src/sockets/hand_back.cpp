#include "sockets/hand_back.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/spin.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/peer_socket.hpp"
#include "sockets/retired.hpp"
#include "sockets/ring_over_tcp.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

// As the program set it.
void restore_options(Connection& connection, int fd) {
  const auto& libc = kernel::libc();
  const int nodelay = connection.nodelay.load();
  const int cork = connection.cork.load();
  if (nodelay == 0) libc.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
  if (cork != 0) libc.setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork);
}

void nap(std::uint64_t ns) {
  const timespec time{0, static_cast<long>(ns)};
  ::syscall(SYS_nanosleep, &time, nullptr);
}
constexpr std::uint64_t kNapNs = 100'000;

// Whoever holds it now has let it go. False: it is held for longer by somebody who lives, who may have been stopped in
// the middle of a send: not to be taken over, for its bytes would be lost.
bool wait_until_free(const std::atomic<std::uint32_t>& lock, std::uint64_t patience_ns = 0) {
  constexpr int kLooks = 200, kTurns = 2000;
  std::uint64_t begin = 0;
  for (int turn = 0;; ++turn) {
    const std::uint32_t holder = lock.load();
    if (holder == 0) return true;
    if (turn < kLooks) {
      cpu_relax();
      continue;
    }
    if (thread_is_gone(holder)) return true;
    if (turn < kTurns) {
      ::sched_yield();
      continue;
    }
    const std::uint64_t now = Clock::steady().now_ns();
    if (begin == 0) begin = now;
    if (now - begin >= patience_ns) return false;
    nap(kNapNs);
  }
}

// A lock that its end took by a plain store, beside which it looked at what is asked of it, is seen by everybody after
// that time; a peer that is awake, or was just woken, has done what was asked of it.
constexpr std::uint64_t kSettledNs = 3'000'000;

bool wants_take_back(const Connection& connection) {
  return (connection.peer().request.load() & kTakeBack) != 0;
}

// The receiving lock of the peer. False: whoever holds it did not let go in time.
template <class Use>
bool use_under_lock_of_peer(Connection& connection, const Deadline& deadline, Use&& use) {
  std::atomic<std::uint32_t>& word = connection.outgoing().receiving.lock;
  for (;; nap(kNapNs)) {
    const HeldLock held(word);
    {
      const QuickLock<LettingGo::is_a_fence> lock(word, false);
      if (lock.is_taken()) return use(), true;
    }
    std::uint32_t holder = word.load();
    if (holder != 0 && thread_is_gone(holder)) {
      if (!word.compare_exchange_strong(holder, thread_mark())) continue;
      Receiver(connection.memory, connection.out()).recover();
      use();
      std::uint32_t own = thread_mark();
      word.compare_exchange_strong(own, holder);  // what it took off TCP only its own side can put right
      return true;
    }
    if (deadline.expired(Clock::steady().now_ns()) || wants_take_back(connection)) return false;
  }
}

// Under the sending lock, on the ring: a peer that is reading empties it, within a short time.
bool is_read_empty(const Connection& connection) {
  constexpr std::uint64_t kPatienceNs = 1'000'000;
  Receiver unread(connection.memory, connection.out());
  const Deadline deadline = Deadline::at_ns(Clock::steady().now_ns() + kPatienceNs);
  while (unread.has_data()) {
    if (deadline.expired(Clock::steady().now_ns()) || wants_take_back(connection)) return false;
    ::sched_yield();
  }
  return true;
}

// Nobody has ended, so that what is in the ring will be read.
bool will_be_read(const Connection& connection, int fd) {
  const End& peer = connection.peer();
  return connection.own().finished.load() == 0 && peer.closed.load() == 0 &&
         (peer.finished.load() != 0 || !tcp_peer_ended(fd));
}

struct Patience {
  std::uint64_t ns;
  int looks_in_vain;  // in a row, between which the peer read nothing
};

// Under the sending lock, on the ring. The peer's end may be given to somebody who knows no rings, as this one is, and
// behind what is sent over TCP from now on it would be too late to send what is unread: so that goes first. Until it
// does the peer reads it; and from then on under the peer's own lock, so that whoever was told of bytes finds them.
// False: it stays in the ring.
bool send_unread_before_leaving(Connection& connection, int fd, Patience patience) {
  const Deadline deadline = Deadline::at_ns(Clock::steady().now_ns() + patience.ns);
  Direction& out = connection.outgoing();
  if (!will_be_read(connection, fd) || is_read_empty(connection) || wants_take_back(connection)) return false;
  // Who reads takes its lock so that we can take it too.
  connection.own().request.fetch_or(kEmptying);
  nap(kSettledNs);
  RoomySendBuffer socket(fd);
  bool all = true, too_much = false;
  std::size_t most = SIZE_MAX;
  int in_vain = 0;
  const auto send_it = [&] {
    const std::size_t bytes = Receiver(connection.memory, connection.out()).bytes_ready();
    if (bytes == 0 || wants_take_back(connection)) return;
    too_much = !socket.makes_room_for(bytes);
    if (too_much) {
      in_vain = bytes < std::exchange(most, bytes) ? 0 : in_vain + 1;
      return;
    }
    out.path.sent_again.store(1);
    leave_ring(out, fd, connection.opened.load(std::memory_order_relaxed));
    all = send_ring_over_tcp(connection.memory, connection.out(), fd, false);
  };
  // Whoever reads makes it less.
  do {
    too_much = false;
  } while (use_under_lock_of_peer(connection, deadline, send_it) && too_much && in_vain < patience.looks_in_vain &&
           !deadline.expired(Clock::steady().now_ns()) && !is_read_empty(connection));
  connection.own().request.fetch_and(~std::uint32_t{kEmptying});
  if (!all) send_ring_over_tcp(connection.memory, connection.out(), fd, true);
  return out.path.mode.load() == kBack;
}

// What is done about bytes that are unread in the ring.
struct Leaving {
  std::optional<Patience> sends_them;  // over TCP, if that can be done within it
  enum { leaves_them, stays, is_put_off } otherwise;
};
// Who gives the socket away has only this chance. What was asked for from outside takes its time from a call of the
// program's, which should not notice, and there is a next time. Either is less than memory rests that another process
// has closed (retired.hpp), whose threads may wait for the sending lock.
constexpr Patience kGivingAway{60'000'000, INT_MAX}, kAsked{20'000'000, 2};
static_assert(kGivingAway.ns < kGraceNs);
constexpr std::uint64_t kAskedAgainNs = 50'000'000, kLongestAgainNs = 800'000'000;

// Under the sending lock, on the ring. More and more rarely, where nobody reads.
void put_off(Connection& connection) {
  const std::uint64_t pause = std::max(connection.hand_back_pause_ns.load(std::memory_order_relaxed), kAskedAgainNs);
  connection.hand_back_from_ns.store(Clock::steady().now_ns() + pause, std::memory_order_relaxed);
  connection.hand_back_pause_ns.store(std::min(2 * pause, kLongestAgainNs), std::memory_order_relaxed);
}

// Under the sending lock, on the ring. A peer that sleeps until it may send on cannot be woken afterwards.
void wake_for_room_at_last(Connection& connection, int fd) {
  constexpr std::uint32_t kOverTcp = kInPoll | kOnBell;  // perhaps, where we do not hold that bell
  if (connection.peer().closed.load() == 0 && (connection.incoming().room.armed.fetch_and(~kOverTcp) & kOverTcp) != 0)
    ring_once(connection, fd);
}

// False: it is still on the ring.
bool leave_ring_for_good(Connection& connection, int fd, Why why, const Leaving& leaving) {
  const SendingLock lock(connection.memory, connection.out());
  const std::uint32_t mode = connection.outgoing().path.mode.load();
  if (mode == kBack) {
    if (connection.outgoing().path.rests.exchange(0) != 0) connection.set_why(why);
    return true;
  }
  const bool may_be_put_off = leaving.otherwise == Leaving::is_put_off;
  if (may_be_put_off && !hand_back_is_due(connection)) return false;  // another thread has tried
  if (wants_take_back(connection)) return serve_take_back(connection, fd), true;
  HeldBytes held(connection.memory, connection.out());
  if (mode == kRing && held.count() != 0) {
    Sender ring(connection.memory, connection.out());
    mark_order(connection, ring);
    held.go(ring);
    if (connection.outgoing().data.armed.exchange(0) != 0) ring_once(connection, fd);
  }
  if (mode == kRing) wake_for_room_at_last(connection, fd);
  const bool gone =
      mode == kRing && leaving.sends_them && send_unread_before_leaving(connection, fd, *leaving.sends_them);
  const bool stays = !gone && mode == kRing && leaving.otherwise != Leaving::leaves_them &&
                     will_be_read(connection, fd) && !is_read_empty(connection);
  if (!gone && wants_take_back(connection)) return serve_take_back(connection, fd), true;
  if (stays && may_be_put_off) put_off(connection);
  if (stays) return false;
  if (!gone) leave_ring(connection.outgoing(), fd, connection.opened.load(std::memory_order_relaxed));
  held.go_over_tcp(fd);
  connection.set_why(why);
  restore_options(connection, fd);
  return true;
}

bool hand_back_sending(Connection& connection, int fd, Why why, const Leaving& leaving) {
  const Uncancelled here;
  const bool left = leave_ring_for_good(connection, fd, why, leaving);
  sets_note_back(connection);
  return left;
}

// Who reads may be kept from it by whoever waits for a lock of ours, to ring for room, and so on in a circle round both
// ends: all of them get on while we let it go.
void hand_back_to_give_away(Connection& connection, int fd, Why why) {
  constexpr int kTurns = 4;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (hand_back_sending(connection, fd, why, {kGivingAway, Leaving::stays})) return;
    nap(kSettledNs);
  }
  hand_back_sending(connection, fd, why, {kGivingAway, Leaving::leaves_them});
}

// Nobody closes the number, and nothing else gets it, for as long as this lives; `holds()`: what `fd` is.
class KeptOpen {
 public:
  KeptOpen(Connection& connection, int fd)
      : connection_(connection),
        held_above_(connection.upgrade_lock.is_mine()),
        held_(!held_above_ && connection.upgrade_lock.try_acquire()),
        holds_((held_ || held_above_) && connection.descriptors.load() == 1 && find_connection(fd) == &connection) {}
  ~KeptOpen() {
    if (held_) connection_.upgrade_lock.release();
  }
  KeptOpen(const KeptOpen&) = delete;
  KeptOpen& operator=(const KeptOpen&) = delete;
  bool holds() const { return holds_; }

 private:
  Connection& connection_;
  bool held_above_, held_, holds_;
};

}  // namespace

void hand_back_sending(Connection& connection, int fd, Why why) {
  hand_back_sending(connection, fd, why, {std::nullopt, Leaving::leaves_them});
}

void hand_back_to_rest(Connection& connection, int fd) {
  const Uncancelled here;
  {
    const SendingLock lock(connection.memory, connection.out());
    Path& path = connection.outgoing().path;
    if (path.mode.load() != kRing || path.held.load() != 0 || Receiver(connection.memory, connection.out()).has_data())
      return;
    wake_for_room_at_last(connection, fd);
    path.rests.store(1);
    leave_ring(connection.outgoing(), fd, connection.opened.load(std::memory_order_relaxed));
    connection.set_why(Why::dearer);
    restore_options(connection, fd);
  }
  sets_note_back(connection);
}

bool hand_back_is_due(const Connection& connection) {
  return is_asked_back(connection) &&
         Clock::steady().now_ns() >= connection.hand_back_from_ns.load(std::memory_order_relaxed);
}

void hand_back_if_read(Connection& connection, int fd) {
  if (!sends_on_ring(connection)) return hand_back_sending(connection, fd, Why::handed_back);
  const KeptOpen kept(connection, fd);
  const std::optional<Patience> sends_them = kept.holds() ? std::optional(kAsked) : std::nullopt;
  hand_back_sending(connection, fd, Why::handed_back, {sends_them, Leaving::is_put_off});
}

void hand_back_while_read(Connection& connection, int fd) {
  constexpr int kTurns = 16;
  const std::uint32_t generation = connection.generation.load();
  const auto unread = [&] { return Receiver(connection.memory, connection.out()).bytes_ready(); };
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::size_t before = unread();
    hand_back_if_read(connection, fd);
    if (connection.generation.load() != generation || !sends_on_ring(connection) || unread() >= before) return;
    connection.hand_back_from_ns.store(0, std::memory_order_relaxed);
    connection.hand_back_pause_ns.store(0, std::memory_order_relaxed);
  }
}

void wake_past_data(Connection& connection, int fd) {
  constexpr std::uint64_t kPatienceNs = 1'000'000;
  const Deadline deadline = Deadline::at_ns(Clock::steady().now_ns() + kPatienceNs);
  const auto has_data = [&] { return Receiver(connection.memory, connection.out()).has_data(); };
  while (bell_would_lie_behind_data(connection) && has_data() && !deadline.expired(Clock::steady().now_ns()))
    ::sched_yield();
  if (!has_data()) return;
  if (!bell_would_lie_behind_data(connection)) {
    if (connection.outgoing().data.armed.exchange(0) != 0) ring_doorbell(connection, fd);
    return;
  }
  if (const KeptOpen kept(connection, fd); kept.holds())
    hand_back_sending(connection, fd, Why::handed_back, {kGivingAway, Leaving::stays});
}

void serve_take_back(Connection& connection, int fd) {
  const Uncancelled here;
  // After the end of our stream TCP takes no more: it will be read from the ring after all (follow_path()).
  if (connection.outgoing().path.mode.load() == kBack || connection.own().finished.load() != 0) return;
  send_unread_over_tcp(connection.memory, connection.out(), fd, connection.opened.load());
  connection.set_why(Why::handed_back);
  restore_options(connection, fd);
}

namespace {

// It does not look at the connection, for whatever reason: with a descriptor of its socket we can do what it would.
// False: it is in the middle of a send, behind which it will look.
bool serve_in_place_of_peer(Connection& connection, int fd) {
  Fd theirs = borrow_peer_socket(connection.peer().pid.load(), fd);
  for (const auto& holder : connection.peer().holders.members)  // who attached last may have left it to another
    if (!theirs) theirs = borrow_peer_socket(holder.load(), fd);
  if (!theirs) return true;
  Direction& in = connection.incoming();
  if (!wait_until_free(in.sending.lock)) return false;
  const SendingLock lock(connection.memory, connection.in());
  if (in.path.mode.load() != kBack && connection.peer().finished.load() == 0)
    send_unread_over_tcp(connection.memory, connection.in(), theirs.get(), connection.opened_as_peer_sees_it());
  return true;
}

bool peer_sends_no_more(const Connection& connection, int fd) {
  return (connection.peer().finished.load() | connection.peer().closed.load()) != 0 || has_ended(connection, fd, 0);
}

// What is in the ring will not come over TCP: the peer left the ring before it knew that it should send it again, or
// has ended. So whoever knows of the ring reads it after all.
void keep_reading_ring(Connection& connection, bool peer_has_ended) {
  Direction& in = connection.incoming();
  // Whoever sends it again holds the lock from before it says kBack until the ring is empty.
  if (!peer_has_ended && (in.path.mode.load() != kBack || !wait_until_free(in.sending.lock))) return;
  {
    const ReceivingLock lock(connection);
    if (!Receiver(connection.memory, connection.in()).has_data()) return;
    if (in.receiving.stage.load() == kDiscard)
      read_ring_again(connection);
    else
      connection.own().request.fetch_and(~std::uint32_t{kTakeBack});
  }
  sets_note_resumed(connection);  // who found nothing meanwhile
}

}  // namespace

bool ask_for_unread_over_tcp(Connection& connection, int fd) {
  Direction& in = connection.incoming();
  const ReceivingLock lock(connection);
  in.data.armed.store(0);
  // One that only rests on TCP is not to come back either.
  if (in.path.mode.load() == kBack && in.path.rests.load() != 0) connection.own().request.fetch_or(kTakeBack);
  if (in.path.mode.load() == kBack || peer_sends_no_more(connection, fd)) return false;
  connection.own().request.fetch_or(kTakeBack);
  // From here on nobody of this side reads the ring.
  if (receives_on_ring(connection)) in.receiving.stage.store(kDiscard);
  return Receiver(connection.memory, connection.in()).has_data();
}

bool begin_hand_back(Connection& connection, int fd, Why why) {
  Direction& in = connection.incoming();
  const bool pending = ask_for_unread_over_tcp(connection, fd);
  ring_doorbell(connection, fd);  // it may sleep
  hand_back_to_give_away(connection, fd, why);
  // Whoever of the peer's was about to ring has rung now, or will see the request. On a busy machine that may take a
  // while, and its bell would be taken for data.
  constexpr std::uint64_t kPatienceNs = 200'000'000;
  (void)wait_until_free(in.sending.lock, kPatienceNs);
  keep_reading_ring(connection, false);
  return pending;
}

void finish_hand_back(Connection& connection, int fd, int patience_ms) {
  Direction& in = connection.incoming();
  const std::uint64_t start = Clock::steady().now_ns();
  const Deadline deadline = Deadline::at_ns(start + static_cast<std::uint64_t>(patience_ms) * 1'000'000);
  bool helped = false;
  while (in.path.mode.load(std::memory_order_acquire) != kBack) {  // A3, pairs with R3 in leave_ring()
    const std::uint64_t now = Clock::steady().now_ns();
    if (deadline.expired(now)) break;
    if (now - start > kSettledNs && !helped) helped = serve_in_place_of_peer(connection, fd);
    if (has_ended(connection, fd, 1)) {  // there will be no answer
      keep_reading_ring(connection, true);
      break;
    }
  }
  // A bell that was rung may still be on its way, and whoever goes on without us would take it for data.
  constexpr std::uint64_t kBellNs = 100'000'000;
  const Deadline bells = Deadline::at_ns(Clock::steady().now_ns() + kBellNs);
  do {
    const ReceivingLock lock(connection);
    if (in.receiving.stage.load() < kReadRing) return;
    drain_doorbells(connection, fd);
    if (in.path.rung.load() == in.receiving.drained.load()) return;
  } while (!bells.expired(Clock::steady().now_ns()) && !has_ended(connection, fd, 1));
}

void serve_requests(Connection& connection, int fd) {
  if ((connection.peer().request.load(std::memory_order_relaxed) & kTakeBack) != 0 &&
      connection.outgoing().path.mode.load() != kBack) {
    const SendingLock lock(connection.memory, connection.out());
    serve_take_back(connection, fd);
  }
  if (hand_back_is_due(connection))
    hand_back_if_read(connection, fd);
  else
    sets_note_back(connection);  // a process of the other side may have done it for us
}

}  // namespace viaduct::sockets
