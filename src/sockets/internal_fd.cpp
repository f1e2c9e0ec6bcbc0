#include "sockets/internal_fd.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "sockets/kernel.hpp"

namespace viaduct::sockets {

constinit FdMap<char> internal_fds;

namespace {

char mark;

// The upper half of what the process may have, where programs that take the lowest free number hardly come.
int lowest() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 2, 16, FdMap<char>::kMost / 2));
}

}  // namespace

int make_internal(int fd, Need need) {
  const int first = lowest();
  int moved = kernel::libc().fcntl(fd, F_DUPFD_CLOEXEC, first);
  kernel::libc().close(fd);
  // A quarter of all there are is for us: a program that needs the rest must find it.
  const int most = std::max(first / 2, 8);
  if (moved >= first + (need == Need::now ? most : most - most / 8)) {
    kernel::libc().close(moved);
    errno = EMFILE;
    moved = -1;
  }
  if (moved >= 0 && !internal_fds.put(moved, &mark)) {
    kernel::libc().close(moved);
    return -1;
  }
  return moved;
}

void close_internal(int fd) {
  if (internal_fds.take(fd) != nullptr) kernel::libc().close(fd);
}

}  // namespace viaduct::sockets
