// sendfile(): a file into the ring.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sockets/kernel.hpp"
#include "sockets/retired.hpp"
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

// From the file's pages into the ring, in one copy. 0 or less: there is no room, or the pages are not at hand, or this
// is not the time for it.
ssize_t straight(Connection& connection, int fd, int file, off_t at, std::size_t most, Reading reading) {
  const End& own = connection.own();
  const End& peer = connection.peer();
  Direction& out = connection.outgoing();
  ssize_t moved = 0;
  {
    const SendingLock lock(connection.memory, connection.out(), connection.alone());
    if ((own.request.load() | own.finished.load() | peer.request.load() | peer.closed.load()) != 0) return 0;
    if (out.path.mode.load(std::memory_order_relaxed) != kRing) return 0;
    Sender ring(connection.memory, connection.out());
    mark_order(connection, ring);
    moved = ring.write_by(most, [&](std::span<std::byte> chunk) {
      const iovec piece{chunk.data(), chunk.size()};
      return kernel::libc().preadv2(file, &piece, 1, at, reading == Reading::at_hand ? RWF_NOWAIT : 0);
    });
  }  // F1
  if (moved > 0 && out.data.armed.load(std::memory_order_relaxed) != 0) wake_receiver(connection, fd);
  return moved;
}

// By way of a buffer; waits for room, if the descriptor does.
ssize_t by_buffer(Connection& connection, int fd, int file, off_t at, std::size_t most, bool& cut_short) {
  char buffer[kLargestChunk];
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
  off_t at = offset != nullptr ? *offset : ::lseek(file, 0, SEEK_CUR);
  if (at < 0) {
    if (errno == ESPIPE) errno = EINVAL;  // as the kernel has it
    return -1;
  }
  count = std::min(count, kMostAtOnce);
  std::size_t total = 0;
  const int kept = errno;
  const std::uint32_t generation = connection.generation.load();
  Reading reading = Reading::at_hand;
  bool cut_short = false;
  for (int in_a_row = kStraightInARow; total < count && !cut_short && connection.generation.load() == generation;) {
    const bool in_one_copy = in_a_row < kStraightInARow && reading != Reading::not_at_all;
    ssize_t moved = in_one_copy ? straight(connection, fd, file, at, count - total, reading) : 0;
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

}  // namespace viaduct::sockets
