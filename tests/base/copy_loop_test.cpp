#include "base/copy_loop.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/guarded_memory.hpp"
#include "base/random.hpp"

namespace viaduct {
namespace {

using testing::GuardedMemory;
using testing::Touching;

constexpr std::size_t kMargin = 64;
constexpr std::byte kUntouched{0xa5};

std::vector<std::byte> random_bytes(std::size_t size) {
  Random random(size);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

void copy_plainly(void* to, const void* from, std::size_t size) {
  copy_through_ring(to, from, size, Ahead::nothing);
}
void copy_asking_for_what_is_read(void* to, const void* from, std::size_t size) {
  copy_through_ring(to, from, size);
}
void copy_asking_for_both(void* to, const void* from, std::size_t size) {
  copy_through_ring(to, from, size, Ahead::both);
}
constexpr std::array kWays{copy_plainly, copy_asking_for_what_is_read, copy_asking_for_both, copy_past_caches};

TEST(CopyLoop, CopiesEverySizeAtEveryOffsetAndNotAByteMore) {
  constexpr std::size_t kMost = 5000, kOffsets = 41;
  const auto source = random_bytes(kMost + kOffsets);
  std::vector<std::byte> target(kMargin + kOffsets + kMost + kMargin);
  const std::vector<std::byte> margin(kMargin, kUntouched);
  for (std::size_t size = 0; size <= kMost; ++size)
    for (std::size_t offset = 0; offset < kOffsets; ++offset) {
      std::byte* const to = target.data() + kMargin + offset;
      const std::byte* const from = source.data() + (offset * 7 + size) % kOffsets;
      std::memset(to - kMargin, static_cast<int>(kUntouched), size + 2 * kMargin);
      kWays[offset % kWays.size()](to, from, size);
      ASSERT_TRUE(size == 0 || std::memcmp(to, from, size) == 0) << size << " at " << offset;
      ASSERT_EQ(std::memcmp(to - kMargin, margin.data(), kMargin), 0) << size << " at " << offset;
      ASSERT_EQ(std::memcmp(to + size, margin.data(), kMargin), 0) << size << " at " << offset;
    }
}

TEST(CopyLoop, NothingFromNowhereIsFine) {
  copy_through_ring(nullptr, nullptr, 0);
}

TEST(CopyLoop, ReadsNothingOutsideItsSource) {
  for (std::size_t size = 1; size <= 4096; ++size)
    for (const Touching side : {Touching::front_guard, Touching::back_guard}) {
      static GuardedMemory pages(4096);
      std::vector<std::byte> target(size);
      const auto from = side == Touching::front_guard ? pages.bytes().first(size) : pages.bytes().last(size);
      for (const auto way : kWays) {  // some ask for lines beyond, which is no access
        way(target.data(), from.data(), size);
        way(from.data(), target.data(), size);
      }
    }
}

TEST(CopyLoop, CopiesLargeOnes) {
  Random random(1);
  const auto source = random_bytes(4 << 20);
  std::vector<std::byte> target(source.size());
  for (int i = 0; i < 50; ++i) {
    const std::size_t size = random.below(source.size() - 100), from = random.below(100), to = random.below(100);
    std::memset(target.data(), 0, target.size());
    kWays[static_cast<std::size_t>(i) % kWays.size()](target.data() + to, source.data() + from, size);
    ASSERT_EQ(std::memcmp(target.data() + to, source.data() + from, size), 0) << size << ' ' << from << ' ' << to;
    ASSERT_EQ(target[to + size], std::byte{0});
  }
}

}  // namespace
}  // namespace viaduct
