#include "sockets/path.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/fence.hpp"
#include "base/spin.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/kernel.hpp"
#include "sockets/peer_socket.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

constexpr char kDoorbell = '!';

// Under the sending lock of the direction; `fd`: the end that sends in it.
void leave_ring(Direction& direction, int fd, Opened opened) {
  Path& path = direction.path;
  std::uint64_t written = 0;
  (void)tcp_written(fd, written, opened);
  if (path.mode.load() == kTcp) path.ring_from.store(written);
  path.tcp_from.store(written);
  path.mode.store(kBack, std::memory_order_release);  // R3
}

// As the program set it.
void restore_options(Connection& connection, int fd) {
  const auto& libc = kernel::libc();
  const int nodelay = connection.nodelay.load();
  const int cork = connection.cork.load();
  if (nodelay == 0) libc.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
  if (cork != 0) libc.setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork);
}

// A send buffer that somebody made smaller than what is in the ring, by SO_SNDBUF or TCP_NOTSENT_LOWAT, and nobody may
// be there to empty it.
class RoomySendBuffer {
 public:
  explicit RoomySendBuffer(int fd) : fd_(fd) {}
  ~RoomySendBuffer() {
    if (size_ != 0) resize(size_ / 2);  // the kernel doubles what it is told
    if (unsent_) set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, *unsent_);
  }
  RoomySendBuffer(const RoomySendBuffer&) = delete;
  RoomySendBuffer& operator=(const RoomySendBuffer&) = delete;

  void grow() {
    constexpr int kAnybodyMay = 2 * 212992;  // net.core.wmem_max, doubled: above it SO_SNDBUF might make it smaller
    constexpr int kNoLimit = -1;
    if (std::exchange(grown_, true)) return;
    const int size = get(SOL_SOCKET, SO_SNDBUF), unsent = get(IPPROTO_TCP, TCP_NOTSENT_LOWAT);
    if (set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNoLimit)) unsent_ = unsent;
    const int much = static_cast<int>(kMostBulkBytes);
    if (size < 2 * much &&
        (set(SOL_SOCKET, SO_SNDBUFFORCE, much) || (size < kAnybodyMay && set(SOL_SOCKET, SO_SNDBUF, much))))
      size_ = size;
  }

 private:
  int get(int level, int option) const {
    int value = 0;
    socklen_t size = sizeof value;
    return kernel::libc().getsockopt(fd_, level, option, &value, &size) == 0 ? value : 0;
  }
  bool set(int level, int option, int value) const {
    return kernel::libc().setsockopt(fd_, level, option, &value, sizeof value) == 0;
  }
  void resize(int bytes) const {
    if (!set(SOL_SOCKET, SO_SNDBUFFORCE, bytes)) set(SOL_SOCKET, SO_SNDBUF, bytes);
  }

  int fd_;
  bool grown_ = false;
  int size_ = 0;  // as it was
  std::optional<int> unsent_;
};

