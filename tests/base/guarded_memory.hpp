// Shared memory between two pages that must not be touched: whoever leaves it, by one byte, is ended by SIGSEGV.
//
// Memory that is not a whole number of pages can touch only one of the two guards; the slack at the other side is
// filled with a pattern and looked at afterwards.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>

namespace viaduct::testing {

enum class Touching { front_guard, back_guard };

class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t size, Touching touching = Touching::back_guard)
      : pages_((size + kPage - 1) / kPage * kPage) {
    void* const all = ::mmap(nullptr, pages_ + 2 * kPage, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    start_ = static_cast<std::byte*>(all) + kPage;
    if (::mprotect(start_, pages_, PROT_READ | PROT_WRITE) != 0) std::abort();
    const std::size_t slack = pages_ - size;
    memory_ = {touching == Touching::front_guard ? start_ : start_ + slack, size};
    slack_ = {touching == Touching::front_guard ? start_ + size : start_, slack};
    std::fill(slack_.begin(), slack_.end(), kPattern);
  }
  ~GuardedMemory() { ::munmap(start_ - kPage, pages_ + 2 * kPage); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::span<std::byte> bytes() const { return memory_; }
  void clear() { std::fill(memory_.begin(), memory_.end(), std::byte{0}); }
  bool slack_is_intact() const {
    return std::all_of(slack_.begin(), slack_.end(), [](std::byte b) { return b == kPattern; });
  }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::byte kPattern{0xa5};
  std::size_t pages_;
  std::byte* start_;
  std::span<std::byte> memory_;
  std::span<std::byte> slack_;
};

}  // namespace viaduct::testing
