// An owned file descriptor.
#pragma once

#include <utility>

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

}  // namespace viaduct
