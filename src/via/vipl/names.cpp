#include "via/vipl/names.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace viaduct::vipl {

namespace {

HostAddress bytes_of(const sockaddr* address) {
  HostAddress bytes;
  std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, bytes.size());
  return bytes;
}

bool is_loopback(const HostAddress& address) {
  return address[0] == 127;
}

// Of the interfaces that are up.
std::vector<HostAddress> addresses_of_this_host() {
  std::vector<HostAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0)
      found.push_back(bytes_of(one->ifa_addr));
  ::freeifaddrs(list);
  return found;
}

}  // namespace

bool is_this_host(const HostAddress& address) {
  if (is_loopback(address)) return true;
  for (const HostAddress& own : addresses_of_this_host())
    if (own == address) return true;
  return false;
}

std::string name_of_this_host() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

std::vector<HostAddress> resolve(const std::string& name) {
  std::vector<HostAddress> found;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) found.push_back(bytes_of(one->ai_addr));
  ::freeaddrinfo(list);
  return found;
}

std::string name_of(const HostAddress& address) {
  if (is_this_host(address)) return name_of_this_host();
  sockaddr_in question{};
  question.sin_family = AF_INET;
  std::memcpy(&question.sin_addr, address.data(), address.size());
  char name[NI_MAXHOST] = "";
  const int fault = ::getnameinfo(reinterpret_cast<const sockaddr*>(&question), sizeof question, name, sizeof name,
                                  nullptr, 0, NI_NAMEREQD);
  return fault == 0 ? name : "";
}

HostAddress address_of_this_host() {
  for (const HostAddress& address : addresses_of_this_host())
    if (!is_loopback(address)) return address;
  return {127, 0, 0, 1};
}

bool is_this_host(const WireAddress& address, const HostAddress& own) {
  if (address.host_length == 0) return true;
  HostAddress bytes;
  if (address.host_length != bytes.size()) return false;
  std::memcpy(bytes.data(), address.bytes, bytes.size());
  return bytes == own || is_this_host(bytes);
}

}  // namespace viaduct::vipl
