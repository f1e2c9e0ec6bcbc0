#include "via/vipl/names.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "via/vipl/nic.hpp"

namespace viaduct::vipl {

namespace {

using HostAddress = std::array<std::uint8_t, 4>;

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

// Empty: nobody knows.
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

}  // namespace

HostAddress address_of_this_host() {
  for (const HostAddress& address : addresses_of_this_host())
    if (!is_loopback(address)) return address;
  return {127, 0, 0, 1};
}

bool is_this_host(const WireAddress& address, const Nic& nic) {
  if (address.host_length == 0) return true;
  HostAddress bytes;
  if (address.host_length != bytes.size()) return false;
  std::memcpy(bytes.data(), address.bytes, bytes.size());
  return bytes == nic.host() || is_this_host(bytes);
}

}  // namespace viaduct::vipl

// ---- the interface

using namespace viaduct::vipl;

VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, VIP_PVOID) {
  return nics().find(NicHandle) == nullptr ? VIP_INVALID_PARAMETER : VIP_SUCCESS;
}

VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle) {
  return nics().find(NicHandle) == nullptr ? VIP_INVALID_PARAMETER : VIP_SUCCESS;
}

// The discriminator, which programs fill in before or after, is left alone.
VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, VIP_CHAR* Name, VIP_NET_ADDRESS* Address, VIP_ULONG NameIndex) {
  const Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || Name == nullptr || Address == nullptr) return VIP_INVALID_PARAMETER;
  const std::string name = Name;
  auto found = name == name_of_this_host() || name == "localhost" ? std::vector{nic->host()} : resolve(name);
  if (NameIndex >= found.size()) return VIP_ERROR_NAMESERVICE;
  if (is_this_host(found[NameIndex])) found[NameIndex] = nic->host();
  Address->HostAddressLen = static_cast<VIP_UINT16>(found[NameIndex].size());
  auto* const bytes = reinterpret_cast<VIP_UINT8*>(Address) + offsetof(VIP_NET_ADDRESS, HostAddress);
  std::memcpy(bytes, found[NameIndex].data(), found[NameIndex].size());
  return VIP_SUCCESS;
}

VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS* Address, VIP_CHAR* Name, VIP_ULONG* NameLen) {
  const Nic* const nic = nics().find(NicHandle);
  WireAddress address;
  if (nic == nullptr || Name == nullptr || NameLen == nullptr || !read_address(Address, address))
    return VIP_INVALID_PARAMETER;
  if (address.host_length != nic->host().size()) return VIP_INVALID_PARAMETER;
  std::array<std::uint8_t, 4> bytes;
  std::memcpy(bytes.data(), address.bytes, bytes.size());
  const std::string name = bytes == nic->host() ? name_of_this_host() : name_of(bytes);
  if (name.empty()) return VIP_ERROR_NAMESERVICE;
  const VIP_ULONG room = *NameLen;
  *NameLen = name.size() + 1;
  if (room < name.size() + 1) return VIP_ERROR_RESOURCE;
  std::memcpy(Name, name.c_str(), name.size() + 1);
  return VIP_SUCCESS;
}
