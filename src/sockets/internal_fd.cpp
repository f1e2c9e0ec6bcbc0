#include "sockets/internal_fd.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "sockets/kernel.hpp"

namespace viaduct::sockets {

constinit FdMap<Connection> internal_fds;

namespace {

// The upper half of what the process may have, where programs that take the lowest free number hardly come.
int lowest() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 2, 16, FdMap<Connection>::kMost / 2));
}

// A quarter of all there are is for us, at most.
int high(int first) {
  return first + std::max(first / 2, 8);
}

std::atomic<int> known_high{0};
std::atomic<int> counts[2];  // of the process, and of its connections

std::atomic<int>& count_for(const Connection* owner) {
  return counts[owner == of_process() ? 0 : 1];
}

}  // namespace

// Not one of them, and never looked into.
Connection* of_process() {
  static constinit char mark = 0;
  return reinterpret_cast<Connection*>(&mark);
}

bool is_high_number(int fd) {
  if (fd < known_high.load(std::memory_order_relaxed)) [[likely]]
    return false;
  known_high.store(high(lowest()), std::memory_order_relaxed);  // the limit may have been raised
  return fd >= known_high.load(std::memory_order_relaxed);
}

int make_internal(int fd, Need need, Connection* owner) {
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
  if (moved >= 0 && !internal_fds.put(moved, owner)) {
    kernel::libc().close(moved);
    return -1;
  }
  if (moved >= 0) count_for(owner).fetch_add(1, std::memory_order_relaxed);
  return moved;
}

bool forget_internal(int fd) {
  const Connection* const owner = internal_fds.take(fd);
  if (owner == nullptr) return false;
  count_for(owner).fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void close_internal(int fd) {
  if (forget_internal(fd)) kernel::libc().close(fd);
}

int internal_count_of_connections() {
  return counts[1].load(std::memory_order_relaxed);
}

int internal_count() {
  return counts[0].load(std::memory_order_relaxed) + internal_count_of_connections();
}

}  // namespace viaduct::sockets
