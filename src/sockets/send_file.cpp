// sendfile() and splice(): what a file or a pipe holds, into the ring.
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sockets/cancellation.hpp"
#include "sockets/hand_back.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/retired.hpp"
#include "sockets/signal_handlers.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/transfer.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

constexpr int kStraightInARow = 32;  // chunks; then one goes the long way, which looks at everything

// How a file is read while others may want the lock: never waiting for a disk.
enum class Reading { at_hand, memory, not_at_all };

// Files in memory know no other way to be read; the kernel says so.
Reading other_reading(int file) {
  struct statfs system {};
  const bool memory = ::fstatfs(file, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
  return memory ? Reading::memory : Reading::not_at_all;
}

// Straight into the ring, in one copy: `read(iovec)` as readv does. 0 or less: there is no room, or nothing was read,
// or this is not the time for it.
template <class Read>
ssize_t straight(Connection& connection, int fd, std::size_t most, Read&& read) {
  const End& own = connection.own();
  const End& peer = connection.peer();
  Direction& out = connection.outgoing();
  ssize_t moved = 0;
  {
    const bool alone = connection.alone();
    const SendingLock lock(connection.memory, connection.out(), alone);
    std::uint32_t of_others = kHandBack | kEmptying;  // when it is time; and what the other direction is about
    if (!alone) of_others |= kTakingHeld;             // our lock keeps the peer out
    const std::uint32_t asked = (own.request.load() | peer.request.load()) & ~of_others;
    if ((asked | own.finished.load() | peer.closed.load()) != 0 || hand_back_is_due(connection)) return 0;
    if (!connection.sends_plainly()) return 0;
    Sender ring(connection.memory, connection.out());
    mark_order(connection, ring);
    moved = ring.write_by(most, [&](std::span<std::byte> chunk) { return read(iovec{chunk.data(), chunk.size()}); });
    if (moved <= 0) unmark_order(connection, ring.mark());
  }  // F1
  if (moved > 0 && out.data.armed.load(std::memory_order_relaxed) != 0) wake_receiver(connection, fd);
  return moved;
}

// From the file's pages, where they are at hand.
ssize_t straight_from_file(Connection& connection, int fd, int file, off_t at, std::size_t most, Reading reading) {
  return straight(connection, fd, most, [&](const iovec& piece) {
    return kernel::libc().preadv2(file, &piece, 1, at, reading == Reading::at_hand ? RWF_NOWAIT : 0);
  });
}

// By way of a buffer; waits for room, if the descriptor does.
ssize_t by_buffer(Connection& connection, int fd, int file, off_t at, std::size_t most, bool& cut_short) {
  char buffer[kUsualChunk];
  const ssize_t got = ::pread(file, buffer, std::min(most, sizeof buffer), at);
  if (got <= 0) return got;
  const iovec piece{buffer, static_cast<std::size_t>(got)};
  const ssize_t sent = stream_send(connection, fd, &piece, 1, 0);
  cut_short = sent < got;  // by a signal, its time limit, or the end: not to be waited for again
  return sent;
}

}  // namespace

ssize_t stream_send_file(Connection& connection, int fd, int file, off_t* offset, std::size_t count) {
  const AtMemory here;
  // What is cut here the kernel would have taken at once, before the peer's answer.
  if (count > kUsualChunk) {
    if (tells_reset(connection)) return -1;
    const Route route = next_route(connection, fd);
    if (route == Route::tcp) return tells_reset(connection) ? -1 : kernel::libc().sendfile(fd, file, offset, count);
    if (route == Route::tcp_counted) Counted(connection.own().raw_senders, Counted::Already{}).end();  // counted anew
  }
  off_t at = offset != nullptr ? *offset : ::lseek(file, 0, SEEK_CUR);
  if (at < 0) return kernel::libc().sendfile(fd, file, offset, count);  // which refuses it
  count = std::min(count, kMostAtOnce);
  std::size_t total = 0;
  const int kept = errno;
  const std::uint32_t generation = connection.generation.load();
  Reading reading = Reading::at_hand;
  bool cut_short = false;
  for (int in_a_row = kStraightInARow; total < count && !cut_short && connection.generation.load() == generation;) {
    const bool in_one_copy = in_a_row < kStraightInARow && reading != Reading::not_at_all;
    ssize_t moved = in_one_copy ? straight_from_file(connection, fd, file, at, count - total, reading) : 0;
    if (moved < 0 && errno == EOPNOTSUPP && reading == Reading::at_hand) {
      reading = other_reading(file);
      continue;
    }
    ++in_a_row;
    if (moved <= 0) {
      moved = by_buffer(connection, fd, file, at, count - total, cut_short);
      in_a_row = 0;
    }
    if (moved < 0 && total == 0) return -1;
    if (moved <= 0) break;
    at += moved;
    total += static_cast<std::size_t>(moved);
  }
  errno = kept;
  // The file's position moves by what was really sent.
  if (offset != nullptr)
    *offset = at;
  else
    ::lseek(file, at, SEEK_SET);
  return static_cast<ssize_t>(total);
}

