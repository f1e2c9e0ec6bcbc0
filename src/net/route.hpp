// Where a host is, and how the kernel would send to it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace viaduct::net {

struct Route {
  sockaddr_storage to{};  // AF_UNSPEC: a cable, which leads to one other node
  socklen_t to_length = 0;
  std::string peer;       // "192.0.2.1:47117", "[2001:db8::1]:47117"
  std::string from;       // our address on the way there
  std::string interface;  // that leads there
  std::uint32_t mtu = 0;  // of that interface

  std::string text() const;  // "from 192.0.2.7 by eth0, MTU 1500"
};

// "HOST", "HOST:PORT", "[HOST]:PORT". Looks the name up, which may block.
Result<Route> find_route(const std::string& host, std::uint16_t port);
Result<Route> route_to(const sockaddr_storage& address, socklen_t length);

std::string text_of(const sockaddr_storage& address, bool with_port = true);
std::uint16_t port_of(const sockaddr_storage& address);
void set_port(sockaddr_storage& address, std::uint16_t port);
socklen_t length_of(const sockaddr_storage& address);  // 0: it is none of IP

// The IPv4 addresses of interfaces that are up, without the loopback.
struct OwnAddress {
  std::string interface, address;
};
std::vector<OwnAddress> own_addresses();

// An address of this host's own. False, too, where the name is not known.
bool is_own_address(const std::string& host);

// Of a datagram on the way to that address: what is not the frame.
std::size_t headers_of(const sockaddr_storage& address);

}  // namespace viaduct::net
