#include "sockets/ring_over_tcp.hpp"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/tcp_position.hpp"

#ifndef SO_BUF_LOCK  // the kernel has it since 5.15
#define SO_BUF_LOCK 72
#endif

namespace viaduct::sockets {

RoomySendBuffer::~RoomySendBuffer() {
  if (size_ != 0) {
    resize(size_ / 2);                      // the kernel doubles what it is told
    set(SOL_SOCKET, SO_BUF_LOCK, locked_);  // where nobody had set it, it grows by itself again
  }
  if (unsent_) set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, *unsent_);
}

bool RoomySendBuffer::grow() {
  constexpr int kAnybodyMay = 2 * 212992;  // net.core.wmem_max, doubled: above it SO_SNDBUF might make it smaller
  constexpr int kNoLimit = -1;
  if (std::exchange(grown_, true)) return false;
  const int size = get(SOL_SOCKET, SO_SNDBUF), unsent = get(IPPROTO_TCP, TCP_NOTSENT_LOWAT);
  if (set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNoLimit)) unsent_ = unsent;
  const int much = static_cast<int>(kMostBulkBytes);
  locked_ = get(SOL_SOCKET, SO_BUF_LOCK);
  if (size < 2 * much &&
      (set(SOL_SOCKET, SO_SNDBUFFORCE, much) || (size < kAnybodyMay && set(SOL_SOCKET, SO_SNDBUF, much))))
    size_ = size;
  return true;
}

bool RoomySendBuffer::has_room_for(std::size_t bytes) const {
  constexpr std::size_t kOverhead = 4;  // a quarter, and some more
  constexpr std::size_t kSpare = 16384;
  std::uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t size = sizeof memory;
  if (kernel::libc().getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, memory, &size) != 0) return false;
  const std::uint32_t all = memory[SK_MEMINFO_SNDBUF], used = memory[SK_MEMINFO_WMEM_QUEUED];
  return used < all && bytes + bytes / kOverhead + kSpare < all - used;
}

int RoomySendBuffer::get(int level, int option) const {
  int value = 0;
  socklen_t size = sizeof value;
  return kernel::libc().getsockopt(fd_, level, option, &value, &size) == 0 ? value : 0;
}

bool RoomySendBuffer::set(int level, int option, int value) const {
  return kernel::libc().setsockopt(fd_, level, option, &value, sizeof value) == 0;
}

void RoomySendBuffer::resize(int bytes) const {
  if (!set(SOL_SOCKET, SO_SNDBUFFORCE, bytes)) set(SOL_SOCKET, SO_SNDBUF, bytes);
}

void leave_ring(Direction& direction, int fd, Opened opened) {
  Path& path = direction.path;
  std::uint64_t written = 0;
  (void)tcp_written(fd, written, opened);
  if (path.mode.load() == kTcp) path.ring_from.store(written);
  path.tcp_from.store(written);
  path.mode.store(kBack, std::memory_order_release);  // R3
}

bool send_ring_over_tcp(const StreamMemory& memory, int direction, int fd, bool may_wait) {
  constexpr int kLookMs = 100;
  const auto& libc = kernel::libc();
  Receiver unread(memory, direction);
  RoomySendBuffer socket(fd);
  char buffer[4096];
  const auto read = [&](std::size_t most, Receiver::Take take) {
    const iovec piece{buffer, most};
    Pieces pieces(&piece, 1);
    return unread.read(pieces, take);
  };
  // No more than the ring can hold: a peer that writes into its own end keeps nobody here.
  for (std::size_t left = memory.bulk_bytes + kRingBytes; left != 0;) {
    const std::size_t size = read(std::min(left, sizeof buffer), Receiver::Take::peek);
    if (size == 0) break;
    const ssize_t sent = libc.send(fd, buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      left -= static_cast<std::size_t>(sent);
      (void)read(static_cast<std::size_t>(sent), Receiver::Take::discard);
    } else if (errno == EAGAIN) {
      const bool more = socket.grow();
      if (!more && !may_wait) return false;
      pollfd entry{fd, POLLOUT, 0};
      if (!more) libc.poll(&entry, 1, kLookMs);
    } else if (errno != EINTR) {
      break;
    }
  }
  return true;
}

void send_unread_over_tcp(const StreamMemory& memory, int direction, int fd, Opened opened) {
  Path& path = memory.direction(direction).path;
  const bool used = path.mode.load() == kRing;
  if (used) path.sent_again.store(1);
  leave_ring(memory.direction(direction), fd, opened);
  if (used) send_ring_over_tcp(memory, direction, fd, true);
  HeldBytes(memory, direction).go_over_tcp(fd);
}

}  // namespace viaduct::sockets
