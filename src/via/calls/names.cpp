// The name service.
#include <cstddef>
#include <cstring>

#include "via/calls/calls.hpp"
#include "via/vipl/names.hpp"

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
