// Options and flags: the kernel keeps them, this library looks on and answers for those it had to set otherwise.
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/export.hpp"
#include "sockets/hold_back.hpp"
#include "sockets/kernel.hpp"
#include "sockets/path.hpp"
#include "sockets/table.hpp"
#include "sockets/tcp_position.hpp"
#include "sockets/transfer.hpp"
#include "sockets/user_memory.hpp"

namespace viaduct::sockets {

using kernel::libc;

namespace {

std::atomic<int>* kept_option(Connection& connection, int level, int option) {
  if (level == IPPROTO_TCP && option == TCP_NODELAY) return &connection.nodelay;
  if (level == IPPROTO_TCP && option == TCP_CORK) return &connection.cork;
  if (level == SOL_SOCKET && option == SO_RCVLOWAT) return &connection.low_water;
  return nullptr;
}

constexpr int kTcpZerocopyReceive = 35;  // TCP_ZEROCOPY_RECEIVE, of <linux/tcp.h>: maps the kernel's own buffers

bool is_kernel_feature(int level, int option) {
  if (level == IPPROTO_TCP) return option == TCP_ULP || option == TCP_REPAIR;
  if (level != SOL_SOCKET) return false;
  switch (option) {
    case SO_TIMESTAMP_OLD:
    case SO_TIMESTAMP_NEW:
    case SO_TIMESTAMPNS_OLD:
    case SO_TIMESTAMPNS_NEW:
    case SO_TIMESTAMPING_OLD:
    case SO_TIMESTAMPING_NEW:
    case SO_PEEK_OFF:
      return true;
    default:
      return false;
  }
}

// One that the kernel has taken: `value` is there.
void note_time_limit(Connection& connection, int option, const void* value) {
  const bool of_receiving = option == SO_RCVTIMEO_OLD || option == SO_RCVTIMEO_NEW;
  if (!of_receiving && option != SO_SNDTIMEO_OLD && option != SO_SNDTIMEO_NEW) return;
  timeval limit;
  static_assert(sizeof limit.tv_sec == 8);  // so that both are the same
  std::memcpy(&limit, value, sizeof limit);
  (of_receiving ? connection.no_time_to_receive : connection.no_time_to_send).store(limit.tv_sec < 0);
}

// Bytes in the peer's hands beyond what a receive buffer would hold by now: those that TCP would not have delivered.
int undelivered(const Connection& connection) {
  constexpr std::size_t kReceiveBuffer = std::size_t{256} << 10;
  const std::size_t ready = Receiver(connection.memory, connection.out()).bytes_ready();
  const std::size_t held = HeldBytes(connection.memory, connection.out()).count();
  return static_cast<int>((ready > kReceiveBuffer ? ready - kReceiveBuffer : 0) + held);
}

int duplicate(int fd, int command, int lowest) {
  const int copy = with_room([=] { return libc().fcntl(fd, command, lowest); });
  if (copy < 0 || in_borrowed_memory()) return copy;
  if (Connection* const connection = find_connection(fd))
    adopt_duplicate(*connection, copy);
  else if (is_epoll_set(fd))
    duplicate_set(fd, copy);
  return copy;
}

int any_fcntl(int fd, int command, void* argument) {
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
    return duplicate(fd, command, static_cast<int>(reinterpret_cast<std::intptr_t>(argument)));
  if (command == F_SETFL && (reinterpret_cast<std::intptr_t>(argument) & O_ASYNC) != 0) leave_to_kernel(fd);
  const int result = libc().fcntl(fd, command, argument);
  if (command == F_SETFL && result == 0)
    if (Connection* const connection = find_connection(fd))
      connection->nonblocking.store((reinterpret_cast<std::intptr_t>(argument) & O_NONBLOCK) != 0);
  return result;
}

}  // namespace

extern "C" {

VIADUCT_EXPORT int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return any_fcntl(fd, command, argument);
}

VIADUCT_EXPORT int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return any_fcntl(fd, command, argument);
}

