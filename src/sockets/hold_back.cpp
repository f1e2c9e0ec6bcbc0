#include "sockets/hold_back.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/fence.hpp"
#include "sockets/bell.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/kernel.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

namespace {

// A bell is on its way that the kernel keeps.
bool wind_clock(Connection& connection, int fd) {
  Path& path = connection.outgoing().path;
  if (find_connection(fd) != &connection || bell_would_lie_behind_data(connection) ||
      connection.outgoing().receiving.stage.load(std::memory_order_relaxed) != kReadRing)
    return false;
  constexpr char kBell = '!';
  const std::uint32_t rung = path.rung.fetch_add(1);
  note_tcp_use();
  if (kernel::libc().send(fd, &kBell, 1, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) != 1) {
    path.rung.fetch_sub(1);
    connection.look_at_kernel.store(true, std::memory_order_relaxed);
    return false;
  }
  path.held_bell.store(rung + 1);
  return true;
}

}  // namespace

bool hold_back(Connection& connection, int fd, Sender& ring, Pieces& pieces) {
  HeldBytes held(connection.memory, connection.out());
  if (pieces.done() || !held.have_room_for(pieces.bytes_left())) return false;
  const int kept = errno;
  const bool is_wound = held.count() != 0 || wind_clock(connection, fd);
  errno = kept;
  if (!is_wound) return false;
  ring.begin_slot();
  held.add(pieces);
  fence::full();  // H1
  if (held.are_due()) {
    mark_order(connection, ring);
    held.go(ring);
  }
  return true;
}

void stop_clock(Connection& connection, int fd) {
  const Path& path = connection.outgoing().path;
  const std::uint32_t rung = path.rung.load();
  if (path.held_bell.load() != rung || rung == connection.outgoing().receiving.drained.load()) return;
  const int kept = errno;
  const int at_once = 1;  // as it is set; but what is kept goes
  (void)kernel::libc().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  errno = kept;
}

void let_go_held(Connection& connection, int fd) {
  if (connection.outgoing().path.held.load(std::memory_order_relaxed) == 0) return;
  const Uncancelled here;
  {
    const SendingLock lock(connection.memory, connection.out());
    if (lock.is_refused() || connection.outgoing().path.mode.load() != kRing) return;
    Sender ring(connection.memory, connection.out());
    mark_order(connection, ring);
    HeldBytes(connection.memory, connection.out()).go(ring);
  }  // F1
  if (connection.outgoing().data.armed.load(std::memory_order_relaxed) != 0) wake_receiver(connection, fd);
  stop_clock(connection, fd);
}

namespace {

// A sender that takes its lock by a plain store is seen, or has seen what is asked, after that time. Most of those
// whose bell came too early send the rest meanwhile.
void wait_for_sender(const HeldBytes& held) {
  constexpr int kTurns = 30;
  const timespec nap{0, 100'000};
  for (int turn = 0; turn < kTurns && held.are_due(); ++turn) ::syscall(SYS_nanosleep, &nap, nullptr);
}

}  // namespace

void take_held(Connection& connection, bool has_ended) {
  HeldBytes held(connection.memory, connection.in());
  const auto may_go = [&] {
    return connection.incoming().path.mode.load() == kRing && (has_ended ? held.count() != 0 : held.are_due());
  };
  if (!may_go()) return;
  std::atomic<std::uint32_t>& request = connection.own().request;
  request.fetch_or(kTakingHeld);
  if (!has_ended) wait_for_sender(held);
  if (const SendingLock lock(connection.memory, connection.in()); !lock.is_refused() && may_go()) {
    Sender ring(connection.memory, connection.in());
    ring.sent_at(SentMark::of(moment_of_send(), false));
    held.go(ring);
  }
  request.fetch_and(~std::uint32_t{kTakingHeld});
}

void HeldBytes::go_over_tcp(int fd) {
  constexpr int kLookMs = 100;
  for (std::size_t left = count(), done = 0; left != 0;) {
    const ssize_t sent = kernel::libc().send(fd, bytes_ + done, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    pollfd entry{fd, POLLOUT, 0};
    if (sent > 0)
      left -= static_cast<std::size_t>(sent), done += static_cast<std::size_t>(sent);
    else if (sent < 0 && errno == EAGAIN)
      kernel::libc().poll(&entry, 1, kLookMs);
    else if (sent == 0 || errno != EINTR)
      break;
  }
  set(0);
}

}  // namespace viaduct::sockets
