#include "nic/mac/socket_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>

namespace viaduct::nic {

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, port());
  }
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, port());
}

SocketAddress SocketAddress::copy(const sockaddr* address, socklen_t length) {
  SocketAddress copied;
  copied.length = std::min<socklen_t>(length, sizeof copied.storage);
  std::memcpy(&copied.storage, address, copied.length);
  return copied;
}

SocketAddress SocketAddress::mapped() const {
  if (family() != AF_INET) return *this;
  const auto& four = reinterpret_cast<const sockaddr_in&>(storage);
  SocketAddress result = any(AF_INET6);
  auto& six = reinterpret_cast<sockaddr_in6&>(result.storage);
  six.sin6_port = four.sin_port;
  six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(six.sin6_addr.s6_addr + 12, &four.sin_addr, sizeof four.sin_addr);
  return result;
}

SocketAddress SocketAddress::unmapped() const {
  const auto& six = reinterpret_cast<const sockaddr_in6&>(storage);
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return *this;
  SocketAddress result = any(AF_INET);
  auto& four = reinterpret_cast<sockaddr_in&>(result.storage);
  four.sin_port = six.sin6_port;
  std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof four.sin_addr);
  return result;
}

SocketAddress SocketAddress::any(int family) {
  SocketAddress address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return address;
}

Result<SocketAddress> SocketAddress::parse(const std::string& text, int family, bool to_bind) {
  const auto colon = text.rfind(':');
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (port.empty() || (host.empty() && !to_bind))
    return Error(EINVAL, fmt::format("'{}' is not HOST:PORT, such as 192.0.2.1:7000 or [::1]:7000", text));

  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV | (to_bind ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int fault = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (fault != 0) return Error(EINVAL, fmt::format("the address '{}': {}", text, ::gai_strerror(fault)));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

}  // namespace viaduct::nic
