#include "copy/cost_model.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "copy/kernels.hpp"

namespace viaduct::copy {

namespace {

std::atomic<bool> machine_measured{false};

using Kernel = void (*)(std::byte*, const std::byte*, std::size_t);

constexpr std::size_t kMostSize = std::size_t{4} << 20;

class Buffer {
 public:
  explicit Buffer(std::size_t size) : size_(size) {
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }
  ~Buffer() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::byte* data() const { return data_; }

 private:
  std::size_t size_;
  std::byte* data_;
};

// The best of a few: noise only ever adds.
double nanoseconds(Kernel kernel, std::byte* to, const std::byte* from, std::size_t size, int times) {
  const Clock& clock = Clock::steady();
  double best = 1e18;
  for (int i = 0; i < times; ++i) {
    const std::uint64_t start = clock.now_ns();
    kernel(to, from, size);
    best = std::min(best, static_cast<double>(clock.now_ns() - start));
  }
  return best;
}

Cost fit(Kernel kernel, std::byte* to, const std::byte* from, std::size_t small, std::size_t large) {
  const double low = nanoseconds(kernel, to, from, small, 8), high = nanoseconds(kernel, to, from, large, 8);
  const double slope = std::max((high - low) / static_cast<double>(large - small), 0.001);
  return {std::max(low - slope * static_cast<double>(small), 1.0), slope};
}

}  // namespace

// Streams by itself only what is too long for most caches: nobody knows yet whether less is faster that way.
CostModel CostModel::common() {
  return {{20, 0.03}, {200, 0.08}, 4 * kMostSize};
}

CostModel CostModel::measure() {
  CostModel model = common();
  const Buffer source(kMostSize), target(kMostSize);
  if (source.data() == nullptr || target.data() == nullptr) return model;
  const Kernel stream = stream_kernels().front().copy;
  model.keep = fit(copy_kept, target.data(), source.data(), 4096, 128 << 10);
  model.stream = fit(stream, target.data(), source.data(), 64 << 10, kMostSize);
  for (std::size_t size = kMostSize; size >= (512 << 10); size /= 2) {
    // Each kernel twice in a row, so that it finds the cache as it left it itself.
    const double kept = nanoseconds(copy_kept, target.data(), source.data(), size, 3);
    const double streamed = nanoseconds(stream, target.data(), source.data(), size, 3);
    if (streamed > kept) break;
    model.stream_from = size;
  }
  return model;
}

const CostModel& CostModel::machine() {
  static const CostModel model = [] {
    machine_measured.store(true, std::memory_order_relaxed);
    return measure();
  }();
  return model;
}

bool CostModel::measured() {
  return machine_measured.load(std::memory_order_relaxed);
}

}  // namespace viaduct::copy
