#include "copy/link_control.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

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
  switch (reader_.read(fd(), std::as_writable_bytes(std::span(&partial_, 1)))) {
    case MessageReader::Step::pending:
      return Received::nothing;
    case MessageReader::Step::closed:
    case MessageReader::Step::failed:
      return Received::closed;
    case MessageReader::Step::whole:
      break;
  }
  message = partial_;
  passed = reader_.take_fd();
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
