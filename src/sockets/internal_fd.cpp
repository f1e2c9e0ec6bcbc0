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

// A quarter of all there are is for us, at most.
int high(int first) {
  return first + std::max(first / 2, 8);
}

std::atomic<int> known_high{0};
std::atomic<int> count{0};

}  // namespace

bool is_high_number(int fd) {
  if (fd < known_high.load(std::memory_order_relaxed)) [[likely]]
    return false;
  known_high.store(high(lowest()), std::memory_order_relaxed);  // the limit may have been raised
  return fd >= known_high.load(std::memory_order_relaxed);
}

int make_internal(int fd, Need need) {
  const int first = lowest();
  int moved = kernel::libc().fcntl(fd, F_DUPFD_CLOEXEC, first);
  kernel::libc().close(fd);
  // What is needed now goes soon, or when the program wants it.
  const int end = high(first);
  if (moved >= (need == Need::now ? end + (end - first) * 3 / 4 : end - (end - first) / 8)) {
    kernel::libc().close(moved);
    errno = EMFILE;
    moved = -1;
  }
  if (moved >= 0 && !internal_fds.put(moved, &mark)) {
    kernel::libc().close(moved);
    return -1;
  }
  if (moved >= 0) count.fetch_add(1, std::memory_order_relaxed);
  return moved;
}

bool forget_internal(int fd) {
  if (internal_fds.take(fd) == nullptr) return false;
  count.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void close_internal(int fd) {
  if (forget_internal(fd)) kernel::libc().close(fd);
}

int internal_count() {
  return count.load(std::memory_order_relaxed);
}

}  // namespace viaduct::sockets
