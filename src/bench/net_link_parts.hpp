// What the links between two hosts have in common.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "base/clock.hpp"

namespace viaduct::bench::links {

constexpr std::uint64_t kGiveUp = 2'000'000'000;  // ns: a partner that does not answer any more
constexpr std::size_t kMessage = 4;

inline std::uint64_t now() {
  return Clock::steady().now_ns();
}

inline sockaddr_in at(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}
inline const sockaddr* any(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace viaduct::bench::links
