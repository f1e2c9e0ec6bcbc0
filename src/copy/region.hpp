// Engine-owned memory: what adma_alloc gives, in sealed segments that a peer of a link may map.
//
// From kOwnRegionFrom on an allocation is a region of its own; smaller ones share regions of kSlab bytes. Nothing about
// an allocation is kept in the shared bytes, because a peer may write there: the lists below are private. Ids name a
// region for the life of the process and are never used twice, so a peer can never mistake a new region for an old one.
//
// After fork the child's list is empty: what the parent allocated stays mapped, and shared with the parent, but is
// ordinary memory there, and freeing it there does nothing.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/segment.hpp"

namespace viaduct::copy {

constexpr std::uint64_t kRegionLayout = layout_hash("viaduct region 1: bytes");

struct Region {
  Region(std::uint64_t given_id, Segment given) : id(given_id), segment(std::move(given)) {}

  const std::uint64_t id;
  const Segment segment;

  std::byte* base() const { return segment.payload().data(); }
  std::size_t size() const { return segment.payload().size(); }
};

// Told of regions as they come and go, each time with the heap's lock held; gone means: about to be unmapped.
class RegionWatcher {
 public:
  virtual ~RegionWatcher() = default;
  virtual void region_made(const Region& region) = 0;
  virtual void region_gone(const Region& region) = 0;
};

class RegionHeap {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kPage = 4096;  // also the alignment of allocations that long
  static constexpr std::size_t kSlab = std::size_t{4} << 20;
  static constexpr std::size_t kOwnRegionFrom = std::size_t{1} << 20;

  static RegionHeap& process();

  RegionHeap() = default;
  RegionHeap(const RegionHeap&) = delete;
  RegionHeap& operator=(const RegionHeap&) = delete;

  Result<void*> allocate(std::size_t length);  // zeroed
  enum class Freed { yes, inherited, unknown };
  Freed free(void* memory);

  // The region that holds all of [address, address + length); none for ordinary memory.
  std::shared_ptr<const Region> find(const void* address, std::size_t length) const;

  // Moves whenever a region goes: what was found earlier may be looked up again only when this has changed.
  std::uint64_t removals() const { return removals_.load(std::memory_order_acquire); }
  bool alive(std::uint64_t id) const;

  // From now on, beginning with the regions there are. One watcher per process; a forked child has none.
  void tell(RegionWatcher& watcher);

  std::size_t regions() const;  // for tests

 private:
  // A region and who has which part of it. Gaps and uses are by offset.
  struct Entry {
    std::shared_ptr<const Region> region;
    std::map<std::size_t, std::size_t> gaps;
    std::map<std::size_t, std::size_t> uses;
    std::size_t touched = 0;  // bytes from here on were never given out: still zero
    bool shared = false;      // a slab
  };
  using Entries = std::map<const std::byte*, Entry>;  // by base address

  Result<Entries::iterator> add_region(std::size_t size, bool shared);
  void* take_from(Entry& entry, std::size_t length, std::size_t alignment);
  void give_back(Entries::iterator entry, std::size_t offset);
  Entries::const_iterator entry_of(const void* address) const;
  void abandon_parents();

  mutable std::mutex mutex_;
  Entries entries_;
  std::map<const std::byte*, std::size_t> inherited_;  // what a parent allocated: addresses and sizes
  RegionWatcher* watcher_ = nullptr;
  std::uint64_t next_id_ = 1;
  std::atomic<std::size_t> count_{0};  // of entries: programs without regions pay one load
  std::atomic<std::uint64_t> removals_{0};
  friend struct RegionForkHooks;
};

}  // namespace viaduct::copy
