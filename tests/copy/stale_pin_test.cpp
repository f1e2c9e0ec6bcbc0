// What a stale pin does to real copies, and that the watch prevents it. The fake driver pins pages as a device's driver
// does, so each case is first shown to go wrong with a cache that keeps everything blindly: a test that cannot fail
// would prove nothing.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/child.hpp"
#include "copy/fake_cuda/fake_gpu.hpp"

namespace viaduct::copy {
namespace {

using testing::copy_by;
using testing::fake;
using testing::Mapping;
using testing::OnFakeGpu;
using testing::Submitted;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using Keep = PinCache::Keep;

constexpr std::size_t kSize = 1 << 20;

enum class Outcome { right, wrong, not_possible };

Outcome judged(bool right) {
  return right ? Outcome::right : Outcome::wrong;
}

class StalePin : public OnFakeGpu {
 protected:
  static std::unique_ptr<CudaChannel> keeping(Keep keep) {
    CudaSettings with = settings();
    with.keep = keep;
    return channel(with);
  }

  template <class Case>
  void goes_wrong_blindly_and_right_watched(Case run_case) {
    const HangGuard guard;
    const auto run = [&](Keep keep) {
      for (int tries = 0;; ++tries) try {
          return run_case(*keeping(keep));
        } catch (const testing::PlaceTaken&) {  // by another thread, between unmapping and mapping
          if (tries == 10) throw;
        }
    };
    const Outcome blindly = run(Keep::everything);
    if (blindly == Outcome::not_possible)
      GTEST_SKIP() << "NOT TESTED: this allocator does not hand out the same address";
    EXPECT_EQ(blindly, Outcome::wrong) << "this case does not test anything";
    EXPECT_EQ(run(Keep::watched), Outcome::right);
    EXPECT_EQ(run(Keep::stable), Outcome::right);
  }
};

TEST_F(StalePin, SourceUnmappedAndMappedAgain) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    Mapping source(kSize);
    const Mapping target(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    void* const place = source.data();
    source.unmap();
    const Mapping again(kSize, place);
    again.fill(2);
    EXPECT_EQ(copy_by(channel, again.data(), target.data(), kSize), 0);
    return judged(target.holds(2));
  });
}

TEST_F(StalePin, DestinationUnmappedAndMappedAgain) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    const Mapping source(kSize);
    Mapping target(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    void* const place = target.data();
    target.unmap();
    const Mapping again(kSize, place);
    again.fill(9);
    EXPECT_EQ(copy_by(channel, source.data(), again.data(), kSize), 0);
    return judged(again.holds(1));
  });
}

TEST_F(StalePin, FreedAndAllocatedAgain) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    constexpr std::size_t kAlwaysMapped = std::size_t{33} << 20;  // beyond malloc's largest threshold
    const Mapping target(kAlwaysMapped);
    auto* first = static_cast<unsigned char*>(std::malloc(kAlwaysMapped));
    std::memset(first, 1, kAlwaysMapped);
    EXPECT_EQ(copy_by(channel, first, target.data(), kAlwaysMapped), 0);
    const auto place = reinterpret_cast<std::uintptr_t>(first);
    std::free(first);
    auto* const second = static_cast<unsigned char*>(std::malloc(kAlwaysMapped));
    const bool same = reinterpret_cast<std::uintptr_t>(second) == place;
    std::memset(second, 2, kAlwaysMapped);
    EXPECT_EQ(copy_by(channel, second, target.data(), kAlwaysMapped), 0);
    std::free(second);
    return same ? judged(target.holds(2)) : Outcome::not_possible;
  });
}

TEST_F(StalePin, MovedAwayAndItsPlaceUsedAgain) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    Mapping source(kSize);
    const Mapping target(kSize), target_of_moved(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    const Mapping elsewhere(kSize);
    void* const place = source.data();
    EXPECT_EQ(::mremap(place, kSize, kSize, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere.data()), elsewhere.data());
    source.forget();
    const Mapping again(kSize, place);
    again.fill(2);
    EXPECT_EQ(copy_by(channel, again.data(), target.data(), kSize), 0);
    EXPECT_EQ(copy_by(channel, elsewhere.data(), target_of_moved.data(), kSize), 0);
    EXPECT_TRUE(target_of_moved.holds(1));
    return judged(target.holds(2));
  });
}

TEST_F(StalePin, MappedOver) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    const Mapping source(kSize), target(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    EXPECT_EQ(::mmap(source.data(), kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              source.data());
    source.fill(2);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    return judged(target.holds(2));
  });
}

TEST_F(StalePin, ContentsGivenUp) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    const Mapping source(kSize), target(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    ::madvise(source.data(), kSize, MADV_DONTNEED);  // reads as zeros from now on
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    const bool source_right = target.holds(0);
    ::madvise(target.data(), kSize, MADV_DONTNEED);
    source.fill(3);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    return judged(source_right && target.holds(3));
  });
}

