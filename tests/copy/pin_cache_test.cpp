// The rules of the pin cache, on a pinner that only counts. What staleness does to real copies: stale_pin_test.cpp.
#include "copy/pin_cache.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "copy/fake_cuda/fake_gpu.hpp"

namespace viaduct::copy {
namespace {

using testing::Mapping;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using Keep = PinCache::Keep;

constexpr std::size_t kPage = 4096;

class CountingPinner final : public Pinner {
 public:
  int register_range(const AddressRange& range) override {
    if (refuse != 0) return refuse;
    const std::lock_guard lock(mutex_);
    for (const auto& [begin, end] : pinned_)
      if (AddressRange{begin, end}.overlaps(range)) ADD_FAILURE() << "pinned twice";
    pinned_.insert({range.begin, range.end});
    ++registered;
    return 0;
  }
  void unregister_range(const AddressRange& range) override {
    if (on_unregister) on_unregister();
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(pinned_.erase({range.begin, range.end}), 1u) << "unpinned what was not pinned";
    ++unregistered;
  }
  std::size_t pinned() const {
    const std::lock_guard lock(mutex_);
    return pinned_.size();
  }

  int refuse = 0;
  std::atomic<int> registered{0}, unregistered{0};
  std::function<void()> on_unregister;

 private:
  mutable std::mutex mutex_;
  std::set<std::pair<std::uintptr_t, std::uintptr_t>> pinned_;
};

class PinCacheTest : public ::testing::Test {
 protected:
  HangGuard guard_;
  CountingPinner pinner_;
};

void use(PinCache& cache, const void* address, std::size_t length) {
  EXPECT_TRUE(cache.pin(address, length));
}

int descriptors_of_kind(const std::string& kind) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += std::filesystem::read_symlink(entry.path(), ignored).string().find(kind) != std::string::npos;
  return count;
}

TEST_F(PinCacheTest, KeepsARangeAndWhatLiesInsideIt) {
  const Mapping memory(8 * kPage);
  PinCache cache(pinner_, {});
  for (int round = 0; round < 1000; ++round) {
    use(cache, memory.data(), memory.size());
    use(cache, memory.data() + kPage + 17, kPage);
    use(cache, memory.data() + memory.size() - 1, 1);
  }
  EXPECT_EQ(pinner_.registered, 1);
  EXPECT_EQ(cache.pinned_bytes(), 8 * kPage);
}

TEST_F(PinCacheTest, PinsWholePagesAndNoMore) {
  const Mapping memory(8 * kPage);
  PinCache cache(pinner_, {});
  use(cache, memory.data() + 2 * kPage - 1, 2);
  EXPECT_EQ(cache.pinned_bytes(), 2 * kPage);
}

TEST_F(PinCacheTest, DropsTheLeastRecentlyUsedBeyondItsBudget) {
  const Mapping memory(16 * kPage);
  PinCache cache(pinner_, {.budget = 4 * kPage});
  const auto range = [&](int i) { return memory.data() + static_cast<std::size_t>(i) * 4 * kPage; };
  use(cache, range(0), 2 * kPage);
  use(cache, range(1), 2 * kPage);
  use(cache, range(0), 2 * kPage);
  use(cache, range(2), 2 * kPage);  // instead of 1
  EXPECT_EQ(pinner_.registered, 3);
  EXPECT_EQ(cache.pinned_bytes(), 4 * kPage);
  use(cache, range(0), 2 * kPage);
  EXPECT_EQ(pinner_.registered, 3);
  use(cache, range(1), 2 * kPage);
  EXPECT_EQ(pinner_.registered, 4);
}

TEST_F(PinCacheTest, NeverDropsWhatIsInUse) {
  const Mapping memory(16 * kPage);
  PinCache cache(pinner_, {.budget = 4 * kPage});
  {
    const PinCache::Pin first = cache.pin(memory.data(), 3 * kPage);
    const PinCache::Pin second = cache.pin(memory.data() + 4 * kPage, 3 * kPage);
    const PinCache::Pin beyond = cache.pin(memory.data() + 8 * kPage, 8 * kPage);
    EXPECT_TRUE(first && second && beyond);
    EXPECT_EQ(pinner_.pinned(), 3u);
  }
  EXPECT_LE(cache.pinned_bytes(), 4 * kPage);
  EXPECT_EQ(pinner_.pinned(), cache.ranges());
}

TEST_F(PinCacheTest, ABudgetOfNothingKeepsNothing) {
  const Mapping memory(kPage);
  PinCache cache(pinner_, {.budget = 0});
  use(cache, memory.data(), kPage);
  use(cache, memory.data(), kPage);
  EXPECT_EQ(pinner_.registered, 2);
  EXPECT_EQ(pinner_.pinned(), 0u);
  EXPECT_FALSE(cache.keeps_ordinary_memory());
}

TEST_F(PinCacheTest, ReplacesAnIdleRangeThatOverlaps) {
  const Mapping memory(16 * kPage);
  PinCache cache(pinner_, {});
  use(cache, memory.data() + 2 * kPage, 4 * kPage);
  use(cache, memory.data() + 8 * kPage, 4 * kPage);
  use(cache, memory.data() + 4 * kPage, 6 * kPage);  // half of both
  EXPECT_EQ(pinner_.unregistered, 2);
  EXPECT_EQ(cache.ranges(), 1u);
  use(cache, memory.data(), kPage);  // beside, not overlapping
  use(cache, memory.data() + kPage, kPage);
  EXPECT_EQ(cache.ranges(), 3u);
}

TEST_F(PinCacheTest, RefusesWhatOverlapsARangeInUse) {
  const Mapping memory(8 * kPage);
  PinCache cache(pinner_, {});
  {
    const PinCache::Pin held = cache.pin(memory.data(), 4 * kPage);
    EXPECT_TRUE(cache.pin(memory.data() + kPage, kPage));
    EXPECT_EQ(cache.pin(memory.data() + 3 * kPage, 2 * kPage).error(), EBUSY);
  }
  use(cache, memory.data() + 3 * kPage, 2 * kPage);
}

TEST_F(PinCacheTest, PassesOnWhatThePinnerSays) {
  const Mapping memory(kPage);
  PinCache cache(pinner_, {});
  pinner_.refuse = ENOMEM;
  EXPECT_EQ(cache.pin(memory.data(), kPage).error(), ENOMEM);
  EXPECT_EQ(cache.ranges(), 0u);
  pinner_.refuse = 0;
  use(cache, memory.data(), kPage);
  EXPECT_EQ(cache.ranges(), 1u);
}

TEST_F(PinCacheTest, AFullTableMakesRoomUnlessAllIsInUse) {
  const Mapping memory((2 * PinCache::kMostRanges + 4) * kPage);
  PinCache cache(pinner_, {});
  for (std::size_t i = 0; i < PinCache::kMostRanges + 1; ++i) use(cache, memory.data() + 2 * i * kPage, kPage);
  EXPECT_EQ(cache.ranges(), PinCache::kMostRanges);
  std::vector<PinCache::Pin> held;
  for (std::size_t i = 0; i < PinCache::kMostRanges; ++i)
    held.push_back(cache.pin(memory.data() + 2 * i * kPage, kPage));
  EXPECT_EQ(cache.pin(memory.data() + 2 * PinCache::kMostRanges * kPage, kPage).error(), ENOSPC);
}

TEST_F(PinCacheTest, InvalidRangesGoWhenTheirLastUserGoes) {
  const Mapping memory(4 * kPage);
  PinCache cache(pinner_, {});
  {
    const PinCache::Pin held = cache.pin(memory.data(), 4 * kPage);
    cache.invalidate(memory.data() + kPage, 1);
    cache.reap();
    EXPECT_EQ(pinner_.unregistered, 0);
    EXPECT_EQ(cache.pin(memory.data(), kPage).error(), EBUSY);
  }
  EXPECT_EQ(pinner_.unregistered, 1);
}

TEST_F(PinCacheTest, WithoutAWatchOnlyStableMemoryStays) {
  const Mapping memory(8 * kPage);
  PinCache cache(pinner_, {.keep = Keep::stable});
  use(cache, memory.data(), kPage);
  use(cache, memory.data(), kPage);
  EXPECT_EQ(pinner_.registered, 2);
  cache.declare_stable(memory.data() + 4 * kPage, 4 * kPage);
  use(cache, memory.data() + 4 * kPage, kPage);
  use(cache, memory.data() + 4 * kPage, kPage);
  EXPECT_EQ(pinner_.registered, 3);
  cache.retract(memory.data() + 4 * kPage, 4 * kPage);
  cache.reap();
  EXPECT_EQ(pinner_.pinned(), 0u);
  use(cache, memory.data() + 4 * kPage, kPage);
  EXPECT_EQ(pinner_.pinned(), 0u);
}

TEST_F(PinCacheTest, AFilesPagesAreNotKept) {
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  PinCache cache(pinner_, {});
  use(cache, mapped, kPage);
  use(cache, mapped, kPage);
  EXPECT_EQ(pinner_.registered, 2);
  EXPECT_EQ(pinner_.pinned(), 0u);
  ::munmap(mapped, 4 * kPage);
  ::close(file);
}

TEST_F(PinCacheTest, SharedMemoryIsKeptUntilItIsUnmapped) {
  void* const mapped = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  PinCache cache(pinner_, {});
  use(cache, mapped, kPage);
  use(cache, mapped, kPage);
  EXPECT_EQ(pinner_.registered, 1);
  ::munmap(mapped, 4 * kPage);
  cache.reap();
  EXPECT_EQ(pinner_.pinned(), 0u);
}

// ---- the watch

// Every way to take memory away from the middle of a range.
TEST_F(PinCacheTest, NoticesEveryWayAMappingChanges) {
  const std::vector<std::pair<const char*, std::function<void(unsigned char*)>>> ways = {
      {"munmap", [](unsigned char* at) { ::munmap(at, kPage); }},
      {"mmap over it",
       [](unsigned char* at) { (void)::mmap(at, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); }},
      {"MADV_DONTNEED", [](unsigned char* at) { ::madvise(at, kPage, MADV_DONTNEED); }},
      {"MADV_FREE", [](unsigned char* at) { ::madvise(at, kPage, MADV_FREE); }},
      {"mremap",
       [](unsigned char* at) {
         void* const moved = ::mremap(at, kPage, 2 * kPage, MREMAP_MAYMOVE);
         EXPECT_NE(moved, MAP_FAILED);
         ::munmap(moved, 2 * kPage);
       }},
      {"mremap onto it",
       [](unsigned char* at) {
         void* const other = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         EXPECT_EQ(::mremap(other, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, at), at);
       }},
  };
  for (const auto& [name, change] : ways) {
    SCOPED_TRACE(name);
    CountingPinner pinner;
    const Mapping memory(8 * kPage);
    PinCache cache(pinner, {});
    use(cache, memory.data(), 8 * kPage);
    change(memory.data() + 3 * kPage);
    cache.reap();
    EXPECT_EQ(pinner.unregistered, 1);
    use(cache, memory.data(), kPage);  // and the rest can be watched again
    use(cache, memory.data(), kPage);
    EXPECT_EQ(pinner.registered, 2);
  }
}

TEST_F(PinCacheTest, ChangesBesideARangeDoNotTouchIt) {
  const Mapping memory(8 * kPage);
  PinCache cache(pinner_, {});
  use(cache, memory.data() + 2 * kPage, 2 * kPage);
  ::madvise(memory.data(), 2 * kPage, MADV_DONTNEED);
  ::munmap(memory.data() + 4 * kPage, 4 * kPage);
  use(cache, memory.data() + 2 * kPage, 2 * kPage);
  EXPECT_EQ(pinner_.registered, 1);
}

TEST_F(PinCacheTest, AsksForReaping) {
  std::atomic<int> asked{0};
  Mapping memory(kPage);
  PinCache cache(pinner_, {.reap_wanted = [&] {
                   ++asked;
                   asked.notify_all();
                 }});
  use(cache, memory.data(), kPage);
  memory.unmap();
  asked.wait(0);
  cache.reap();
  EXPECT_EQ(pinner_.pinned(), 0u);
}

// A mapping is gone a moment before its event can be read. Two threads fight for one address, so that each often maps
// it in the other's such moment: what it has just mapped must never be found pinned.
TEST_F(PinCacheTest, MemoryMappedWhileTheOldOneIsBeingUnmappedIsNew) {
  struct ThreadPinner final : Pinner {
    static int& registered_here() {
      thread_local int count = 0;
      return count;
    }
    int register_range(const AddressRange&) override { return ++registered_here(), 0; }
    void unregister_range(const AddressRange&) override {}
  } pinner;
  PinCache cache(pinner, {});
  Mapping reserved(kPage);
  unsigned char* const place = reserved.data();
  reserved.unmap();
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(viaduct::testing::kSanitized ? 1000 : 500);
  std::atomic<int> stale{0}, turns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (std::chrono::steady_clock::now() < until) {
        void* const fresh =
            ::mmap(place, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (fresh == MAP_FAILED) continue;
        const int before = ThreadPinner::registered_here();
        use(cache, fresh, kPage);
        if (ThreadPinner::registered_here() == before) ++stale;
        use(cache, fresh, kPage);
        ++turns;
        ::munmap(fresh, kPage);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stale, 0);
  if (turns == 0 && viaduct::testing::kSanitized) GTEST_SKIP() << "the sanitizer's allocator took the address";
  EXPECT_GT(turns, 100);
}

// The kernel's own accesses to watched memory whose pages are gone: a watch for missing pages would fail them.
TEST_F(PinCacheTest, SystemCallsIntoWatchedMemoryKeepWorking) {
  const Mapping memory(16 * kPage);
  PinCache cache(pinner_, {});
  const int zero = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  use(cache, memory.data(), memory.size());
  EXPECT_EQ(::read(zero, memory.data(), memory.size()), static_cast<ssize_t>(memory.size()));
  ::madvise(memory.data(), memory.size(), MADV_DONTNEED);
  EXPECT_EQ(::read(zero, memory.data(), memory.size()), static_cast<ssize_t>(memory.size()));
  ::close(zero);
}

TEST_F(PinCacheTest, AnUnprivilegedProcessMayWatch) {
  Child child([] {
    if (::geteuid() == 0) CHILD_EXPECT(::setresuid(65534, 65534, 65534) == 0);
    CountingPinner pinner;
    PinCache cache(pinner, {});
    CHILD_EXPECT(cache.keeps_ordinary_memory());
    Mapping memory(4 * kPage);
    (void)cache.pin(memory.data(), kPage);
    (void)cache.pin(memory.data(), kPage);
    CHILD_EXPECT(pinner.registered == 1);
    memory.unmap();
    cache.reap();
    CHILD_EXPECT(pinner.pinned() == 0);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

// A sandbox without userfaultfd: seccomp would need a library, so the descriptors run out instead.
TEST_F(PinCacheTest, WithoutUserfaultfdItSaysSo) {
  if (viaduct::testing::kSanitized) GTEST_SKIP() << "the sanitizer needs descriptors of its own to check types";
  Child child([] {
    CHILD_EXPECT(viaduct::testing::limit(RLIMIT_NOFILE, 3));
    CountingPinner pinner;
    PinCache cache(pinner, {});
    CHILD_EXPECT(!cache.keeps_ordinary_memory());
    CHILD_EXPECT(cache.status().find("userfaultfd: Too many open files") != std::string::npos);
    const Mapping memory(4 * kPage);
    (void)cache.pin(memory.data(), kPage);
    CHILD_EXPECT(pinner.pinned() == 0);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

// What a driver's own free() may do at any time.
TEST_F(PinCacheTest, ThePinnerMayUnmapWatchedMemory) {
  const Mapping memory(4 * kPage);
  Mapping victim(4 * kPage);
  PinCache cache(pinner_, {});
  use(cache, memory.data(), kPage);
  use(cache, victim.data(), kPage);
  pinner_.on_unregister = [&] { victim.unmap(); };
  cache.invalidate(memory.data(), kPage);
  cache.reap();
  EXPECT_EQ(pinner_.pinned(), 0u);
}

// ---- fork, exec and the end

TEST_F(PinCacheTest, AChildIsNotWatchedAndDoesNotHang) {
  if (viaduct::testing::kSanitized) GTEST_SKIP() << "the sanitizer's allocator may be held by the watch at the fork";
  const Mapping memory(8 * kPage);
  auto cache = std::make_unique<PinCache>(pinner_, PinCache::Settings{});
  use(*cache, memory.data(), memory.size());
  Child child([&] {
    CHILD_EXPECT(descriptors_of_kind("userfaultfd") == 0);
    CHILD_EXPECT(::munmap(memory.data(), kPage) == 0);
    CHILD_EXPECT(::madvise(memory.data() + kPage, kPage, MADV_DONTNEED) == 0);
    cache.reset();
    CHILD_EXPECT(pinner_.unregistered == 0);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  use(*cache, memory.data(), memory.size());
  EXPECT_EQ(pinner_.registered, 1) << "the child's changes are not ours";
}

TEST_F(PinCacheTest, EndsWhileOthersUnmap) {
  for (int round = 0; round < viaduct::testing::rounds(200); ++round) {
    CountingPinner pinner;
    auto cache = std::make_unique<PinCache>(pinner, PinCache::Settings{});
    std::vector<std::unique_ptr<Mapping>> memory;
    for (int i = 0; i < 8; ++i) {
      memory.push_back(std::make_unique<Mapping>(4 * kPage));
      use(*cache, memory.back()->data(), 4 * kPage);
    }
    std::thread unmapper([&] {
      for (auto& mapping : memory) mapping->unmap();
    });
    cache.reset();
    unmapper.join();
    EXPECT_EQ(pinner.pinned(), 0u);
  }
}

TEST_F(PinCacheTest, ThreadsShareIt) {
  const Mapping memory(64 * kPage);
  PinCache cache(pinner_, {.budget = 24 * kPage});
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed)
    threads.emplace_back([&, seed]() mutable {
      for (int round = 0; round < viaduct::testing::rounds(4000); ++round) {
        seed = seed * 1664525 + 1013904223;
        const std::size_t first = seed >> 8 & 63, count = 1 + (seed >> 16 & 7);
        if (first + count > 64) continue;
        const PinCache::Pin pin = cache.pin(memory.data() + first * kPage, count * kPage);
        EXPECT_TRUE(pin || pin.error() == EBUSY);
        if (round % 16 == 0) ::madvise(memory.data() + first * kPage, kPage, MADV_DONTNEED);
        if (round % 64 == 0) cache.invalidate(memory.data() + first * kPage, kPage);
      }
    });
  for (std::thread& thread : threads) thread.join();
  cache.reap();
  EXPECT_LE(cache.pinned_bytes(), 24 * kPage);
  EXPECT_EQ(pinner_.pinned(), cache.ranges());
}

}  // namespace
}  // namespace viaduct::copy
