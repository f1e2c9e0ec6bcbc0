// The names of a TCP connection's ends, in one form: an IPv4 client of an IPv6 server has the same name on both sides.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace viaduct::sockets {

struct Address {
  std::array<std::uint8_t, 18> bytes{};  // IPv6 address (IPv4 mapped), port
  bool ok = false;
  bool loopback = false;
  bool operator==(const Address& other) const { return ok && other.ok && bytes == other.bytes; }
};

inline Address normal(const sockaddr_storage& storage) {
  Address address;
  if (storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(&address.bytes[12], &in.sin_addr, 4);
    std::memcpy(&address.bytes[16], &in.sin_port, 2);
    address.ok = true;
  } else if (storage.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
    std::memcpy(&address.bytes[0], &in6.sin6_addr, 16);
    std::memcpy(&address.bytes[16], &in6.sin6_port, 2);
    address.ok = true;
  }
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool mapped = std::memcmp(address.bytes.data(), kMapped, 12) == 0;
  address.loopback = mapped ? address.bytes[12] == 127
                            : std::memcmp(address.bytes.data(), &in6addr_loopback, sizeof in6addr_loopback) == 0;
  return address;
}

inline Address own_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0 ? normal(storage) : Address{};
}

inline Address peer_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0 ? normal(storage) : Address{};
}

}  // namespace viaduct::sockets
