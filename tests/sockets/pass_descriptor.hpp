// A descriptor through a UNIX socket, for the programs that run under libviaduct-sockets.so.
#pragma once

#include <sys/socket.h>

#include <cstring>

namespace viaduct::sockets {

inline bool pass_descriptor(int over, int fd) {
  char byte = 'f';
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(over, &message, 0) == 1;
}

// -1: none came.
inline int take_descriptor(int over) {
  char byte;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(over, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == nullptr) return -1;
  int fd;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

}  // namespace viaduct::sockets