// Waits where the socket does not take more; a descriptor that is set to non-blocking must not lose bytes here.
bool send_all(int fd, const char* bytes, std::size_t size, RoomySendBuffer& buffer) {
  const auto& libc = kernel::libc();
  while (size != 0) {
    const ssize_t sent = libc.send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes += sent;
      size -= static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      buffer.grow();
      pollfd entry{fd, POLLOUT, 0};
      libc.poll(&entry, 1, 100);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Under the sending lock, on the ring.
bool ring_once(Connection& connection, int fd) {
  Path& path = connection.outgoing().path;
  if (bell_would_lie_behind_data(connection)) return false;
  // Another thread has just given the number to another connection.
  if (Connection* const has_it = find_connection(fd); has_it != nullptr && has_it != &connection) [[unlikely]]
    if ((fd = any_number_of(connection)) < 0) return false;
  path.rung_ns.store(Clock::steady().now_ns(), std::memory_order_relaxed);
  connection.rang.store(true, std::memory_order_relaxed);
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
  Tally& tally = connection.outgoing().tally;
  tally.wakes.store(tally.wakes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return rung;
}

}  // namespace

// What was sent over TCP before the ring is unread: the peer's socket is readable anyway. Should the connection be
// passed to somebody who knows no rings, a bell in the middle of its bytes could not be taken off any more.
bool bell_would_lie_behind_data(const Connection& connection) {
  const Direction& out = connection.outgoing();
  // Who waits for an edge has been told of those bytes.
  if (out.data.on_edges.load(std::memory_order_relaxed) != 0) return false;
  switch (out.receiving.stage.load(std::memory_order_acquire)) {
    case kReadTcp:
      return out.receiving.tcp_taken.load() < out.path.ring_from.load();
    case kReadRest:
      return out.receiving.tcp_left.load() != 0;
    default:
      return false;
  }
}

bool switch_to_ring(Connection& connection, int fd) {
  if (connection.peer().attached.load(std::memory_order_acquire) == 0 || connection.raw_senders.load() != 0 ||
      connection.own().raw_senders.load() != 0 || connection.own().finished.load() != 0 ||
      (connection.peer().request.load() & kTakeBack) != 0 || has_other_holders(connection))
    return false;
  Path& path = connection.outgoing().path;
  std::uint64_t written;
  if (!tcp_written(fd, written, connection.opened.load(std::memory_order_relaxed))) return false;
  const int one = 1;  // what MSG_MORE holds back goes out: the rest of it comes by the ring
  kernel::libc().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  path.ring_from.store(written);
  path.mode.store(kRing, std::memory_order_release);  // R3
  return true;
}

namespace {

void leave_ring_for_good(Connection& connection, int fd, Why why) {
  const SendingLock lock(connection.memory, connection.out());
  const std::uint32_t mode = connection.outgoing().path.mode.load();
  if (mode == kBack) return;
  if ((connection.peer().request.load() & kTakeBack) != 0) return serve_take_back(connection, fd);
  // A peer that sleeps until it may send on cannot be woken afterwards.
  if (mode == kRing && connection.peer().closed.load() == 0 &&
      (connection.incoming().room.armed.exchange(0) & kInPoll) != 0)
    ring_once(connection, fd);
  leave_ring(connection.outgoing(), fd, connection.opened.load(std::memory_order_relaxed));
  connection.set_why(why);
  restore_options(connection, fd);
}

}  // namespace

void hand_back_sending(Connection& connection, int fd, Why why) {
  const Uncancelled here;
  leave_ring_for_good(connection, fd, why);
  sets_note_back(connection);
}

void send_unread_over_tcp(const StreamMemory& memory, int direction, int fd, Opened opened) {
  Direction& ring = memory.direction(direction);
  const bool used = ring.path.mode.load() == kRing;
  if (used) ring.path.sent_again.store(1);
  leave_ring(ring, fd, opened);
  Receiver unread(memory, direction);
  RoomySendBuffer socket(fd);
  char buffer[4096];
  // No more than the ring can hold: a peer that writes into its own end keeps nobody here.
  std::size_t most = used ? memory.bulk_bytes + kRingBytes : 0;
  for (bool alive = true; alive && most >= sizeof buffer; most -= sizeof buffer) {
    const iovec piece{buffer, sizeof buffer};
    Pieces pieces(&piece, 1);
    const std::size_t size = unread.read(pieces, Receiver::Take::consume);
    if (size == 0) break;
    alive = send_all(fd, buffer, size, socket);
  }
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

// Whoever holds it now has let it go. False: it is held for long by somebody who lives, who may have been stopped in
// the middle of a send: not to be taken over, for its bytes would be lost.
bool wait_until_free(const std::atomic<std::uint32_t>& lock) {
  constexpr int kLooks = 200, kTurns = 2000;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::uint32_t holder = lock.load();
    if (holder == 0) return true;
    if (turn < kLooks) {
      cpu_relax();
    } else {
      if (thread_is_gone(holder)) return true;
      ::sched_yield();
    }
  }
  return false;
}

// Within that time; where the end is our own doing, there may be another behind it.
bool has_ended(const Connection& connection, int fd, int patience_ms) {
  pollfd entry{fd, POLLRDHUP, 0};
  return kernel::libc().poll(&entry, 1, patience_ms) > 0 && (!connection.reads_no_more.load() || tcp_peer_ended(fd));
}

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
    const StreamLock lock(in.receiving.lock);
    if (!Receiver(connection.memory, connection.in()).has_data()) return;
    connection.own().request.fetch_and(~std::uint32_t{kTakeBack});
    if (in.receiving.stage.load() != kDiscard) return;
    in.receiving.stage.store(kReadRing);
    connection.resumed.fetch_add(1);
  }
  sets_note_resumed(connection);  // who found nothing meanwhile
}

}  // namespace

