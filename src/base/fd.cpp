#include "base/fd.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

namespace viaduct {

namespace {
constexpr std::size_t kMostFds = 16;
}

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

Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.empty() || fds.size() > kMostFds) return Error(EINVAL, "send descriptors: empty message or too many");
  iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return Error::from_errno("send descriptors");
  if (static_cast<std::size_t>(sent) != bytes.size()) return Error(EIO, "send descriptors: short write");
  return {};
}

Result<FdMessage> receive_with_fds(int socket, std::size_t max_bytes, std::size_t max_fds) {
  FdMessage result;
  result.bytes.resize(max_bytes);
  iovec io{result.bytes.data(), max_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  if (received < 0) return Error::from_errno("receive descriptors");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      Fd owned(fd);
      if (result.fds.size() < max_fds) result.fds.push_back(std::move(owned));
    }
  }
  if (received == 0) return Error(ECONNRESET, "receive descriptors: the peer closed the connection");
  // The kernel drops descriptors it cannot install: our table is full, and the message says so.
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return Error(EMFILE, "receive descriptors: some were dropped; raise the open-file limit (ulimit -n)");
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return Error(EMSGSIZE, fmt::format("receive descriptors: a message of more than {} bytes", max_bytes));
  result.bytes.resize(static_cast<std::size_t>(received));
  return result;
}

}  // namespace viaduct
