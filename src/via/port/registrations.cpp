#include "via/port/registrations.hpp"

#include <fcntl.h>
#include <viaduct/regions.hpp>

#include <cerrno>

#include "base/log.hpp"

namespace viaduct::via {

namespace {

constexpr std::uint32_t kNoPlace = UINT32_MAX;
constexpr std::size_t kCommitStep = std::size_t{64} << 10;

MemoryKey key_of(std::uint32_t place, std::uint16_t generation) {
  return static_cast<MemoryKey>(generation) << 16 | place;
}

std::uint64_t access_of(std::uint64_t tag, std::uint64_t enables) {
  return tag << 2 | enables;
}

}  // namespace

Result<std::unique_ptr<Registrations>> Registrations::make() {
  VIADUCT_TRY(Segment segment, Segment::create({.name = "viaduct-port-table",
                                                .layout = kTableLayout,
                                                .payload_size = kTableBytes,
                                                .committed = kEntriesOffset,
                                                .peers_only_read = true}));
  *segment.as<TableHeader>() = {kMostConnections, kMostRegions};
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

MemoryKey Registrations::add(const void* address, std::size_t length, std::uint64_t tag, std::uint64_t enables) {
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
  const MemoryKey key = key_of(place, generation);
  entry.key.store(key, std::memory_order_release);  // R1
  return key;
}

bool Registrations::matches(MemoryKey key, const void* address, Registration& found) const {
  return view_.find(key, found) && found.base == reinterpret_cast<std::uint64_t>(address);
}

bool Registrations::remove(MemoryKey key, const void* address) {
  const std::lock_guard lock(mutex_);
  Registration found;
  if (!matches(key, address, found)) return false;
  const std::uint32_t place = key & (kMostRegions - 1);
  view_.entry(place).key.store(0, std::memory_order_release);
  version_.fetch_add(1, std::memory_order_acq_rel);
  free_.push_back(place);
  return true;
}

bool Registrations::set_access(MemoryKey key, const void* address, std::uint64_t tag, std::uint64_t enables) {
  const std::lock_guard lock(mutex_);
  Registration found;
  if (!matches(key, address, found)) return false;
  view_.entry(key & (kMostRegions - 1)).access.store(access_of(tag, enables), std::memory_order_release);
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
    if (entry.key.load(std::memory_order_relaxed) != 0 && entry.access.load(std::memory_order_relaxed) >> 2 == tag)
      return true;
  }
  return false;
}

}  // namespace viaduct::via
