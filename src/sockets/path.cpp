#include "sockets/path.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/fence.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/kernel.hpp"
#include "sockets/rest.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

// Taken from the kernel so far. A sender that is back on TCP may have sent urgent data, behind which the kernel does
// not count what is unread: looked at afterwards, since it goes back first.
bool taken_over_tcp(int fd, const Path& path, std::uint64_t& bytes) {
  return tcp_read(fd, bytes) &&
         (path.mode.load(std::memory_order_acquire) != kBack || tcp_read(fd, bytes, tcp_unread_past_mark));
}

}  // namespace

void put_receiving_right(Connection& connection) {
  const Path& path = connection.incoming().path;
  ReceiveState& state = connection.incoming().receiving;
  Receiver(connection.memory, connection.in()).recover();
  connection.own().request.fetch_and(~std::uint32_t{kTakingHeld});  // which is done under this lock
  std::uint64_t read = 0;
  if (const int fd = any_number_of(connection); fd < 0 || !taken_over_tcp(fd, path, read)) return;
  const std::uint64_t from = path.ring_from.load();
  switch (state.stage.load()) {
    case kReadTcp:
      state.tcp_taken.store(read);
      break;
    case kReadRest:
      state.tcp_left.store(read < from ? from - read : 0);
      break;
    case kReadRing:
    case kDiscard:  // TCP has carried bells alone since then
      if (const std::uint32_t drained = path.rung_before.load() + static_cast<std::uint32_t>(read - from);
          path.rung.load() - drained <= path.rung.load() - state.drained.load())
        state.drained.store(drained);
      break;
    default:
      break;
  }
}

bool has_ended(const Connection& connection, int fd, int patience_ms) {
  pollfd entry{fd, POLLRDHUP, 0};
  return kernel::libc().poll(&entry, 1, patience_ms) > 0 && (!connection.reads_no_more.load() || tcp_peer_ended(fd));
}

namespace {

// Who waits for an edge with bytes unread would need a bell behind them, once the ring is used.
bool needs_bells_behind_data(const Direction& out, std::uint64_t written) {
  return out.data.on_edges.load(std::memory_order_relaxed) != 0 && out.receiving.stage.load() == kReadTcp &&
         out.receiving.tcp_taken.load() < written;
}

}  // namespace

bool switch_to_ring(Connection& connection, int fd) {
  if (connection.peer().attached.load(std::memory_order_acquire) == 0 || connection.raw_senders.load() != 0 ||
      connection.own().raw_senders.load() != 0 || connection.own().finished.load() != 0 ||
      (connection.peer().request.load() & kTakeBack) != 0 || has_other_holders(connection))
    return false;
  if (connection.outgoing().receiving.stage.load(std::memory_order_acquire) != kReadTcp) return false;  // rest.hpp, 6
  Path& path = connection.outgoing().path;
  std::uint64_t written;
  if (!tcp_written(fd, written, connection.opened.load(std::memory_order_relaxed))) return false;
  if (needs_bells_behind_data(connection.outgoing(), written)) return false;
  const int one = 1;  // what MSG_MORE holds back goes out: the rest of it comes by the ring
  kernel::libc().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  path.ring_from.store(written);
  path.rung_before.store(path.rung.load());
  path.mode.store(kRing, std::memory_order_release);  // R3
  return true;
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

namespace {

// What TCP was to bring will not come: its sender has ended without having been able to send it again, or had left the
// ring before it knew that it should. Who sends again holds the lock from before it says kBack until the ring is empty.
bool ring_is_left_to_us(const Connection& connection, int fd, std::uint32_t mode) {
  const Direction& in = connection.incoming();
  if (mode != kBack) return has_ended(connection, fd, 0) && in.path.mode.load() != kBack;
  const std::uint32_t holder = in.path.sent_again.load() == 0 ? 0 : in.sending.lock.load(std::memory_order_acquire);
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

bool ring_comes_over_tcp(const Connection& connection) {
  return (connection.own().request.load() & kTakeBack) != 0 || connection.incoming().path.sent_again.load() != 0;
}

void read_ring_again(Connection& connection) {
  Direction& in = connection.incoming();
  connection.own().request.fetch_and(~std::uint32_t{kTakeBack});
  in.path.sent_again.store(0);
  in.receiving.stage.store(kReadRing);
  connection.resumed.fetch_add(1);
}

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
        if (!taken_over_tcp(fd, path, read)) read = state.tcp_taken.load();
        const std::uint64_t left = path.ring_from.load() - read;
        state.tcp_left.store(left > INT64_MAX ? 0 : left);  // never behind us, unless the peer lies
        state.stage.store(kReadRest);
        break;
      }
      case kReadRest:
        if (state.tcp_left.load() != 0) return stage;
        state.stage.store(ring_comes_over_tcp(connection) ? kDiscard : kReadRing);
        break;
      case kReadRing:
        if (mode != kBack) return stage;
        if (path.sent_again.load() == 0 && Receiver(connection.memory, connection.in()).has_data()) return stage;
        state.stage.store(kDiscard);
        break;
      case kDiscard:
        drain_doorbells(connection, fd);
        if (ring_is_left_to_us(connection, fd, mode)) {
          read_ring_again(connection);
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
        if (mode == kTcp) {
          if (!receive_as_before_rest(connection, fd)) return stage;
          break;
        }
        if (!sending_again_broke_off(connection, fd)) return stage;
        read_ring_again(connection);
        return kReadRing;
    }
  }
}

}  // namespace viaduct::sockets
