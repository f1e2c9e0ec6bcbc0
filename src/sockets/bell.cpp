#include "sockets/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "base/fence.hpp"
#include "base/spin.hpp"
#include "sockets/bell_protocol.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/event_bell.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/rest.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

namespace {

struct Hardware {
  using Wait = DataWait;
  using Name = std::uint64_t;
  static void set_bell(Wait& wait, Name id) { wait.bell.id.store(id, std::memory_order_relaxed); }
  static Name bell(const Wait& wait) { return wait.bell.id.load(std::memory_order_acquire); }
  static void set_armed(Wait& wait, Name name) { wait.armed.store(name); }
  static Name take_armed(Wait& wait) { return wait.armed.exchange(0); }
  static std::uint32_t sleepers(const Wait& wait) { return wait.sleepers.load(); }
  static std::uint32_t one_sleeper_less(Wait& wait) { return wait.sleepers.fetch_sub(1) - 1; }
  static bool names_bell(Name name) { return (name & kWithBell) != 0; }
  static void fence() { fence::full(); }  // F1
};
using Protocol = BellProtocol<Hardware>;

}  // namespace

// ---- falling asleep

bool may_have_event_bell(const Connection& connection) {
  return connection.same_user.load(std::memory_order_relaxed) && !connection.shared.load(std::memory_order_relaxed);
}

void expect_data(Connection& connection, Sleep sleep) {
  const ReceivingLock lock(connection, connection.alone());
  std::atomic<std::uint32_t>& sleepers = connection.incoming().data.sleepers;
  const std::uint32_t here = connection.sleepers_here.load(std::memory_order_relaxed);
  // A process that was killed in its sleep counts no more.
  if (sleepers.load() != here && !has_other_holders(connection)) sleepers.store(here);
  sleepers.fetch_add(1);
  connection.sleepers_here.store(here + 1, std::memory_order_relaxed);
  Protocol::arm(connection.incoming().data, sleep.name, sleep.bell);
  take_held_if_due(connection);
}

void expect_data_again(Connection& connection, Sleep sleep) {
  const ReceivingLock lock(connection, connection.alone());
  Protocol::arm(connection.incoming().data, sleep.name, sleep.bell);
  take_held_if_due(connection);
}

// Microseconds since the machine was started, and one more for each sleep, which takes longer than that: so a process
// that gets the number of one that has ended goes on behind it.
Sleep next_sleep(std::uint64_t bell) {
  static constinit std::atomic<std::uint64_t> count{0};
  if (count.load(std::memory_order_relaxed) == 0) {
    std::uint64_t none = 0;
    count.compare_exchange_strong(none, Clock::steady().now_ns() / 1000 + kRingForMe);
  }
  const std::uint64_t number = count.fetch_add(1, std::memory_order_relaxed) & (kWithBell - 1);
  return {.name = static_cast<std::uint64_t>(own_pid()) << kSleepBits | (bell != 0 ? kWithBell : 0) | number,
          .bell = bell};
}

namespace {

void send_to_mailbox(const Connection& connection, EventBell& bell) {
  const std::uint64_t mailbox = bell.wanted_at.exchange(0);
  if (may_have_event_bell(connection)) pass_bell(bell.id.load(std::memory_order_relaxed), mailbox);
}

}  // namespace

void stop_expecting_data(Connection& connection) {
  Direction& in = connection.incoming();
  if (in.data.bell.wanted_at.load(std::memory_order_relaxed) != 0) [[unlikely]]
    send_to_mailbox(connection, in.data.bell);
  const ReceivingLock lock(connection, connection.alone());
  if (const std::uint32_t here = connection.sleepers_here.load(std::memory_order_relaxed); here != 0)
    connection.sleepers_here.store(here - 1, std::memory_order_relaxed);
  Protocol::disarm(in.data);
}

std::uint64_t time_had_nobody_slept(Connection& connection, std::uint64_t start, std::uint64_t now) {
  constexpr std::uint64_t kBelievable = 10'000'000;
  std::uint64_t end = now;
  if (const std::uint64_t rung = connection.incoming().path.rung_ns.load(std::memory_order_relaxed);
      rung > start && rung <= now && now - rung < kBelievable) {
    WakeCost::machine().note(now - rung);
    std::atomic<std::uint32_t>& own = connection.own().waking_ns;
    own.store(static_cast<std::uint32_t>((own.load(std::memory_order_relaxed) * 3ULL + (now - rung)) / 4),
              std::memory_order_relaxed);
    end = rung;
  }
  std::uint64_t took = end - start;
  if (connection.rang.exchange(false, std::memory_order_relaxed)) {
    const std::uint64_t waking =
        std::min<std::uint64_t>(connection.peer().waking_ns.load(std::memory_order_relaxed), kBelievable);
    took -= std::min(took, waking);
  }
  return took;
}

