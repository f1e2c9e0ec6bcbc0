#include "net/route.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <cstring>
#include <memory>

#include "base/fd.hpp"

namespace viaduct::net {

namespace {

struct HostAndPort {
  std::string host;
  std::uint16_t port;
};

Error no_port(std::string_view digits, const std::string& text) {
  return Error(EINVAL,
               fmt::format("'{}' is no port, 1 to 65535, in '{}' (HOST, HOST:PORT or [HOST]:PORT)", digits, text));
}

// "a:b" is a host and a port, "a:b:c" an IPv6 address, "[a:b]:c" such a one and a port.
Result<HostAndPort> split(const std::string& text, std::uint16_t port) {
  std::string host = text;
  std::string_view digits;
  if (!text.empty() && text[0] == '[') {
    const auto end = text.find(']');
    if (end == std::string::npos) return Error(EINVAL, fmt::format("a ']' is missing in '{}'", text));
    host = text.substr(1, end - 1);
    if (end + 1 == text.size()) return HostAndPort{host, port};
    if (text[end + 1] != ':') return no_port(text.substr(end + 1), text);
    digits = std::string_view(text).substr(end + 2);
  } else {
    const auto colon = text.find(':');
    if (colon == std::string::npos || text.find(':', colon + 1) != std::string::npos) return HostAndPort{host, port};
    host = text.substr(0, colon);
    digits = std::string_view(text).substr(colon + 1);
  }
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (fault != std::errc{} || end != digits.data() + digits.size() || port == 0) return no_port(digits, text);
  return HostAndPort{host, port};
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

Result<std::unique_ptr<addrinfo, FreeAddresses>> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int fault = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); fault != 0) {
    return Error(EINVAL, fmt::format("the host '{}': {}", host, ::gai_strerror(fault)));
  }
  return std::unique_ptr<addrinfo, FreeAddresses>(found);
}

bool same_host(const sockaddr* one, const sockaddr_storage& other) {
  if (one == nullptr || one->sa_family != other.ss_family) return false;
  if (one->sa_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(one)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return one->sa_family == AF_INET && reinterpret_cast<const sockaddr_in*>(one)->sin_addr.s_addr ==
                                          reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
}

std::string interface_with(const sockaddr_storage& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "?";
  std::string name = "?";
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (same_host(each->ifa_addr, address)) name = each->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

}  // namespace

std::string Route::text() const {
  return fmt::format("from {} by {}, MTU {}", from, interface, mtu);
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

socklen_t length_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return sizeof(sockaddr_in6);
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : 0;
}

void set_port(sockaddr_storage& address, std::uint16_t port) {
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
}

std::string text_of(const sockaddr_storage& address, bool with_port) {
  char host[NI_MAXHOST] = "?";
  const bool six = address.ss_family == AF_INET6;
  const socklen_t length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  (void)::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                      NI_NUMERICHOST);
  if (!with_port) return host;
  return six ? fmt::format("[{}]:{}", host, port_of(address)) : fmt::format("{}:{}", host, port_of(address));
}

std::size_t headers_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? 48 : 28;
}

Result<Route> route_to(const sockaddr_storage& address, socklen_t length) {
  const bool six = address.ss_family == AF_INET6;
  const Fd socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno("open a UDP socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return Error::from_errno(fmt::format("find a way to {}", text_of(address)));
  }
  Route route;
  route.to = address;
  route.to_length = length;
  route.peer = text_of(address);
  sockaddr_storage from{};
  socklen_t from_length = sizeof from;
  (void)::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&from), &from_length);
  route.from = text_of(from, false);
  route.interface = interface_with(from);
  int mtu = 0;
  socklen_t mtu_length = sizeof mtu;
  if (::getsockopt(socket.get(), six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &mtu_length) != 0) {
    mtu = 1280;
  }
  route.mtu = static_cast<std::uint32_t>(mtu);
  return route;
}

Result<Route> find_route(const std::string& host, std::uint16_t port) {
  VIADUCT_TRY(const HostAndPort wanted, split(host, port));
  VIADUCT_TRY(const auto found, look_up(wanted.host));
  Error last(EINVAL, fmt::format("the host '{}' has no address", wanted.host));
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    sockaddr_storage address{};
    std::memcpy(&address, each->ai_addr, each->ai_addrlen);
    set_port(address, wanted.port);
    auto route = route_to(address, each->ai_addrlen);
    if (route) return route;
    last = route.error();
  }
  return last;
}

std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_storage address{};
    std::memcpy(&address, each->ifa_addr, sizeof(sockaddr_in));
    found.push_back({each->ifa_name, text_of(address, false)});
  }
  ::freeifaddrs(list);
  return found;
}

bool is_own_address(const std::string& host) {
  const auto wanted = split(host, 1);
  if (!wanted) return false;
  const auto found = look_up(wanted->host);
  if (!found) return false;
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
    const Fd socket(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // Only an address of this host can be taken.
    if (socket && ::bind(socket.get(), each->ai_addr, each->ai_addrlen) == 0) return true;
  }
  return false;
}

}  // namespace viaduct::net