VIADUCT_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  Connection* const connection = find_connection(fd);
  if (connection != nullptr && request == FIOASYNC) leave_to_kernel(fd);
  const int result = libc().ioctl(fd, request, argument);
  if (connection == nullptr || result != 0) return result;
  if (request == FIONBIO) connection->nonblocking.store(*static_cast<int*>(argument) != 0);
  if (!connection->attached()) return result;
  const Uncancelled here(Uncancelled::Sleeps::too);
  auto* const number = static_cast<int*>(argument);
  if (request == SIOCINQ) *number = bytes_unread(*connection, fd);  // FIONREAD: the same number
  if (request == SIOCOUTQ && sends_on_ring(*connection)) *number = undelivered(*connection);
  if (request == SIOCATMARK && ring_readable(*connection, fd)) *number = 0;  // TCP's mark is behind what the ring holds
  return result;
}

VIADUCT_EXPORT int sockatmark(int fd) noexcept {
  int at = 0;
  return ioctl(fd, SIOCATMARK, &at) < 0 ? -1 : at;
}

VIADUCT_EXPORT int setsockopt(int fd, int level, int option, const void* value, socklen_t size) noexcept {
  Connection* const connection = find_connection(fd);
  if (connection == nullptr) return libc().setsockopt(fd, level, option, value, size);
  if (is_kernel_feature(level, option)) leave_to_kernel(fd);
  std::atomic<int>* const kept = kept_option(*connection, level, option);
  if (kept == nullptr || size < sizeof(int) || !is_readable(static_cast<const int*>(value))) {
    const int result = libc().setsockopt(fd, level, option, value, size);
    if (level == SOL_SOCKET && (option == SO_RCVTIMEO_OLD || option == SO_RCVTIMEO_NEW))
      connection->waits_for_ever.store(false);
    if (result == 0 && level == SOL_SOCKET) note_time_limit(*connection, option, value);
    if (result == 0 && level == IPPROTO_TCP && option == TCP_INQ)
      connection->tells_unread.store(*static_cast<const int*>(value) != 0);
    return result;
  }
  int number;
  std::memcpy(&number, value, sizeof number);
  const bool low_water = kept == &connection->low_water;
  // From the moment the memory is there: what was set between then and the first byte in the ring would stay.
  const auto back = [connection, low_water] {
    return low_water ? connection->incoming().receiving.stage.load(std::memory_order_relaxed) == kReadBack
                     : connection->outgoing().path.mode.load(std::memory_order_relaxed) == kBack;
  };
  const bool on_ring = connection->attached() && !back();
  // The doorbell is a single byte that must go out and be seen at once: the kernel's socket stays as it is.
  if (!on_ring) {
    const int result = libc().setsockopt(fd, level, option, value, size);
    if (result != 0) return result;
  }
  kept->store(low_water ? (number > 0 ? number : 1) : number != 0);
  if (on_ring && kept == (number == 0 ? &connection->cork : &connection->nodelay)) let_go_held(*connection, fd);
  return 0;
}

VIADUCT_EXPORT int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  Connection* const connection = find_connection(fd);
  const bool attached = connection != nullptr && connection->attached();
  if (attached && level == IPPROTO_TCP && option == kTcpZerocopyReceive) leave_to_kernel(fd);
  const bool of_errors = connection != nullptr && level == SOL_SOCKET && option == SO_ERROR;
  if (attached && of_errors) (void)find_reset(*connection, fd);
  const int result = libc().getsockopt(fd, level, option, value, size);
  if (result != 0 || connection == nullptr) return result;
  // As many bytes of the number as there is room for, which the kernel has looked at.
  const auto say = [&](int number) { std::memcpy(value, &number, std::min<std::size_t>(*size, sizeof number)); };
  if (of_errors) {
    const int told = connection->pending_error.exchange(0);
    if (told == ECONNRESET) connection->reset_told.store(true);
    if (told != 0) say(told);
  } else if (const std::atomic<int>* const kept = kept_option(*connection, level, option);
             attached && kept != nullptr) {
    say(kept->load());
  }
  return result;
}

}  // extern "C"

}  // namespace viaduct::sockets
