// Registering memory.
#include "via/calls/calls.hpp"

using namespace viaduct::vipl;

namespace {

std::uint64_t enables_of(const VIP_MEM_ATTRIBUTES& attributes) {
  std::uint64_t enables = 0;
  if (attributes.EnableRdmaWrite) enables |= kRdmaWrite;
  if (attributes.EnableRdmaRead) enables |= kRdmaRead;
  return enables;
}

}  // namespace

VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
                          VIP_MEM_ATTRIBUTES* MemAttributes, VIP_MEM_HANDLE* MemoryHandle) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || VirtualAddress == nullptr || Length == 0 || MemAttributes == nullptr || MemoryHandle == nullptr)
    return VIP_INVALID_PARAMETER;
  if (Length > kMostRegisteredBytes || reinterpret_cast<std::uint64_t>(VirtualAddress) + Length < Length)
    return VIP_INVALID_PARAMETER;
  std::uint64_t tag = 0;
  if (!nic->tag_number(MemAttributes->Ptag, tag)) return VIP_INVALID_PTAG;
  *MemoryHandle = nic->registrations().add(VirtualAddress, Length, tag, enables_of(*MemAttributes));
  return *MemoryHandle == 0 ? VIP_ERROR_RESOURCE : VIP_SUCCESS;
}

VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr) return VIP_INVALID_PARAMETER;
  if (!nic->registrations().remove(MemoryHandle, VirtualAddress)) return VIP_INVALID_PARAMETER;
  nic->wait_for_copies();
  return VIP_SUCCESS;
}

VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle,
                       VIP_MEM_ATTRIBUTES* MemAttributes) {
  Nic* const nic = nics().find(NicHandle);
  Registration found;
  if (nic == nullptr || MemAttributes == nullptr) return VIP_INVALID_PARAMETER;
  if (!nic->registrations().matches(MemoryHandle, VirtualAddress, found)) return VIP_INVALID_PARAMETER;
  MemAttributes->Ptag = nic->tag_handle(found.tag);
  MemAttributes->EnableRdmaWrite = (found.enables & kRdmaWrite) != 0;
  MemAttributes->EnableRdmaRead = (found.enables & kRdmaRead) != 0;
  return VIP_SUCCESS;
}

VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_MEM_HANDLE MemoryHandle,
                               VIP_MEM_ATTRIBUTES* MemAttributes) {
  Nic* const nic = nics().find(NicHandle);
  if (nic == nullptr || MemAttributes == nullptr) return VIP_INVALID_PARAMETER;
  Registration before;
  if (!nic->registrations().matches(MemoryHandle, VirtualAddress, before)) return VIP_INVALID_PARAMETER;
  std::uint64_t tag = 0;
  if (!nic->tag_number(MemAttributes->Ptag, tag)) return VIP_INVALID_PTAG;
  const std::uint64_t enables = enables_of(*MemAttributes);
  if (!nic->registrations().set_access(MemoryHandle, VirtualAddress, tag, enables)) return VIP_INVALID_PARAMETER;
  if ((before.enables & ~enables) != 0 || before.tag != tag) nic->wait_for_copies();
  return VIP_SUCCESS;
}
