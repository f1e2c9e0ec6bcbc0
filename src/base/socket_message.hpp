// Messages over UNIX sockets, with descriptors and credentials attached: the one place that takes apart what the kernel
// attached to them.
//
// The sender is not trusted. Descriptors arrive close-on-exec and owned, those that nobody asked for are closed, and
// those that the kernel could not install are noticed.
//
// Thread safety: functions from any thread; a MessageReader by one at a time.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct {

constexpr std::size_t kMostPassedFds = 16;  // with one message

// What came with some bytes.
struct Attached {
  std::vector<Fd> fds;
  std::optional<ucred> sender;  // while the receiving socket has SO_PASSCRED
  bool fds_dropped = false;     // by the kernel: the table was full, or there were more than kMostPassedFds
  bool bytes_dropped = false;   // of a packet that is longer than the buffer
  Fd last_fd() { return fds.empty() ? Fd() : std::move(fds.back()); }
};

// One recvmsg, which returns as that does: bytes, 0 at the end, or -1 and errno.
ssize_t receive_part(int socket, std::span<std::byte> into, int flags, Attached& with);

enum class Credentials { none, ours };
// One sendmsg without SIGPIPE, which returns as that does.
ssize_t send_part(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags,
                  Credentials credentials = Credentials::none);

// A whole message at once. Receiving takes one such message, waits for it where the socket does, and closes descriptors
// above `max_fds`.
struct FdMessage {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};
Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds);
Result<FdMessage> receive_with_fds(int socket, std::size_t max_bytes, std::size_t max_fds);

// Reads messages of a known size from a stream, in as many parts as they come, without waiting.
class MessageReader {
 public:
  enum class Step {
    pending,  // the rest has not come yet
    whole,    // a message is in the buffer, and what came with it can be taken
    closed,   // the peer has gone
    failed,   // errno says why
  };
  // With the same buffer until the message is whole; bytes behind it stay in the socket.
  Step read(int socket, std::span<std::byte> message);

  // With the last whole message. Of several descriptors the last.
  Fd take_fd() { return std::move(fd_); }
  const std::optional<ucred>& sender() const { return sender_; }

 private:
  std::size_t have_ = 0;
  Fd fd_;
  std::optional<ucred> sender_;
};

}  // namespace viaduct
