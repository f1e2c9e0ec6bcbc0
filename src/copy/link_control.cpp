#include "copy/link_control.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "copy/process_generation.hpp"

namespace viaduct::copy {

ControlSocket::ControlSocket(Fd socket) : socket_(std::move(socket)) {
  (void)::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK);
  (void)::fcntl(fd(), F_SETFD, FD_CLOEXEC);
  close_in_children(fd());
}

ControlSocket::~ControlSocket() {
  keep_in_children(fd());
}

bool ControlSocket::send(const ControlMessage& message, int passed) {
  const std::span bytes = std::as_bytes(std::span(&message, 1));
  return send_with_fds(fd(), bytes, {&passed, passed < 0 ? 0u : 1u}).ok();
}

ControlSocket::Received ControlSocket::receive(ControlMessage& message, Fd& passed) {
  while (have_ < sizeof partial_) {
    iovec io{reinterpret_cast<char*>(&partial_) + have_, sizeof partial_ - have_};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    msghdr header{};
    header.msg_iov = &io;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t received = ::recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return errno == EAGAIN ? Received::nothing : Received::closed;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
        int arrived;
        std::memcpy(&arrived, reinterpret_cast<const char*>(part) + at, sizeof arrived);
        partial_fd_.reset(arrived);  // of several the last is kept
      }
    }
    if (received == 0) return Received::closed;
    have_ += static_cast<std::size_t>(received);
  }
  have_ = 0;
  message = partial_;
  passed = std::move(partial_fd_);
  const bool known = message.kind == ControlMessage::doorbell || message.kind == ControlMessage::region ||
                     message.kind == ControlMessage::forget;
  return known ? Received::message : Received::garbage;
}

bool ControlSocket::peer_has_gone() const {
  pollfd entry{fd(), 0, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void ControlSocket::shut_down() {
  (void)::shutdown(fd(), SHUT_RDWR);
}

}  // namespace viaduct::copy
