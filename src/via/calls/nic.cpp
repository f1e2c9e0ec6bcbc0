// Adapters, their protection tags and errors.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/log.hpp"
#include "via/calls/calls.hpp"

using namespace viaduct;
using namespace viaduct::vipl;

namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Ours, and those of M-VIA, Berkeley VIA, cLAN and the samples of the specification: they all mean this adapter.
bool known_device(std::string_view name) {
  for (const std::string_view one : {"viaduct", "/dev/viaduct", "shm", "/dev/via_lo", "/etc/via_lo", "VINIC"})
    if (name == one) return true;
  for (const std::string_view numbered : {"/dev/via_eth", "/dev/clanvi", "nic"})
    if (name.starts_with(numbered) && all_digits(name.substr(numbered.size()))) return true;
  return false;
}

}  // namespace

VIP_RETURN VipOpenNic(const VIP_CHAR* DeviceName, VIP_NIC_HANDLE* NicHandle) {
  if (DeviceName == nullptr || NicHandle == nullptr) return VIP_INVALID_PARAMETER;
  if (!known_device(DeviceName)) {
    log::fault(fmt::format("VipOpenNic: there is no device '{}'; 'viaduct' is the one for this host", DeviceName));
    return VIP_INVALID_PARAMETER;
  }
  auto nic = Nic::open(DeviceName);
  if (!nic) {
    log::fault(nic.error().because("VipOpenNic").message());
    return VIP_ERROR_RESOURCE;
  }
  Nic& opened = **nic;
  *NicHandle = nics().add(std::move(*nic));
  if (*NicHandle == nullptr) return VIP_ERROR_RESOURCE;
  opened.handle = *NicHandle;
  return VIP_SUCCESS;
}

VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle) {
  const std::shared_ptr<Nic> nic = nics().hold(NicHandle);
  if (nic == nullptr) return VIP_INVALID_PARAMETER;
  if (nic->in_use()) return VIP_ERROR_RESOURCE;
  if (nics().remove(NicHandle) == nullptr) return VIP_INVALID_PARAMETER;
  nic->notifier().stop();
  nic->close();
  return VIP_SUCCESS;
}

VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES* NicAttributes) {
  const Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || NicAttributes == nullptr) return VIP_INVALID_PARAMETER;
  nic->attributes(*NicAttributes);
  return VIP_SUCCESS;
}

VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE* Ptag) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || Ptag == nullptr) return VIP_INVALID_PARAMETER;
  *Ptag = nic->create_tag();
  return *Ptag == nullptr ? VIP_ERROR_RESOURCE : VIP_SUCCESS;
}

VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE Ptag) {
  Nic* const nic = nics().find(NicHandle);
  return nic == nullptr ? VIP_INVALID_PARAMETER : nic->destroy_tag(Ptag);
}

// This host is all there is to discover.
VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType, VIP_PVOID SysManInfo) {
  const Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || SysManInfo == nullptr || InfoType != VIP_SMI_AUTODISCOVERY) return VIP_INVALID_PARAMETER;
  auto* const list = static_cast<VIP_AUTODISCOVERY_LIST*>(SysManInfo);
  const bool fits = list->ADAddrArray != nullptr && list->NumAdAddrs > 0 && list->ADAddrArray[0] != nullptr;
  if (fits) {
    VIP_NET_ADDRESS* const address = list->ADAddrArray[0];
    address->HostAddressLen = static_cast<VIP_UINT16>(nic->host().size());
    address->DiscriminatorLen = 0;
    std::memcpy(reinterpret_cast<VIP_UINT8*>(address) + offsetof(VIP_NET_ADDRESS, HostAddress), nic->host().data(),
                nic->host().size());
  }
  list->NumAdAddrs = 1;
  return VIP_SUCCESS;
}

VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context,
                            void (*Handler)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR* ErrorDesc)) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr) return VIP_INVALID_PARAMETER;
  nic->set_error_handler(Context, Handler);
  return VIP_SUCCESS;
}
