#include "base/fd.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace viaduct {

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<FdPair> make_socket_pair(int type) {
  int fds[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) return Error::from_errno("make a socket pair");
  return FdPair{Fd(fds[0]), Fd(fds[1])};
}

Result<FdPair> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Error::from_errno("make a pipe");
  return FdPair{Fd(fds[0]), Fd(fds[1])};
}

}  // namespace viaduct
