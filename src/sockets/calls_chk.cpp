// What _FORTIFY_SOURCE makes of calls whose buffer's size the compiler knows.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sockets/export.hpp"

namespace viaduct::sockets {

extern "C" {

[[noreturn]] void __chk_fail(void);

VIADUCT_EXPORT ssize_t __read_chk(int fd, void* buffer, size_t size, size_t room) {
  if (size > room) __chk_fail();
  return read(fd, buffer, size);
}
VIADUCT_EXPORT ssize_t __recv_chk(int fd, void* buffer, size_t size, size_t room, int flags) {
  if (size > room) __chk_fail();
  return recv(fd, buffer, size, flags);
}
VIADUCT_EXPORT ssize_t __recvfrom_chk(int fd, void* buffer, size_t size, size_t room, int flags, sockaddr* from,
                                      socklen_t* length) {
  if (size > room) __chk_fail();
  return recvfrom(fd, buffer, size, flags, from, length);
}

VIADUCT_EXPORT int __poll_chk(pollfd* entries, nfds_t count, int timeout, size_t room) {
  if (room / sizeof(pollfd) < count) __chk_fail();
  return poll(entries, count, timeout);
}
VIADUCT_EXPORT int __ppoll_chk(pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* mask,
                               size_t room) {
  if (room / sizeof(pollfd) < count) __chk_fail();
  return ppoll(entries, count, timeout, mask);
}

}  // extern "C"

}  // namespace viaduct::sockets
