#include "via/vipl/nic.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/log.hpp"
#include "via/vipl/names.hpp"
#include "via/vipl/tables.hpp"

namespace viaduct::vipl {

namespace {

constexpr VIP_ULONG kHardwareVersion = 1;
constexpr VIP_ULONG kProviderVersion = 0x0100;  // VIPL 1.0
constexpr std::size_t kDescriptorsPerVi = 3;    // a socket, a segment, and what the peer sends

// Thousands of VIs need more descriptors than the limit that programs start with; the hard limit allows them.
void make_room_for_descriptors(std::size_t vis) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || vis * kDescriptorsPerVi < limit.rlim_cur / 2) return;
  if (limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0)
    log::notice(fmt::format("raised the limit of open files to {} for {} VIs", limit.rlim_cur, vis));
}

}  // namespace

Nic::~Nic() = default;

Result<std::shared_ptr<Nic>> Nic::open(std::string name) {
  hook_fork();
  std::shared_ptr<Nic> nic(new Nic(std::move(name)));
  VIADUCT_CHECK(nic->start());
  return nic;
}

Status Nic::start() {
  VIADUCT_CHECK(Adapter::start());
  host_ = address_of_this_host();
  return progress_.start();
}

void Nic::attributes(VIP_NIC_ATTRIBUTES& attributes) const {
  attributes = {};
  name().copy(attributes.Name, sizeof attributes.Name - 1);
  attributes.HardwareVersion = kHardwareVersion;
  attributes.ProviderVersion = kProviderVersion;
  attributes.NicAddressLen = static_cast<VIP_UINT16>(host_.size());
  attributes.LocalNicAddress = host_.data();
  attributes.ThreadSafe = VIP_TRUE;
  attributes.MaxDiscriminatorLen = kMostDiscriminator;
  attributes.MaxRegisterBytes = kMostRegisteredBytes;
  attributes.MaxRegisterRegions = kMostRegions;
  attributes.MaxRegisterBlockBytes = kMostRegisteredBytes;
  attributes.MaxVI = kMostConnections;
  attributes.MaxDescriptorsPerQueue = kMostDescriptors;
  attributes.MaxSegmentsPerDesc = kMostSegments;
  attributes.MaxCQ = kMostCqs;
  attributes.MaxCQEntries = kMostCqEntries;
  attributes.MaxTransferSize = kMostTransfer;
  attributes.NativeMTU = std::size_t{32} << 10;
  attributes.MaxPtags = kMostTags;
  attributes.ReliabilityLevelSupport =
      VIP_SERVICE_UNRELIABLE | VIP_SERVICE_RELIABLE_DELIVERY | VIP_SERVICE_RELIABLE_RECEPTION;
  attributes.RDMAReadSupport = VIP_SERVICE_RELIABLE_DELIVERY | VIP_SERVICE_RELIABLE_RECEPTION;
}

// ---- protection tags

VIP_PROTECTION_HANDLE Nic::create_tag() {
  const std::lock_guard lock(mutex_);
  if (tags_.size() == kMostTags) return nullptr;
  const std::uint64_t number = next_tag_++;
  const VIP_PROTECTION_HANDLE tag = ptags().add(std::make_shared<Ptag>(Ptag{this, number}));
  if (tag != nullptr) tags_[number] = tag;
  return tag;
}

VIP_RETURN Nic::destroy_tag(VIP_PROTECTION_HANDLE tag) {
  std::uint64_t number = 0;
  if (tag == nullptr || !tag_number(tag, number)) return VIP_INVALID_PARAMETER;
  if (registrations().tag_in_use(number)) return VIP_ERROR_RESOURCE;
  for (const auto& vi : all_vis()) {
    const std::lock_guard lock(vi->lock);
    if (vi->tag() == number) return VIP_ERROR_RESOURCE;
  }
  const std::lock_guard lock(mutex_);
  tags_.erase(number);
  return ptags().remove(tag) == nullptr ? VIP_INVALID_PARAMETER : VIP_SUCCESS;
}

bool Nic::tag_number(VIP_PROTECTION_HANDLE tag, std::uint64_t& number) const {
  number = 0;
  if (tag == nullptr) return true;
  const auto found = ptags().hold(tag);
  if (found == nullptr || found->nic != this) return false;
  number = found->number;
  return true;
}

VIP_PROTECTION_HANDLE Nic::tag_handle(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = tags_.find(number);
  return found == tags_.end() ? nullptr : found->second;
}

// ---- VIs

std::shared_ptr<Vi> Nic::create_vi(const VIP_VI_ATTRIBUTES& attributes, std::uint64_t tag) {
  const std::lock_guard lock(mutex_);
  std::uint32_t slot;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else if (vis_.size() < kMostConnections) {
    slot = static_cast<std::uint32_t>(vis_.size());
    vis_.emplace_back();
    make_room_for_descriptors(vis_.size());
  } else {
    return nullptr;
  }
  vis_[slot] = std::make_shared<Vi>(shared_from_this(), attributes, tag, slot);
  vis_[slot]->set_handle(vis().add(vis_[slot]));
  if (vis_[slot]->handle() == nullptr) {
    vis_[slot].reset();
    free_slots_.push_back(slot);
    return nullptr;
  }
  return vis_[slot];
}

void Nic::destroy_vi(Vi& vi) {
  const std::uint32_t slot = vi.slot();
  const std::lock_guard lock(mutex_);
  vis_[slot].reset();  // the caller holds it
  free_slots_.push_back(slot);
}

std::vector<std::shared_ptr<Vi>> Nic::all_vis() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Vi>> all;
  for (const auto& vi : vis_)
    if (vi) all.push_back(vi);
  return all;
}

bool Nic::in_use() const {
  return cq_count.load() != 0 || !all_vis().empty();
}

void Nic::close() {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, tag] : tags_) (void)ptags().remove(tag);
  tags_.clear();
  port()->forget_listeners();
}

// S2 of memory_table.hpp. Threads of this process copy under the VI's lock and look at the registrations first.
void Nic::wait_for_copies() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  port()->settle();
  Effects effects;
  for (const auto& vi : all_vis()) {
    {
      const std::lock_guard lock(vi->lock);
      vi->stop_using_memory(effects);
    }
    via::ShmReach::Looks looks;
    for (;; ::sched_yield()) {
      const std::lock_guard lock(vi->lock);
      if (!vi->peer_copies(looks)) break;
    }
  }
  deliver(effects);
}

}  // namespace viaduct::vipl
