#include "net/silence.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace viaduct::net {

namespace {

constexpr int kPatience = 400;  // ms

const sockaddr* address_of(const Route& route) {
  return reinterpret_cast<const sockaddr*>(&route.to);
}

int error_of(const Fd& socket) {
  int fault = 0;
  socklen_t length = sizeof fault;
  (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &fault, &length);
  return fault;
}

// What the network says to a datagram; 0: nothing.
int ask_by_datagram(const Route& route) {
  const Fd socket(::socket(route.to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const char nothing = 0;
  if (::connect(socket.get(), address_of(route), route.to_length) != 0) return errno;
  if (::send(socket.get(), &nothing, sizeof nothing, 0) < 0) return errno;
  pollfd answer{socket.get(), POLLIN, 0};
  return ::poll(&answer, 1, kPatience) > 0 ? error_of(socket) : 0;
}

// 0: somebody took the connection; ETIMEDOUT: silence.
int ask_by_tcp(const Route& route) {
  const Fd socket(::socket(route.to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), address_of(route), route.to_length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd answer{socket.get(), POLLOUT, 0};
  return ::poll(&answer, 1, kPatience) > 0 ? error_of(socket) : ETIMEDOUT;
}

}  // namespace

std::string why_silent(const Route& route) {
  const char* const kRun = "is `viaduct ping --answer` running there, with this port?";
  const int by_datagram = ask_by_datagram(route);
  if (by_datagram == ECONNREFUSED) return fmt::format("the host is there, and nobody has that UDP port: {}", kRun);
  if (by_datagram == EPERM || by_datagram == EACCES) return "a firewall of this host does not let UDP out";
  if (by_datagram != 0) return fmt::format("the network says: {}", std::strerror(by_datagram));
  const int by_tcp = ask_by_tcp(route);
  if (by_tcp == 0 || by_tcp == ECONNREFUSED)
    return "the host answers TCP, so a firewall takes UDP to or from that port away, or the process there stands still";
  if (by_tcp == ETIMEDOUT)
    return fmt::format(
        "TCP is not answered either: the host is down, or a firewall takes everything away; otherwise, {}", kRun);
  return fmt::format("and to TCP the network says: {}", std::strerror(by_tcp));
}

}  // namespace viaduct::net
