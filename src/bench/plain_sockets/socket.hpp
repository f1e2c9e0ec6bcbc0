// Sockets as any program uses them: opening, and whole messages in and out.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace plain {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "viaduct-plain-sockets: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// "tcp:PORT" on the loopback, or "unix:PATH".
struct Address {
  sockaddr_storage name{};
  socklen_t length = 0;

  static Address parse(const std::string& text) {
    Address address;
    const std::string rest = text.substr(text.find(':') + 1);
    if (text.starts_with("unix:")) {
      auto& to = reinterpret_cast<sockaddr_un&>(address.name);
      to.sun_family = AF_UNIX;
      std::strncpy(to.sun_path, rest.c_str(), sizeof to.sun_path - 1);
      address.length = sizeof to;
    } else {
      auto& to = reinterpret_cast<sockaddr_in&>(address.name);
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(rest.c_str())));
      address.length = sizeof to;
    }
    return address;
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&name); }
  int family() const { return name.ss_family; }
  int port() const { return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port); }
};

enum class Way { blocking, spinning, epoll };

inline Way parse_way(const std::string& text) {
  return text == "spinning" ? Way::spinning : text == "epoll" ? Way::epoll : Way::blocking;
}

// What programs set on a connection before they use it.
inline void prepare(int fd, int family, Way way) {
  const int on = 1;
  if (family == AF_INET && ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
  if (way == Way::spinning && ::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("O_NONBLOCK");
}

inline void send_all(int fd, const char* from, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(fd, from, size, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) fail("send");
    if (n <= 0) continue;
    from += n;
    size -= static_cast<std::size_t>(n);
  }
}

// False at the end of the stream.
inline bool receive_all(int fd, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, to, size, 0);
    if (n == 0) return false;
    if (n < 0 && errno != EAGAIN && errno != EINTR) fail("recv");
    if (n <= 0) continue;
    to += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

inline void receive_whole(int fd, char* to, std::size_t size) {
  if (!receive_all(fd, to, size)) {
    errno = ECONNRESET;
    fail("the other end is gone");
  }
}

}  // namespace plain
