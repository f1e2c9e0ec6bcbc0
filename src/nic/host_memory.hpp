// The host memory that an adapter may reach: registered regions, and nothing outside them.
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

  // From any thread. Regions stay until the adapter is gone.
  std::optional<HostAddress> add(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    if (count == kMostRegions || size == 0 || size >> kRegionShift != 0) return std::nullopt;
    regions_[count] = {static_cast<std::byte*>(memory), size};
    count_.store(count + 1, std::memory_order_release);  // R1: publishes the region; pairs with A1 in at()
    return HostAddress{count} << kRegionShift;
  }

  // Null where any byte of it is outside.
  std::byte* at(HostAddress address, std::uint32_t length) const {
    const std::uint64_t region = address >> kRegionShift;
    if (region >= count_.load(std::memory_order_acquire)) return nullptr;  // A1
    const std::uint64_t offset = address & ((std::uint64_t{1} << kRegionShift) - 1);
    const Region& place = regions_[region];
    if (offset > place.size || length > place.size - offset) return nullptr;
    return place.base + offset;
  }

 private:
  struct Region {
    std::byte* base;
    std::uint64_t size;
  };
  std::mutex mutex_;
  std::array<Region, kMostRegions> regions_{};
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace viaduct::nic