namespace {

enum class Pipe { has_bytes, is_empty, has_ended, interrupted };

Pipe look_into(int pipe, bool may_wait) {
  pollfd bytes{pipe, POLLIN, 0};
  const int found = [&] {
    const Cancellable sleep;
    return kernel::libc().poll(&bytes, 1, may_wait ? -1 : 0);
  }();
  if (found < 0) return Pipe::interrupted;
  if (found == 0) return Pipe::is_empty;
  return (bytes.revents & POLLIN) != 0 ? Pipe::has_bytes : Pipe::has_ended;
}

// What another reader has taken meanwhile is not waited for, where the kernel can tell.
ssize_t straight_from_pipe(Connection& connection, int fd, int pipe, std::size_t most) {
  return straight(connection, fd, most, [&](const iovec& piece) {
    constexpr off_t kNowhere = -1;
    const ssize_t got = kernel::libc().preadv2(pipe, &piece, 1, kNowhere, RWF_NOWAIT);
    return got < 0 && errno == EOPNOTSUPP ? kernel::libc().readv(pipe, &piece, 1) : got;
  });
}

}  // namespace

ssize_t stream_splice(Connection& connection, int fd, int pipe, std::size_t count, unsigned flags) {
  const Uncancelled here;
  const AtMemory at_ring;
  const int of_pipe = kernel::libc().fcntl(pipe, F_GETFL);
  const bool waits_for_pipe = (flags & SPLICE_F_NONBLOCK) == 0 && (of_pipe & O_NONBLOCK) == 0;
  const bool waits_for_room = !is_nonblocking(connection, fd);
  const std::uint32_t generation = connection.generation.load();
  SendWait wait(connection, fd);
  std::size_t total = 0;
  const auto result = [&](ssize_t otherwise) { return total != 0 ? static_cast<ssize_t>(total) : otherwise; };
  const auto call = [&] {
    const Cancellable sleep;
    return kernel::libc().splice(pipe, nullptr, fd, nullptr, count, flags);
  };
  // There is room, but no memory for it.
  int in_vain = 0;
  const auto note_in_vain = [&] {
    constexpr int kEnough = 16;
    if (++in_vain == kEnough) hand_back_sending(connection, fd, Why::no_memory);
  };
  while (total < count && connection.generation.load() == generation) {
    let_go_held(connection, fd);
    const Pipe has = look_into(pipe, total == 0 && waits_for_pipe);
    if (has == Pipe::has_ended) return result(0);
    if (has == Pipe::is_empty) return errno = EAGAIN, result(-1);
    if (has == Pipe::interrupted && total == 0 && signal_handlers() == Handlers::restart) continue;
    if (has == Pipe::interrupted || (total == 0 && tells_reset(connection))) return result(-1);
    if (const Route route = next_route(connection, fd); route == Route::tcp_counted) {
      const Counted raw(connection.own().raw_senders, Counted::Already{});
      return result(total == 0 ? call() : 0);
    } else if (route == Route::tcp) {
      return total != 0 ? result(0) : tells_reset(connection) ? -1 : call();
    }
    const ssize_t moved = straight_from_pipe(connection, fd, pipe, count - total);
    if (moved > 0)
      total += static_cast<std::size_t>(moved), in_vain = 0;
    else if (moved < 0 && errno != EAGAIN)
      return result(-1);
    else if (moved == 0 && !waits_for_room && grow_ring(connection))
      in_vain = 0;
    else if (moved == 0 && ring_writable(connection, Sender::Growth::not_counted))
      note_in_vain();
    else if (moved == 0 && !goes_on_when_full(connection, fd, wait, waits_for_room, total != 0))
      return result(-1);
  }
  return result(0);
}

}  // namespace viaduct::sockets