// ---- ringing

namespace {

constexpr char kDoorbell = '!';

// Before it is done: who is woken looks at when that was.
void note_ring(Connection& connection) {
  connection.outgoing().path.rung_ns.store(Clock::steady().now_ns(), std::memory_order_relaxed);
  connection.rang.store(true, std::memory_order_relaxed);
}

void count_wake(Tally& tally) {
  tally.wakes.store(tally.wakes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

// What was sent over TCP before the ring is unread: the peer's socket is readable anyway. Should the connection be
// passed to somebody who knows no rings, a bell in the middle of its bytes could not be taken off any more.
bool bell_would_lie_behind_data(const Connection& connection) {
  const Direction& out = connection.outgoing();
  switch (out.receiving.stage.load(std::memory_order_acquire)) {
    case kReadTcp:
      return out.receiving.tcp_taken.load() < out.path.ring_from.load();
    case kReadRest:
      return out.receiving.tcp_left.load() != 0;
    default:
      return false;
  }
}

bool ring_once(Connection& connection, int fd) {
  Path& path = connection.outgoing().path;
  if (bell_would_lie_behind_data(connection)) return false;
  // Another thread has just given the number to another connection.
  if (Connection* const has_it = find_connection(fd); has_it != nullptr && has_it != &connection) [[unlikely]]
    if ((fd = any_number_of(connection)) < 0) return false;
  note_ring(connection);
  path.rung.fetch_add(1);
  const bool nothing_else = connection.tcp_used_then.load(std::memory_order_relaxed) == tcp_used.load();
  note_tcp_use();  // which other connections come after
  if (nothing_else) connection.tcp_used_then.store(tcp_used.load(), std::memory_order_relaxed);
  // A full buffer means that there is something to read already.
  const bool rung = kernel::libc().send(fd, &kDoorbell, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
  if (!rung) {
    path.rung.fetch_sub(1);
    if (errno == ECONNRESET || errno == EPIPE) connection.pending_error.store(errno, std::memory_order_relaxed);
    connection.look_at_kernel.store(true, std::memory_order_relaxed);
  }
  count_wake(connection.outgoing().tally);
  return rung;
}

bool ring_doorbell(Connection& connection, int fd) {
  const Uncancelled here;
  const int kept = errno;
  const SendingLock lock(connection.memory, connection.out());
  // After our own end of stream TCP takes no more doorbells. A peer that wants its bytes over TCP sleeps on no ring,
  // and would take a doorbell for one of them.
  const bool wanted = connection.own().finished.load() == 0 && connection.peer().closed.load() == 0 &&
                      (connection.peer().request.load() & kTakeBack) == 0;
  const Path& path = connection.outgoing().path;
  const bool rung = wanted &&
                    (path.mode.load() == kRing || (path.mode.load() == kTcp && switch_to_ring(connection, fd))) &&
                    ring_once(connection, fd);
  errno = kept;
  return rung;
}

namespace {

// The sleeps that this process ended last, by the process that slept.
constexpr std::size_t kSleepsKept = 64;
constinit std::atomic<std::uint64_t> ended_sleeps[kSleepsKept] = {};

// Somebody is about to be rung for, who has been disarmed already.
struct Waking {
  Connection* connection = nullptr;
  int fd = -1;
  const void* frame = nullptr;
};
thread_local Waking tls_waking [[gnu::tls_model("initial-exec")]];

// A process that does not get one stops asking, but for now and then.
bool may_ask_for_bell(Connection& connection) {
  constexpr std::uint32_t kEager = 4;
  const std::uint32_t asked = connection.bells_asked_for.fetch_add(1, std::memory_order_relaxed);
  return asked < kEager || std::has_single_bit(asked);
}

// False: it is to be rung for over TCP. That one will be held by the next time, if its owner agrees.
bool ring_event_bell(Connection& connection, EventBell& bell, std::uint64_t id) {
  if (id == 0 || !connection.same_user.load(std::memory_order_relaxed)) return false;
  note_ring(connection);
  if (ring_bell(id)) {
    count_wake(connection.outgoing().tally);
    if (connection.bells_asked_for.load(std::memory_order_relaxed) != 0)
      connection.bells_asked_for.store(0, std::memory_order_relaxed);
    return true;
  }
  if (may_ask_for_bell(connection)) bell.wanted_at.store(own_mailbox(), std::memory_order_relaxed);
  return false;
}

// One wake-up, as BellProtocol asks for it.
class Ringing {
 public:
  Ringing(Connection& connection, int fd) : connection_(connection), fd_(fd), wait_(connection.outgoing().data) {}
  bool has_ended(std::uint64_t sleep) const { return last_of(sleep).load(std::memory_order_acquire) == sleep; }
  void note_ended(std::uint64_t sleep) { last_of(sleep).store(sleep, std::memory_order_release); }
  bool by_bell(std::uint64_t id) { return ring_event_bell(connection_, wait_.bell, id); }
  bool over_tcp() { return ring_doorbell(connection_, fd_); }
  void in_vain() {
    if (!bell_would_lie_behind_data(connection_)) return;
    wait_.armed.store(kRingForMe);  // later, should it sleep then
    // Who waits for an edge has been told of those bytes, and is to be told of these.
    if (wait_.on_edges.load(std::memory_order_relaxed) != 0) wake_past_data(connection_, fd_);
  }

 private:
  static std::atomic<std::uint64_t>& last_of(std::uint64_t sleep) {
    return ended_sleeps[(sleep >> kSleepBits) % kSleepsKept];
  }
  Connection& connection_;
  int fd_;
  DataWait& wait_;
};

}  // namespace

void wake_receiver(Connection& connection, int fd) {
  const Uncancelled here;  // whoever is rung for is disarmed
  tls_waking = {&connection, fd, __builtin_frame_address(0)};
  Protocol::wake(connection.outgoing().data, Ringing(connection, fd));
  tls_waking = {};
  weigh(connection);
}

void finish_waking(const void* target) {
  if (tls_waking.frame >= target) return;
  const Waking one = std::exchange(tls_waking, {});
  if (one.connection != nullptr && one.connection->attached()) ring_doorbell(*one.connection, one.fd);
}

// ---- taking doorbells off

bool settle_doorbells(Connection& connection, int fd, std::uint32_t own_sleeps) {
  Direction& in = connection.incoming();
  if (in.path.rung.load() == in.receiving.drained.load()) return true;
  if (in.data.sleepers.load() > own_sleeps) {
    connection.last_reader.store(thread_mark());
    // It may stand for all connections of a sleep (next_sleep()), which began before it was known that somebody
    // else reads this one: left to the sleeper.
    if (connection.named.load()) return false;
    in.data.armed.store(kRingForMe);
    fence::full();  // F1
    if (receives_on_ring(connection) && Receiver(connection.memory, connection.in()).has_data()) return false;
    connection.bell_shared.store(true, std::memory_order_relaxed);
  }
  drain_doorbells(connection, fd);
  return true;
}

void drain_doorbells(Connection& connection, int fd) {
  ReceiveState& state = connection.incoming().receiving;
  const int kept = errno;
  for (;;) {
    const std::uint32_t due = connection.incoming().path.rung.load() - state.drained.load(std::memory_order_relaxed);
    if (due == 0) break;
    char bytes[256];
    const ssize_t got = kernel::libc().recv(fd, bytes, std::min<std::size_t>(due, sizeof bytes), MSG_DONTWAIT);
    if (got <= 0) break;
    state.drained.store(state.drained.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(got),
                        std::memory_order_relaxed);
    fence::full();  // H1
  }
  take_held_if_due(connection);
  errno = kept;
}

// ---- room

void wake_room_sleepers(RoomWait& room) {
  ::syscall(SYS_futex, &room.armed, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

bool expect_room(Connection& connection, std::uint64_t bell) {
  Sender ring(connection.memory, connection.out());
  RoomWait& room = connection.outgoing().room;
  {
    const SendingLock lock(connection.memory, connection.out());
    ring.want_room();
    // One bell is all there is place for: who comes second, and sleeps with another, is rung for over TCP.
    if ((room.armed.load() & kOnBell) != 0 && room.bell.id.load(std::memory_order_relaxed) != bell) bell = 0;
    if (bell != 0) {
      room.bell.id.store(bell, std::memory_order_relaxed);
      room.armed.fetch_or(kOnBell);
    } else {
      room.armed.fetch_or(kInPoll);
    }
  }
  fence::full();  // F2
  return !ring_writable(connection);
}

void wake_senders_asleep(Connection& connection, int fd, std::uint32_t how) {
  const Uncancelled here;
  RoomWait& room = connection.incoming().room;
  if ((how & kOnFutex) != 0) wake_room_sleepers(room);
  const bool rung = (how & kOnBell) != 0 && ring_event_bell(connection, room.bell, room.bell.id.load());
  if ((how & kInPoll) != 0 || ((how & kOnBell) != 0 && !rung)) ring_doorbell(connection, fd);
}

}  // namespace viaduct::sockets
