// What the copy benchmarks share: memory that is in the cache or surely not, timing, and sizes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace viaduct::bench {

// Prefaulted memory in huge pages where the system gives them.
class Memory {
 public:
  static Result<Memory> make(std::size_t size) {
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return Error::from_errno("memory for the benchmark");
    (void)::madvise(at, size, MADV_HUGEPAGE);
    std::memset(at, 1, size);
    return Memory(static_cast<std::byte*>(at), size);
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Memory(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  std::size_t size_;
};

// Two large buffers walked through by the message size, as in the paper: no copy finds its data in the cache.
// next(length) comes before the copy of that length: it makes sure that so much is left.
class ColdPair {
 public:
  static Result<ColdPair> make(std::size_t size) {
    VIADUCT_TRY(Memory source, Memory::make(size));
    VIADUCT_TRY(Memory target, Memory::make(size));
    return ColdPair(std::move(source), std::move(target));
  }
  void next(std::size_t length) {
    if (at_ + 2 * length > source_.size())
      at_ = 0;
    else
      at_ += length;
  }
  std::byte* source() const { return source_.data() + at_; }
  std::byte* target() const { return target_.data() + at_; }

 private:
  ColdPair(Memory source, Memory target) : source_(std::move(source)), target_(std::move(target)) {}
  Memory source_;
  Memory target_;
  std::size_t at_ = 0;
};

template <class Work>
double nanoseconds(Work&& work) {
  const std::uint64_t start = Clock::steady().now_ns();
  work();
  return static_cast<double>(Clock::steady().now_ns() - start);
}

inline std::string size_name(std::size_t bytes) {
  if (bytes >= (1 << 20)) return std::to_string(bytes >> 20) + " MB";
  if (bytes >= (1 << 10)) return std::to_string(bytes >> 10) + " KB";
  return std::to_string(bytes) + " B";
}

// As many repetitions as move about `bytes` in all, at least two.
inline int repetitions(std::size_t length, std::size_t bytes) {
  const std::size_t count = bytes / length;
  return static_cast<int>(count < 2 ? 2 : count > 20'000 ? 20'000 : count);
}

}  // namespace viaduct::bench
