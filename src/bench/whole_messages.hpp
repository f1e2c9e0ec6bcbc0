// Messages of a fixed size over a pipe to a process of the benchmark's own: whole, or the other side has gone.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace viaduct::bench {

inline bool read_whole(int fd, void* to, std::size_t size) {
  ssize_t n;
  do n = ::read(fd, to, size);
  while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(size);
}

inline bool write_whole(int fd, const void* from, std::size_t size) {
  ssize_t n;
  do n = ::write(fd, from, size);
  while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(size);
}

}  // namespace viaduct::bench
