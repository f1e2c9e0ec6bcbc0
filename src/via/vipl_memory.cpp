#include "via/vipl_memory.hpp"

#include <fcntl.h>
#include <viaduct/regions.hpp>

#include <cerrno>

#include "base/log.hpp"
#include "via/vipl_nic.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint32_t kNoPlace = UINT32_MAX;
constexpr std::size_t kCommitStep = std::size_t{64} << 10;

VIP_MEM_HANDLE handle_of(std::uint32_t place, std::uint16_t generation) {
  return static_cast<VIP_MEM_HANDLE>(generation) << 16 | place;
}

std::uint64_t enables_of(const VIP_MEM_ATTRIBUTES& attributes) {
  std::uint64_t enables = 0;
  if (attributes.EnableRdmaWrite) enables |= kRdmaWrite;
  if (attributes.EnableRdmaRead) enables |= kRdmaRead;
  return enables;
}

std::uint64_t access_of(std::uint64_t tag, std::uint64_t enables) {
  return tag << 2 | enables;
}

}  // namespace

Result<std::unique_ptr<Registrations>> Registrations::make() {
  VIADUCT_TRY(Segment segment, Segment::create({.name = "viaduct-vipl-table",
                                                .layout = kTableLayout,
                                                .payload_size = kTableBytes,
                                                .committed = kEntriesOffset,
                                                .peers_only_read = true}));
  *segment.as<TableHeader>() = {kMostVis, kMostRegions};
  return std::unique_ptr<Registrations>(new Registrations(std::move(segment)));
}

// Places are taken from the front, so that a small program commits a small table.
std::uint32_t Registrations::take_place() {
  if (!free_.empty()) {
    const std::uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  const auto place = static_cast<std::uint32_t>(generations_.size());
  if (place == kMostRegions) return kNoPlace;
  const std::size_t needed = kEntriesOffset + (std::size_t{place} + 1) * sizeof(RegistrationEntry);
  if (needed > segment_.committed()) {
    const std::size_t more = std::min(segment_.committed() + kCommitStep, segment_.payload().size());
    if (auto committed = segment_.commit(more); !committed) {
      log::fault(committed.error().because("register memory").message());
      return kNoPlace;
    }
  }
  generations_.push_back(0);
  return place;
}

VIP_MEM_HANDLE Registrations::add(const void* address, std::size_t length, std::uint64_t tag, std::uint64_t enables) {
  copy::RegionPlace region;
  const bool owned = copy::region_of(address, length, region);
  const std::lock_guard lock(mutex_);
  const std::uint32_t place = take_place();
  if (place == kNoPlace) return 0;
  std::uint16_t& generation = generations_[place];
  if (++generation == 0) generation = 1;
  RegistrationEntry& entry = view_.entry(place);
  entry.base.store(reinterpret_cast<std::uint64_t>(address), std::memory_order_relaxed);
  entry.length.store(length, std::memory_order_relaxed);
  entry.access.store(access_of(tag, enables), std::memory_order_relaxed);
  entry.region_id.store(owned ? region.id : 0, std::memory_order_relaxed);
  entry.region_offset.store(region.offset, std::memory_order_relaxed);
  entry.region_inode.store(region.inode, std::memory_order_relaxed);
  entry.region_fd.store(static_cast<std::uint32_t>(region.fd), std::memory_order_relaxed);
  const VIP_MEM_HANDLE handle = handle_of(place, generation);
  entry.handle.store(handle, std::memory_order_release);  // R1
  return handle;
}

bool Registrations::matches(VIP_MEM_HANDLE handle, const void* address, Registration& found) const {
  return view_.find(handle, found) && found.base == reinterpret_cast<std::uint64_t>(address);
}

bool Registrations::remove(VIP_MEM_HANDLE handle, const void* address) {
  const std::lock_guard lock(mutex_);
  Registration found;
  if (!matches(handle, address, found)) return false;
  const std::uint32_t place = handle & (kMostRegions - 1);
  view_.entry(place).handle.store(0, std::memory_order_release);
  version_.fetch_add(1, std::memory_order_acq_rel);
  free_.push_back(place);
  return true;
}

bool Registrations::set_access(VIP_MEM_HANDLE handle, const void* address, std::uint64_t tag, std::uint64_t enables) {
  const std::lock_guard lock(mutex_);
  Registration found;
  if (!matches(handle, address, found)) return false;
  view_.entry(handle & (kMostRegions - 1)).access.store(access_of(tag, enables), std::memory_order_release);
  version_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

bool Registrations::reserve_posted(std::uint32_t slot) {
  const auto from = static_cast<off_t>(kSegmentPayloadOffset + kPostedOffset + slot * kPostedBytes);
  int result;
  do result = ::fallocate(segment_.fd(), 0, from, kPostedBytes);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

bool Registrations::tag_in_use(std::uint64_t tag) const {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t place = 0; place < generations_.size(); ++place) {
    const RegistrationEntry& entry = view_.entry(place);
    if (entry.handle.load(std::memory_order_relaxed) != 0 && entry.access.load(std::memory_order_relaxed) >> 2 == tag)
      return true;
  }
  return false;
}

}  // namespace viaduct::vipl

// ---- the interface

using namespace viaduct::vipl;

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