bool ask_for_unread_over_tcp(Connection& connection, int fd) {
  Direction& in = connection.incoming();
  const StreamLock lock(in.receiving.lock);
  in.data.armed.store(0);
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
  hand_back_sending(connection, fd, why);
  // Whoever of the peer's was about to ring has rung now, or will see the request.
  (void)wait_until_free(in.sending.lock);
  keep_reading_ring(connection, false);
  return pending;
}

void finish_hand_back(Connection& connection, int fd, int patience_ms) {
  constexpr std::uint64_t kOwnChanceNs = 3'000'000;  // for a peer that is awake, or was just woken
  Direction& in = connection.incoming();
  const std::uint64_t start = Clock::steady().now_ns();
  const Deadline deadline = Deadline::at_ns(start + static_cast<std::uint64_t>(patience_ms) * 1'000'000);
  bool helped = false;
  while (in.path.mode.load(std::memory_order_acquire) != kBack) {  // A3, pairs with R3 in leave_ring()
    const std::uint64_t now = Clock::steady().now_ns();
    if (deadline.expired(now)) break;
    if (now - start > kOwnChanceNs && !helped) helped = serve_in_place_of_peer(connection, fd);
    if (has_ended(connection, fd, 1)) {  // there will be no answer
      keep_reading_ring(connection, true);
      break;
    }
  }
  const StreamLock lock(in.receiving.lock);
  if (in.receiving.stage.load() >= kReadRing) drain_doorbells(connection, fd);
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

bool peer_lost_bytes(Connection& connection, int fd) {
  const auto says_so = [&] { return (connection.peer().closed.load() | connection.peer().finished.load()) != 0; };
  if (says_so() || connection.outgoing().path.mode.load() != kRing) return false;
  if (!Receiver(connection.memory, connection.out()).has_data() || !tcp_peer_ended(fd)) return false;
  if (says_so()) return false;  // just now: it does before it ends
  if (connection.reset_told.exchange(true)) return false;
  // As a reset leaves it, whatever the program does next.
  const int kept = errno;
  kernel::libc().shutdown(fd, SHUT_RDWR);
  int same = 0;  // which it may have to say too
  socklen_t size = sizeof same;
  kernel::libc().getsockopt(fd, SOL_SOCKET, SO_ERROR, &same, &size);
  errno = kept;
  connection.sends_no_more.store(true);
  connection.reads_no_more.store(true);
  tell_of_shutdown(connection);
  return true;
}

bool find_reset(Connection& connection, int fd) {
  if (peer_lost_bytes(connection, fd)) connection.pending_error.store(ECONNRESET);
  return connection.pending_error.load(std::memory_order_relaxed) == ECONNRESET;
}

void tell_of_shutdown(Connection& connection) {
  End& own = connection.own();
  if (connection.sends_no_more.load()) own.finished.store(1);
  if (!connection.reads_no_more.load()) return;
  connection.look_at_kernel.store(true);
  if (own.finished.load() == 0) return;
  own.closed.store(1);  // both halves: TCP refuses what the peer sends from now on
  wake_room_sleepers(connection.incoming().room);
}

void serve_requests(Connection& connection, int fd) {
  if ((connection.peer().request.load(std::memory_order_relaxed) & kTakeBack) != 0 &&
      connection.outgoing().path.mode.load() != kBack) {
    const SendingLock lock(connection.memory, connection.out());
    serve_take_back(connection, fd);
  }
  if ((connection.own().request.load(std::memory_order_relaxed) & kHandBack) != 0)
    hand_back_sending(connection, fd, Why::handed_back);
  else
    sets_note_back(connection);  // a process of the other side may have done it for us
}

namespace {

// What TCP was to bring will not come: its sender has ended without having been able to send it again, or had left the
// ring before it knew that it should. Who sends again holds the lock from before it says kBack until the ring is empty.
bool ring_is_left_to_us(const Connection& connection, int fd, std::uint32_t mode) {
  const Direction& in = connection.incoming();
  if (mode != kBack) return has_ended(connection, fd, 0) && in.path.mode.load() != kBack;
  const std::uint32_t holder = in.sending.lock.load(std::memory_order_acquire);
  return (holder == 0 || thread_is_gone(holder)) && Receiver(connection.memory, connection.in()).has_data();
}

// Whoever was sending again has died: the rest is still in the ring.
bool sending_again_broke_off(const Connection& connection, int fd) {
  const Direction& in = connection.incoming();
  if (in.path.sent_again.load() == 0 || !Receiver(connection.memory, connection.in()).has_data()) [[likely]]
    return false;
  const std::uint32_t holder = in.sending.lock.load(std::memory_order_acquire);
  return (holder == 0 || thread_is_gone(holder)) && tcp_unread(fd) == 0 && tcp_peer_ended(fd);
}

}  // namespace

std::uint32_t follow_path(Connection& connection, int fd) {
  const Path& path = connection.incoming().path;
  ReceiveState& state = connection.incoming().receiving;
  for (;;) {
    const std::uint32_t stage = state.stage.load(std::memory_order_relaxed);
    const std::uint32_t mode = path.mode.load(std::memory_order_acquire);  // A3
    std::uint64_t read = 0;
    switch (stage) {
      case kReadTcp: {
        if (mode == kTcp) return stage;
        if (!tcp_read(fd, read)) read = state.tcp_taken.load();
        const std::uint64_t left = path.ring_from.load() - read;
        state.tcp_left.store(left > INT64_MAX ? 0 : left);  // never behind us, unless the peer lies
        state.stage.store(kReadRest);
        break;
      }
      case kReadRest:
        if (state.tcp_left.load() != 0) return stage;
        state.stage.store((connection.own().request.load() & kTakeBack) == 0 ? kReadRing : kDiscard);
        break;
      case kReadRing:
        if (mode != kBack) return stage;
        if (Receiver(connection.memory, connection.in()).has_data()) return stage;
        state.stage.store(kDiscard);
        break;
      case kDiscard:
        drain_doorbells(connection, fd);
        if (ring_is_left_to_us(connection, fd, mode)) {
          connection.own().request.fetch_and(~std::uint32_t{kTakeBack});
          state.stage.store(kReadRing);
          connection.resumed.fetch_add(1);
          return kReadRing;
        }
        if (mode != kBack) return stage;
        // Its sender may wait for us to make room on TCP.
        if (path.sent_again.load() == 0 && Receiver(connection.memory, connection.in()).has_data()) return stage;
        // Doorbells are all that there is on TCP before `tcp_from`; those of a peer that is gone may never come.
        if (path.rung.load() != state.drained.load() && !(tcp_unread(fd) == 0 && tcp_peer_ended(fd))) return stage;
        state.stage.store(kReadBack);
        if (const int least = connection.low_water.load(); least != 1)
          kernel::libc().setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
        break;
      default:
        if (!sending_again_broke_off(connection, fd)) return stage;
        state.stage.store(kReadRing);
        connection.resumed.fetch_add(1);
        return kReadRing;
    }
  }
}

bool settle_doorbells(Connection& connection, int fd, std::uint32_t own_sleeps) {
  Direction& in = connection.incoming();
  if (in.path.rung.load() == in.receiving.drained.load()) return true;
  if (in.data.sleepers.load() > own_sleeps) {
    connection.last_reader.store(thread_mark());
    // It may stand for all connections of a sleep (name_of_next_sleep()), which began before it was known that somebody
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
  }
  errno = kept;
}

}  // namespace viaduct::sockets
