// An owned file descriptor, and passing descriptors over a UNIX socket.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace viaduct {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct FdPair {
  Fd first;
  Fd second;
};
Result<FdPair> make_socket_pair(int type);  // AF_UNIX, close-on-exec
Result<FdPair> make_pipe();                 // first reads, second writes; close-on-exec

// One message of `bytes` with up to 16 descriptors. Receiving takes exactly one such message; descriptors arrive
// close-on-exec, and any the caller did not ask for are closed.
struct FdMessage {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};
Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds);
Result<FdMessage> receive_with_fds(int socket, std::size_t max_bytes, std::size_t max_fds);

}  // namespace viaduct
