#include "fabric/address.hpp"

#include <arpa/inet.h>
#include <netdb.h>

#include <cstring>

namespace viaduct::fabric {

namespace {

constexpr std::uint64_t kNicMark = 0x0200;  // mx/boards.hpp: 0x0200, and the IPv4 address

}  // namespace

std::optional<mx::Name> name_of(const sockaddr_in& address) {
  if (address.sin_family != AF_INET || address.sin_port == 0) return std::nullopt;
  const std::uint32_t host = ntohl(address.sin_addr.s_addr);
  return mx::Name{kNicMark << 32 | host, static_cast<std::uint32_t>(ntohs(address.sin_port) - 1)};
}

sockaddr_in address_of(const mx::Name& name) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(static_cast<std::uint32_t>(name.nic));
  address.sin_port = htons(static_cast<std::uint16_t>(name.endpoint + 1));
  return address;
}

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "?";
  (void)::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return std::string(text) + ':' + std::to_string(ntohs(address.sin_port));
}

std::optional<sockaddr_in> resolve(const char* node, const char* service) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = node == nullptr ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  if (::getaddrinfo(node, node == nullptr && service == nullptr ? "0" : service, &hints, &list) != 0)
    return std::nullopt;
  sockaddr_in found;
  std::memcpy(&found, list->ai_addr, sizeof found);
  ::freeaddrinfo(list);
  return found;
}

}  // namespace viaduct::fabric
