#include "copy/region.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>

namespace viaduct::copy {

namespace {

constexpr std::size_t kLongest = std::size_t{1} << 46;  // beyond the address space: not worth asking the kernel

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

struct RegionForkHooks {
  static void before() { RegionHeap::process().mutex_.lock(); }
  static void in_parent() { RegionHeap::process().mutex_.unlock(); }
  static void in_child() { RegionHeap::process().abandon_parents(), RegionHeap::process().mutex_.unlock(); }
};

RegionHeap& RegionHeap::process() {
  static auto* const heap = new RegionHeap;  // never destroyed: memory outlives every static object
  static const int hooked =
      ::pthread_atfork(RegionForkHooks::before, RegionForkHooks::in_parent, RegionForkHooks::in_child);
  (void)hooked;
  return *heap;
}

// The mappings stay: the child may hold pointers into them.
void RegionHeap::abandon_parents() {
  watcher_ = nullptr;
  for (auto& [base, entry] : entries_) {
    inherited_.emplace(base, entry.region->size());
    (void)new std::shared_ptr<const Region>(std::move(entry.region));
  }
  entries_.clear();
  count_.store(0, std::memory_order_relaxed);
  removals_.fetch_add(1, std::memory_order_release);
}

Result<void*> RegionHeap::allocate(std::size_t length) {
  if (length > kLongest) return Error::from_code(ENOMEM, fmt::format("allocate {} bytes", length));
  const std::size_t alignment = length >= kPage ? kPage : kAlignment;
  const std::size_t size = round_up(std::max<std::size_t>(length, 1), alignment);
  const std::lock_guard lock(mutex_);
  if (size < kOwnRegionFrom)
    for (auto& [base, entry] : entries_)
      if (entry.shared)
        if (void* const memory = take_from(entry, size, alignment); memory != nullptr) return memory;
  const bool shared = size < kOwnRegionFrom;
  VIADUCT_TRY(const auto added, add_region(shared ? kSlab : size, shared));
  return take_from(added->second, size, alignment);
}

Result<RegionHeap::Entries::iterator> RegionHeap::add_region(std::size_t size, bool shared) {
  const bool huge = size >= kOwnRegionFrom;
  VIADUCT_TRY(auto segment, Segment::create({.name = "viaduct-region",
                                             .layout = kRegionLayout,
                                             .payload_size = size,
                                             .huge_pages = huge ? HugePages::prefer : HugePages::never}));
  Entry entry;
  entry.region = std::make_shared<const Region>(next_id_++, std::move(segment));
  entry.gaps.emplace(0, entry.region->size());
  entry.shared = shared;
  const std::byte* const base = entry.region->base();
  count_.fetch_add(1, std::memory_order_relaxed);
  if (watcher_ != nullptr) watcher_->region_made(*entry.region);
  return entries_.emplace(base, std::move(entry)).first;
}

// The first gap that is large enough. The payload starts on a page, so offsets align as addresses do.
void* RegionHeap::take_from(Entry& entry, std::size_t length, std::size_t alignment) {
  for (const auto& [start, size] : entry.gaps) {
    const std::size_t at = round_up(start, alignment);
    if (at + length > start + size) continue;
    const std::size_t gap_start = start, gap_end = start + size;
    entry.gaps.erase(gap_start);
    if (at > gap_start) entry.gaps.emplace(gap_start, at - gap_start);
    if (at + length < gap_end) entry.gaps.emplace(at + length, gap_end - at - length);
    entry.uses.emplace(at, length);
    std::byte* const memory = entry.region->base() + at;
    if (at < entry.touched) std::memset(memory, 0, std::min(length, entry.touched - at));
    entry.touched = std::max(entry.touched, at + length);
    return memory;
  }
  return nullptr;
}

RegionHeap::Freed RegionHeap::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = entry_of(memory);
  if (found != entries_.end()) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - found->first);
    const auto entry = entries_.find(found->first);
    if (!entry->second.uses.contains(offset)) return Freed::unknown;
    give_back(entry, offset);
    return Freed::yes;
  }
  auto old = inherited_.upper_bound(static_cast<const std::byte*>(memory));
  if (old == inherited_.begin()) return Freed::unknown;
  --old;
  return static_cast<const std::byte*>(memory) < old->first + old->second ? Freed::inherited : Freed::unknown;
}

// A region nobody uses any more is unmapped, except the only slab: the next small allocation would make it again.
void RegionHeap::give_back(Entries::iterator at, std::size_t offset) {
  Entry& entry = at->second;
  auto used = entry.uses.extract(offset);
  auto gap = entry.gaps.emplace(offset, used.mapped()).first;
  if (const auto next = std::next(gap); next != entry.gaps.end() && gap->first + gap->second == next->first) {
    gap->second += next->second;
    entry.gaps.erase(next);
  }
  if (gap != entry.gaps.begin())
    if (const auto previous = std::prev(gap); previous->first + previous->second == gap->first) {
      previous->second += gap->second;
      entry.gaps.erase(gap);
    }
  if (!entry.uses.empty()) return;
  const auto is_slab = [](const auto& other) { return other.second.shared; };
  if (entry.shared && std::count_if(entries_.begin(), entries_.end(), is_slab) == 1) return;
  if (watcher_ != nullptr) watcher_->region_gone(*entry.region);
  entries_.erase(at);
  count_.fetch_sub(1, std::memory_order_relaxed);
  removals_.fetch_add(1, std::memory_order_release);
}

RegionHeap::Entries::const_iterator RegionHeap::entry_of(const void* address) const {
  auto at = entries_.upper_bound(static_cast<const std::byte*>(address));
  if (at == entries_.begin()) return entries_.end();
  --at;
  return static_cast<const std::byte*>(address) < at->first + at->second.region->size() ? at : entries_.end();
}

std::shared_ptr<const Region> RegionHeap::find(const void* address, std::size_t length) const {
  if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto entry = entry_of(address);
  if (entry == entries_.end()) return nullptr;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - entry->first);
  if (length > entry->second.region->size() - offset) return nullptr;
  return entry->second.region;
}

bool RegionHeap::alive(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& entry) { return entry.second.region->id == id; });
}

void RegionHeap::tell(RegionWatcher& watcher) {
  const std::lock_guard lock(mutex_);
  watcher_ = &watcher;
  for (const auto& [base, entry] : entries_) watcher.region_made(*entry.region);
}

std::size_t RegionHeap::regions() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace viaduct::copy
