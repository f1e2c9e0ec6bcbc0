// The host memory that an adapter may reach: registered regions, and nothing outside them.
//
// A region has a number that is not used again soon: place in the table in its lower bits, how often that place was
// used before above them. So an address of memory that has been unregistered is refused even when its place is taken
// again.
//
// Any processor may look an address up while another thread adds or removes a region:
//   R1  add() stores the number last; pairs with A1 in at().
//   A2  at() looks at the number again, after base and size (acquire); if it is still the same, so were they.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "nic/rings.hpp"

namespace viaduct::nic {

class HostMemory {
 public:
  static constexpr unsigned kMostRegions = 64;
  static constexpr unsigned kRegionShift = 48;

  static std::uint64_t region_of(HostAddress address) { return address >> kRegionShift; }

  // From any thread.
  std::optional<HostAddress> add(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (size == 0 || size >> kRegionShift != 0) return std::nullopt;
    for (std::uint64_t i = 0; i < kMostRegions; ++i) {
      Region& region = regions_[i];
      if (region.number.load(std::memory_order_relaxed) != kNone) continue;
      const std::uint64_t number = region.used++ % kUses * kMostRegions + i;
      region.base.store(static_cast<std::byte*>(memory), std::memory_order_release);
      region.size.store(size, std::memory_order_release);
      region.number.store(number, std::memory_order_release);  // R1
      return number << kRegionShift;
    }
    return std::nullopt;
  }

  // Nobody may be moving bytes of it any more. False: there is no region of that address.
  bool remove(HostAddress address) {
    const std::lock_guard lock(mutex_);
    Region& region = regions_[region_of(address) % kMostRegions];
    if (region.number.load(std::memory_order_relaxed) << kRegionShift != address) return false;
    region.number.store(kNone, std::memory_order_relaxed);
    return true;
  }

  // Null where any byte of it is outside.
  std::byte* at(HostAddress address, std::uint32_t length) const {
    const std::uint64_t number = region_of(address);
    const Region& region = regions_[number % kMostRegions];
    if (region.number.load(std::memory_order_acquire) != number) return nullptr;  // A1
    std::byte* const base = region.base.load(std::memory_order_acquire);
    const std::uint64_t size = region.size.load(std::memory_order_acquire);
    if (region.number.load(std::memory_order_relaxed) != number) return nullptr;  // A2
    const std::uint64_t offset = address & ((std::uint64_t{1} << kRegionShift) - 1);
    if (offset > size || length > size - offset) return nullptr;
    return base + offset;
  }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;
  static constexpr std::uint64_t kUses = (std::uint64_t{1} << (64 - kRegionShift)) / kMostRegions;

  struct Region {
    std::atomic<std::uint64_t> number{kNone};
    std::atomic<std::byte*> base{nullptr};
    std::atomic<std::uint64_t> size{0};
    std::uint64_t used = 0;  // under the lock
  };
  std::mutex mutex_;
  std::array<Region, kMostRegions> regions_{};
};

}  // namespace viaduct::nic
