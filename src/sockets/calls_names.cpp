// libc's own second names, which programs that were linked long ago, and some libraries, call by.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdarg>

#include "sockets/export.hpp"

extern "C" {

VIADUCT_EXPORT int __close(int fd) {
  return ::close(fd);
}
VIADUCT_EXPORT int __connect(int fd, const sockaddr* address, socklen_t length) {
  return ::connect(fd, address, length);
}
VIADUCT_EXPORT int __dup2(int from, int to) {
  return ::dup2(from, to);
}
VIADUCT_EXPORT int __fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return ::fcntl(fd, command, argument);
}
VIADUCT_EXPORT FILE* _IO_fdopen(int fd, const char* mode) {
  return ::fdopen(fd, mode);
}
VIADUCT_EXPORT int __poll(pollfd* entries, nfds_t count, int timeout) {
  return ::poll(entries, count, timeout);
}
VIADUCT_EXPORT ssize_t __read(int fd, void* buffer, size_t size) {
  return ::read(fd, buffer, size);
}
VIADUCT_EXPORT int __select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* limit) {
  return ::select(count, in, out, other, limit);
}
VIADUCT_EXPORT ssize_t __send(int fd, const void* buffer, size_t size, int flags) {
  return ::send(fd, buffer, size, flags);
}
VIADUCT_EXPORT ssize_t __write(int fd, const void* buffer, size_t size) {
  return ::write(fd, buffer, size);
}

}  // extern "C"
