// Bytes between a connection and a file or a pipe: sendfile, splice.
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/kernel_or_ring.hpp"
#include "sockets/table.hpp"
#include "sockets/transfer.hpp"

namespace viaduct::sockets {

namespace {

using kernel::libc;

bool is_pipe(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

// `access`: O_RDONLY or O_WRONLY.
bool may_be_used_to(int fd, int access) {
  const int opened = libc().fcntl(fd, F_GETFL) & O_ACCMODE;
  return opened == access || opened == O_RDWR;
}

// Looked at, written to the pipe, and only then taken: a pipe that takes less loses nothing.
ssize_t splice_some(Connection& connection, int in, int pipe, std::size_t size, bool may_wait) {
  char buffer[4096];  // what a pipe with room at all takes without blocking
  const auto look = [&](std::size_t bytes, int flags) {
    const iovec piece{buffer, bytes};
    return stream_receive(connection, in, &piece, 1, flags);
  };
  const ssize_t there = look(std::min(size, sizeof buffer), MSG_PEEK);
  if (there <= 0) return there;
  pollfd room{pipe, POLLOUT, 0};
  if (!may_wait && libc().poll(&room, 1, 0) == 0) return errno = EAGAIN, -1;
  const ssize_t moved = libc().write(pipe, buffer, static_cast<std::size_t>(there));
  if (moved > 0) look(static_cast<std::size_t>(moved), MSG_TRUNC);
  return moved;
}

// All that is there, but only for the first bytes it waits.
ssize_t splice_out(Connection& connection, int in, int pipe, std::size_t size, unsigned flags) {
  ssize_t moved = splice_some(connection, in, pipe, size, (flags & SPLICE_F_NONBLOCK) == 0);
  if (moved <= 0) return moved;
  const int kept = errno;
  auto total = static_cast<std::size_t>(moved);
  while (moved > 0 && total < size && bytes_unread(connection, in) > 0) {
    moved = splice_some(connection, in, pipe, size - total, false);
    if (moved > 0) total += static_cast<std::size_t>(moved);
  }
  errno = kept;
  return static_cast<ssize_t>(total);
}

}  // namespace

extern "C" {

VIADUCT_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t count) {
  if (Connection* const from = find_connection(in)) make_plain(*from, in, Why::kernel_feature);
  Connection* const connection = find_connection(out);
  if (connection == nullptr) return libc().sendfile(out, in, offset, count);
  return sending_parts(
      *connection, out, count, [&](std::size_t, std::size_t part) { return libc().sendfile(out, in, offset, part); },
      [&](std::size_t at) {
        return keeping_errno([&] { return stream_send_file(*connection, out, in, offset, count - at); });
      });
}

VIADUCT_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) {
  return sendfile(out, in, offset, count);
}

// What the kernel moves as pages is copied here; what it refuses, it refuses before it moves anything.
VIADUCT_EXPORT ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t size, unsigned flags) {
  constexpr unsigned kKnown = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
  const auto call = [&] { return libc().splice(in, in_offset, out, out_offset, size, flags); };
  Connection* const to = find_connection(out);
  Connection* const from = find_connection(in);
  if (to == nullptr && from == nullptr) return call();
  if (in_offset != nullptr || out_offset != nullptr || size == 0 || (flags & ~kKnown) != 0) return call();
  if (to != nullptr && is_pipe(in)) {
    if (!may_be_used_to(in, O_RDONLY)) return call();
    return sending(
        *to, out, call,
        [&] { return keeping_errno([&] { return stream_splice(*to, out, in, std::min(size, kMostAtOnce), flags); }); },
        size);
  }
  if (from != nullptr && from->attached() && is_pipe(out))
    return may_be_used_to(out, O_WRONLY) ? splice_out(*from, in, out, size, flags) : call();
  if (from != nullptr && from->life.load() != Life::plain) make_plain(*from, in, Why::handed_back);
  return call();
}

}  // extern "C"

}  // namespace viaduct::sockets