// A range of which only a part changed: the rest of its copies must be right as well.
TEST_F(StalePin, AHoleInTheMiddle) {
  goes_wrong_blindly_and_right_watched([](CudaChannel& channel) {
    const Mapping source(kSize), target(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    (void)::mmap(source.data() + kSize / 2, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0);
    source.fill(2);
    EXPECT_EQ(copy_by(channel, source.data(), target.data(), kSize), 0);
    return judged(target.holds(2));
  });
}

// The kernel gives the child of a fork copies of pinned pages and leaves the originals to the parent, so here even a
// blind cache is right; on a kernel that did it the other way round the parent's next write would move it away.
TEST_F(StalePin, ForkLeavesThePinnedPagesToTheParent) {
  for (const Keep keep : {Keep::everything, Keep::watched}) {
    const auto channel = keeping(keep);
    const Mapping source(kSize), target(kSize);
    source.fill(1);
    EXPECT_EQ(copy_by(*channel, source.data(), target.data(), kSize), 0);
    int ready[2], go[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(go), 0);
    Child child([&] {
      CHILD_EXPECT(source.holds(1));
      source.fill(7);
      char byte = 0;
      CHILD_EXPECT(::write(ready[1], &byte, 1) == 1);
      CHILD_EXPECT(::read(go[0], &byte, 1) == 1);
      CHILD_EXPECT(source.holds(7));
      return 0;
    });
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    source.fill(2);
    target.fill(9);
    EXPECT_EQ(copy_by(*channel, source.data(), target.data(), kSize), 0);
    EXPECT_TRUE(target.holds(2));
    EXPECT_EQ(::write(go[1], &byte, 1), 1);
    EXPECT_EQ(child.wait(), 0);
    for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
  }
}

TEST_F(StalePin, WatchedMemoryIsPinnedOnce) {
  const auto channel = keeping(Keep::watched);
  const Mapping source(kSize), target(kSize);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(copy_by(*channel, source.data(), target.data(), kSize), 0);
  EXPECT_LE(fake().calls("cuMemHostRegister"), 2);
}

// Nothing holds on to memory that the program has given back, even if no further copy comes.
TEST_F(StalePin, UnmappedMemoryIsUnpinnedSoon) {
  const HangGuard guard;
  const auto channel = keeping(Keep::watched);
  Mapping source(kSize);
  const Mapping target(kSize);
  EXPECT_EQ(copy_by(*channel, source.data(), target.data(), kSize), 0);
  const int before = fake().calls("cuMemHostUnregister");
  source.unmap();
  while (fake().calls("cuMemHostUnregister") == before) ::sched_yield();
}

// The end of an operation runs the program's code in the channel's own thread, which may free what was copied.
TEST_F(StalePin, TheChannelsThreadMayUnmapWatchedMemory) {
  const HangGuard guard;
  const auto channel = keeping(Keep::watched);
  static std::atomic<unsigned char*> to_unmap{nullptr};
  auto* const hook = OperationRecord::after_finish.exchange([] {
    if (unsigned char* const memory = to_unmap.exchange(nullptr)) ::munmap(memory, kSize);
  });
  for (int round = 0; round < 50; ++round) {
    Mapping source(kSize);
    const Mapping target(kSize);
    source.fill(static_cast<unsigned char>(round));
    to_unmap = source.data();
    EXPECT_EQ(copy_by(*channel, source.data(), target.data(), kSize), 0);
    source.forget();
    EXPECT_TRUE(target.holds(static_cast<unsigned char>(round)));
    while (to_unmap.load() != nullptr) ::sched_yield();  // the operation ends a moment before its hook runs
  }
  OperationRecord::after_finish.store(hook);
}

// So does code that waits there for another operation, which nobody else would do.
TEST_F(StalePin, TheChannelsThreadMayWaitForAnotherOperation) {
  const HangGuard guard;
  const auto channel = keeping(Keep::watched);
  static CudaChannel* gpu = nullptr;
  static const Mapping* inner = nullptr;
  static std::atomic<int> nested{0};
  const Mapping source(kSize), target(kSize), inner_target(kSize);
  gpu = channel.get();
  inner = &inner_target;
  nested = 0;
  source.fill(4);
  static const unsigned char* from = nullptr;
  from = source.data();
  auto* const hook = OperationRecord::after_finish.exchange([] {
    if (nested.fetch_add(1) != 0) return;
    Submitted within(*gpu, from, inner->data(), kSize);
    while (!within.record().finished()) EXPECT_TRUE(gpu->help(within.record()));
    nested.store(100);
  });
  EXPECT_EQ(copy_by(*channel, source.data(), target.data(), kSize), 0);
  while (nested.load() < 100) ::sched_yield();
  OperationRecord::after_finish.store(hook);
  EXPECT_TRUE(target.holds(4));
  EXPECT_TRUE(inner_target.holds(4));
}

// Threads that map, copy, check and unmap, and so are given each other's addresses all the time.
TEST_F(StalePin, ManyThreadsMapCopyAndUnmap) {
  const HangGuard guard;
  const auto channel = keeping(Keep::watched);
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(viaduct::testing::kSanitized ? 1000 : 2000);
  std::atomic<int> copies{0}, wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed]() mutable {
      while (std::chrono::steady_clock::now() < until) {
        seed = seed * 1664525 + 1013904223;
        const std::size_t length = ((seed >> 8 & 31) + 1) * 4096;
        const auto byte = static_cast<unsigned char>(seed >> 16 | 1);
        const Mapping source(length), target(length);
        for (int use = 0; use < 2; ++use) {
          source.fill(static_cast<unsigned char>(byte + use));
          if (copy_by(*channel, source.data(), target.data(), length) != 0) ++wrong;
          if (!target.holds(static_cast<unsigned char>(byte + use))) ++wrong;
          ++copies;
        }
        if ((seed & 0x100000) != 0) ::madvise(target.data(), length, MADV_DONTNEED);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(copies, 50);
}

}  // namespace
}  // namespace viaduct::copy
