// Memory of a device that does not exist: a file in memory. Its addresses are reserved in the program's address space,
// as the real driver does, but the program cannot touch them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace fake_cuda {

class DeviceMemory {
 public:
  static constexpr std::size_t kSize = std::size_t{128} << 20;

  bool open() {
    const std::lock_guard lock(mutex_);
    if (file_ >= 0) return true;
    file_ = ::memfd_create("fake-device", MFD_CLOEXEC);
    void* const reserved = ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file_ < 0 || ::ftruncate(file_, kSize) != 0 || reserved == MAP_FAILED) return false;
    base_ = reinterpret_cast<std::uintptr_t>(reserved);
    return true;
  }

  std::uintptr_t allocate(std::size_t length) {  // 0: out of memory
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kAlignment = 4096;
    std::uintptr_t at = base_;
    for (const auto& [begin, size] : allocations_) {
      if (begin - at >= length) break;
      at = (begin + size + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (length == 0 || length > kSize || at + length > base_ + kSize) return 0;
    allocations_[at] = length;
    return at;
  }

  bool free(std::uintptr_t memory) {
    const std::lock_guard lock(mutex_);
    return allocations_.erase(memory) == 1;
  }

  bool range_of(std::uintptr_t address, std::uintptr_t& begin, std::size_t& length) {
    const std::lock_guard lock(mutex_);
    auto found = allocations_.upper_bound(address);
    if (found == allocations_.begin()) return false;
    --found;
    if (address >= found->first + found->second) return false;
    begin = found->first;
    length = found->second;
    return true;
  }

  bool covers(std::uintptr_t address, std::size_t length) {
    std::uintptr_t begin = 0;
    std::size_t size = 0;
    return range_of(address, begin, size) && address + length <= begin + size;
  }

  int file() const { return file_; }
  std::uint64_t offset_of(std::uintptr_t address) const { return address - base_; }

  bool copy(std::uintptr_t to, std::uintptr_t from, std::size_t length) {
    std::vector<char> bytes(length);
    return ::pread(file_, bytes.data(), length, static_cast<off_t>(offset_of(from))) == static_cast<ssize_t>(length) &&
           ::pwrite(file_, bytes.data(), length, static_cast<off_t>(offset_of(to))) == static_cast<ssize_t>(length);
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> allocations_;
  std::uintptr_t base_ = 0;
  int file_ = -1;
};

}  // namespace fake_cuda
