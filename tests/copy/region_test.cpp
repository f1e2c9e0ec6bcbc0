// Engine-owned memory: alignment, zeroes, finding, freeing, fork.
#include "copy/region.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <viaduct/adma.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "base/child.hpp"
#include "base/random.hpp"

namespace viaduct::copy {
namespace {

using testing::Child;

bool all_zero(const void* memory, std::size_t length) {
  const auto* const bytes = static_cast<const char*>(memory);
  return std::all_of(bytes, bytes + length, [](char c) { return c == 0; });
}

TEST(Region, AlignedZeroedAndFound) {
  RegionHeap heap;
  for (const std::size_t length : {0ul, 1ul, 63ul, 64ul, 4095ul, 4096ul, 5000ul, 1ul << 20, (3ul << 20) + 5}) {
    auto memory = heap.allocate(length);
    ASSERT_TRUE(memory.ok()) << memory.error().message();
    const auto address = reinterpret_cast<std::uintptr_t>(*memory);
    EXPECT_EQ(address % (length >= 4096 ? 4096 : 64), 0u) << length;
    EXPECT_TRUE(all_zero(*memory, length));
    const auto region = heap.find(*memory, length);
    ASSERT_NE(region, nullptr) << length;
    EXPECT_GE(reinterpret_cast<std::uintptr_t>(region->base()) + region->size(), address + length);
    std::memset(*memory, 0xff, length);
  }
}

TEST(Region, SmallOnesShareLargeOnesDoNot) {
  RegionHeap heap;
  void* const a = *heap.allocate(100);
  void* const b = *heap.allocate(10'000);
  void* const c = *heap.allocate(2 << 20);
  EXPECT_EQ(heap.find(a, 100)->id, heap.find(b, 10'000)->id);
  EXPECT_NE(heap.find(a, 100)->id, heap.find(c, 2 << 20)->id);
  EXPECT_EQ(heap.regions(), 2u);
}

TEST(Region, OrdinaryMemoryIsNotFound) {
  RegionHeap heap;
  int local = 0;
  EXPECT_EQ(heap.find(&local, sizeof local), nullptr);
  auto* const memory = static_cast<std::byte*>(*heap.allocate(2 << 20));
  EXPECT_EQ(heap.find(&local, sizeof local), nullptr);
  const auto region = heap.find(memory, 1);
  EXPECT_EQ(heap.find(memory, region->size() + 1), nullptr) << "reaches beyond the region";
  EXPECT_EQ(heap.find(memory - 1, 1), nullptr);
  EXPECT_EQ(heap.find(memory + region->size(), 1), nullptr);
}

TEST(Region, ReusedMemoryIsZeroAgainAndIdsAreNot) {
  RegionHeap heap;
  void* const keep = *heap.allocate(64);
  for (int i = 0; i < 3; ++i) {
    void* const memory = *heap.allocate(1000);
    EXPECT_TRUE(all_zero(memory, 1000));
    std::memset(memory, 1, 1000);
    EXPECT_EQ(heap.free(memory), RegionHeap::Freed::yes);
  }
  std::set<std::uint64_t> ids{heap.find(keep, 1)->id};
  for (int i = 0; i < 5; ++i) {
    void* const memory = *heap.allocate(2 << 20);
    EXPECT_TRUE(ids.insert(heap.find(memory, 1)->id).second);
    const std::uint64_t removals = heap.removals();
    EXPECT_EQ(heap.free(memory), RegionHeap::Freed::yes);
    EXPECT_NE(heap.removals(), removals);
  }
}

TEST(Region, WrongFreesDoNothing) {
  RegionHeap heap;
  auto* const memory = static_cast<std::byte*>(*heap.allocate(1000));
  int local = 0;
  EXPECT_EQ(heap.free(&local), RegionHeap::Freed::unknown);
  EXPECT_EQ(heap.free(memory + 64), RegionHeap::Freed::unknown);
  EXPECT_EQ(heap.free(memory), RegionHeap::Freed::yes);
  EXPECT_EQ(heap.free(memory), RegionHeap::Freed::unknown) << "twice";
}

// Random sizes and lifetimes: no two allocations overlap, and everything goes back.
TEST(Region, ManySizesNeverOverlap) {
  RegionHeap heap;
  Random random(11);
  struct Piece {
    unsigned char* memory;
    std::size_t length;
    unsigned char mark;
  };
  std::vector<Piece> pieces;
  for (int round = 0; round < 3000; ++round) {
    if (pieces.size() < 100 || random.chance(0.5)) {
      const std::size_t length = 1 + random.below(random.chance(0.1) ? 60'000 : 500);
      auto* const memory = static_cast<unsigned char*>(*heap.allocate(length));
      ASSERT_TRUE(all_zero(memory, length));
      const auto mark = static_cast<unsigned char>(1 + random.below(255));
      std::memset(memory, mark, length);
      pieces.push_back({memory, length, mark});
    } else {
      const std::size_t victim = random.below(pieces.size());
      const Piece piece = pieces[victim];
      const auto intact = [&](unsigned char c) { return c == piece.mark; };
      ASSERT_TRUE(std::all_of(piece.memory, piece.memory + piece.length, intact));
      ASSERT_EQ(heap.free(piece.memory), RegionHeap::Freed::yes);
      pieces[victim] = pieces.back();
      pieces.pop_back();
    }
  }
  for (const Piece& piece : pieces) EXPECT_EQ(heap.free(piece.memory), RegionHeap::Freed::yes);
  EXPECT_EQ(heap.regions(), 1u) << "one slab stays for the next small allocation";
}

TEST(Region, FromManyThreads) {
  RegionHeap heap;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&heap, t] {
      Random random(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 200; ++i) {
        const std::size_t length = 1 + random.below(20'000);
        void* const memory = *heap.allocate(length);
        EXPECT_NE(heap.find(memory, length), nullptr);
        std::memset(memory, t, length);
        EXPECT_EQ(heap.free(memory), RegionHeap::Freed::yes);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Region, CFunctions) {
  adma_free(nullptr);
  void* const memory = adma_alloc(100);
  ASSERT_NE(memory, nullptr);
  adma_free(memory);
  errno = 0;
  EXPECT_EQ(adma_alloc(SIZE_MAX), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ::testing::internal::CaptureStderr();
  int local = 0;
  adma_free(&local);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("adma_free"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST(Region, AfterForkTheParentsIsOrdinaryMemory) {
  auto* const memory = static_cast<char*>(adma_alloc(5000));
  memory[0] = 'p';
  Child child([&] {
    CHILD_EXPECT(RegionHeap::process().find(memory, 5000) == nullptr);
    CHILD_EXPECT(memory[0] == 'p');
    adma_free(memory);  // does nothing
    memory[0] = 'c';
    void* const own = adma_alloc(5000);
    CHILD_EXPECT(own != nullptr && own != memory);
    CHILD_EXPECT(RegionHeap::process().find(own, 5000) != nullptr);
    adma_free(own);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(memory[0], 'c') << "it stays shared with the parent";
  EXPECT_NE(RegionHeap::process().find(memory, 5000), nullptr);
  adma_free(memory);
}

TEST(Region, ExhaustionIsAnError) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  Child child([] {
    // What a program of many threads has reserved already.
    CHILD_EXPECT(::mmap(nullptr, 2ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHILD_EXPECT(testing::limit_more_address_space(1u << 30));
    errno = 0;
    CHILD_EXPECT(adma_alloc(std::size_t{8} << 30) == nullptr);
    CHILD_EXPECT(errno == ENOMEM);
    void* const small = adma_alloc(1 << 20);
    CHILD_EXPECT(small != nullptr);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace viaduct::copy
