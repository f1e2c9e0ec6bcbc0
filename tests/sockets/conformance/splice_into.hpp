// Bytes that a connection gets from a pipe.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "sockets/conformance/harness.hpp"

namespace conformance {

inline ssize_t splice_into(int fd, std::string_view bytes, unsigned flags = 0) {
  int pipe[2];
  if (::pipe(pipe) != 0 || ::write(pipe[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    note("no pipe");
  const ssize_t moved = ::splice(pipe[0], nullptr, fd, nullptr, bytes.size(), flags);
  const int error = errno;
  for (const int end : pipe) ::close(end);
  errno = error;
  return moved;
}

}  // namespace conformance
