// "HOST:PORT" and "[HOST]:PORT" as socket addresses.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/result.hpp"

namespace viaduct::nic {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  std::uint16_t port() const;
  std::string text() const;  // "192.0.2.1:7000", "[::1]:7000"

  static SocketAddress copy(const sockaddr* address, socklen_t length);
  // A socket of IPv6 has IPv4 addresses in a form of its own: to that form, and back from it.
  SocketAddress mapped() const;
  SocketAddress unmapped() const;
  static SocketAddress any(int family);
  // `family` AF_UNSPEC: whichever the name has.
  static Result<SocketAddress> parse(const std::string& text, int family, bool to_bind);
};

}  // namespace viaduct::nic
