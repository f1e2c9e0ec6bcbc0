#include "base/socket_message.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace viaduct {

namespace {

constexpr std::size_t kAttachedBytes = CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kMostPassedFds * sizeof(int));

std::size_t data_bytes(const cmsghdr& part) {
  return part.cmsg_len < CMSG_LEN(0) ? 0 : part.cmsg_len - CMSG_LEN(0);
}

void take_attached(msghdr& message, Attached& with) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    const unsigned char* const data = CMSG_DATA(part);
    if (part->cmsg_type == SCM_CREDENTIALS && data_bytes(*part) >= sizeof(ucred)) {
      ucred sender;
      std::memcpy(&sender, data, sizeof sender);
      with.sender = sender;
    } else if (part->cmsg_type == SCM_RIGHTS) {
      for (std::size_t at = 0; at + sizeof(int) <= data_bytes(*part); at += sizeof(int)) {
        int fd;
        std::memcpy(&fd, data + at, sizeof fd);
        with.fds.emplace_back(fd);
      }
    }
  }
  with.fds_dropped = (message.msg_flags & MSG_CTRUNC) != 0;
  with.bytes_dropped = (message.msg_flags & MSG_TRUNC) != 0;
}

// Behind what was attached before, the last of which is `part`.
void attach(msghdr& message, cmsghdr*& part, int type, const void* data, std::size_t size) {
  message.msg_controllen += CMSG_SPACE(size);
  part = part == nullptr ? CMSG_FIRSTHDR(&message) : CMSG_NXTHDR(&message, part);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = type;
  part->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(part), data, size);
}

}  // namespace

ssize_t receive_part(int socket, std::span<std::byte> into, int flags, Attached& with) {
  iovec io{into.data(), into.size()};
  alignas(cmsghdr) char control[kAttachedBytes];
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t received = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  if (received >= 0) take_attached(message, with);
  return received;
}

ssize_t send_part(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags,
                  Credentials credentials) {
  if (bytes.empty() || fds.size() > kMostPassedFds) return errno = EINVAL, -1;
  iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[kAttachedBytes] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  cmsghdr* part = nullptr;
  if (credentials == Credentials::ours) {
    const ucred self{::getpid(), ::geteuid(), ::getegid()};
    attach(message, part, SCM_CREDENTIALS, &self, sizeof self);
  }
  if (!fds.empty()) attach(message, part, SCM_RIGHTS, fds.data(), fds.size_bytes());
  return ::sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  ssize_t sent;
  do sent = send_part(socket, bytes, fds, 0);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return Error::from_errno("send descriptors");
  if (static_cast<std::size_t>(sent) != bytes.size()) return Error(EIO, "send descriptors: short write");
  return {};
}

Result<FdMessage> receive_with_fds(int socket, std::size_t max_bytes, std::size_t max_fds) {
  FdMessage result;
  result.bytes.resize(max_bytes);
  Attached with;
  ssize_t received;
  do received = receive_part(socket, result.bytes, 0, with);
  while (received < 0 && errno == EINTR);
  if (received < 0) return Error::from_errno("receive descriptors");
  if (received == 0) return Error(ECONNRESET, "receive descriptors: the peer closed the connection");
  if (with.fds_dropped)
    return Error(EMFILE, "receive descriptors: some were dropped; raise the open-file limit (ulimit -n)");
  if (with.bytes_dropped)
    return Error(EMSGSIZE, fmt::format("receive descriptors: a message of more than {} bytes", max_bytes));
  if (with.fds.size() > max_fds)
    with.fds.erase(with.fds.begin() + static_cast<std::ptrdiff_t>(max_fds), with.fds.end());
  result.fds = std::move(with.fds);
  result.bytes.resize(static_cast<std::size_t>(received));
  return result;
}

MessageReader::Step MessageReader::read(int socket, std::span<std::byte> message) {
  if (have_ == 0) fd_.reset(), sender_.reset();
  while (have_ < message.size()) {
    Attached with;
    const ssize_t received = receive_part(socket, message.subspan(have_), MSG_DONTWAIT, with);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return errno == EAGAIN ? Step::pending : Step::failed;
    if (received == 0) return Step::closed;
    if (!with.fds.empty()) fd_ = with.last_fd();
    if (with.sender) sender_ = with.sender;
    have_ += static_cast<std::size_t>(received);
  }
  have_ = 0;
  return Step::whole;
}

}  // namespace viaduct
