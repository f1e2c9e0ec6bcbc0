// The engine in one process, through the C interface: what is copied, when, and what cookies mean.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <viaduct/adma.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "copy/cost_model.hpp"

namespace viaduct::copy {
namespace {

std::vector<unsigned char> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<unsigned char> bytes(size);
  Random random(seed);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

struct Way {
  const char* name;
  adma_options options;
};

const Way kWays[] = {
    {"default", {}},
    {"keep", {ADMA_KEEP, ADMA_UNORDERED, 0, ADMA_ANY}},
    {"stream", {ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_ANY}},
    {"caller", {ADMA_AUTO, ADMA_UNORDERED, 0, ADMA_CALLER}},
    {"cpu keep", {ADMA_KEEP, ADMA_UNORDERED, 0, ADMA_CPU}},
    {"cpu stream", {ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU}},
};

// Every size class, odd addresses, guard bytes on both sides.
TEST(Engine, CopiesExactlyWhatWasAsked) {
  constexpr std::size_t kGuard = 128;
  for (const Way& way : kWays) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4095},
                                   std::size_t{4097}, std::size_t{65537}, std::size_t{300001}, std::size_t{3} << 20}) {
      for (const std::size_t offset : {0, 1, 13, 40}) {
        const auto source = pattern(size + 64, size + offset);
        std::vector<unsigned char> target(size + 2 * kGuard + 64, 0xee);
        unsigned char* const to = target.data() + kGuard + offset;
        const adma_cookie_t cookie = adma_icopy_with(source.data() + 7, to, size, &way.options);
        ASSERT_GE(cookie, 0) << way.name << " " << size << " " << std::strerror(errno);
        ASSERT_EQ(adma_wait_copy(cookie), 0);
        ASSERT_EQ(std::memcmp(to, source.data() + 7, size), 0) << way.name << " size " << size << " offset " << offset;
        for (std::size_t i = 0; i < kGuard; ++i) {
          ASSERT_EQ(to[size + i], 0xee) << way.name << " wrote behind the end, size " << size;
          ASSERT_EQ(to[-1 - static_cast<std::ptrdiff_t>(i)], 0xee) << way.name << " wrote before the start";
        }
        std::vector<unsigned char> again(size + 1);
        ASSERT_EQ(adma_copy_with(source.data() + 7, again.data(), size, &way.options), 0);
        ASSERT_EQ(std::memcmp(again.data(), source.data() + 7, size), 0);
      }
    }
  }
}

TEST(Engine, AliasingAddressesAreCopiedRight) {
  std::vector<unsigned char> arena(std::size_t{2} << 20);
  for (std::size_t distance = 1; distance < 32; distance += 5) {
    const auto source = pattern(100'000, distance);
    auto* const from = arena.data() + 4096 - reinterpret_cast<std::uintptr_t>(arena.data()) % 4096;
    unsigned char* const to = from + (std::size_t{1} << 20) + distance;
    std::memcpy(from, source.data(), source.size());
    ASSERT_EQ(adma_copy(from, to, source.size()), 0);
    ASSERT_EQ(std::memcmp(to, source.data(), source.size()), 0);
  }
}

TEST(Engine, OverlapKeepsMemmoveMeaning) {
  for (const std::ptrdiff_t shift : {-70'000, -1, 1, 13, 70'000}) {
    for (const std::size_t size : {std::size_t{5'000}, std::size_t{1'000'003}}) {
      auto bytes = pattern(size + 200'000, size);
      auto expected = bytes;
      std::memmove(expected.data() + 100'000 + shift, expected.data() + 100'000, size);
      const adma_cookie_t cookie = adma_icopy(bytes.data() + 100'000, bytes.data() + 100'000 + shift, size);
      ASSERT_GE(cookie, 0);
      ASSERT_EQ(adma_wait_copy(cookie), 0);
      ASSERT_EQ(bytes, expected) << "shift " << shift << " size " << size;
    }
  }
}

// Costs are measured for those whom it helps.
TEST(Engine, WhoCopiesLittleMeasuresNothing) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    std::vector<unsigned char> from(1 << 20), to(1 << 20);
    const auto copy = [&](int times) {
      for (int i = 0; i < times; ++i)
        if (adma_wait_copy(adma_icopy(from.data(), to.data(), from.size())) != 0) _exit(1);
    };
    const bool before = CostModel::measured();  // by an earlier test of the parent
    copy(20);
    if (CostModel::measured() != before) _exit(2);
    copy(100);
    _exit(CostModel::measured() ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Engine, FillsEverySize) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{3'000'001}}) {
    std::vector<unsigned char> bytes(size + 64, 1);
    ASSERT_EQ(adma_fill(bytes.data() + 5, 0xab, size), 0);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[5 + i], 0xab);
    ASSERT_EQ(bytes[4], 1);
    ASSERT_EQ(bytes[5 + size], 1);
    const adma_options stream{ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU};
    const adma_cookie_t cookie = adma_ifill(bytes.data() + 5, 0x17, size, &stream);
    ASSERT_EQ(adma_wait_copy(cookie), 0);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[5 + i], 0x17);
  }
}

TEST(Engine, GathersAndScatters) {
  auto source = pattern(1'000'000, 3);
  std::vector<unsigned char> target(1'000'000);
  const iovec from[] = {
      {source.data(), 10}, {source.data() + 10, 0}, {source.data() + 10, 499'990}, {source.data() + 500'000, 500'000}};
  const iovec to[] = {{target.data(), 700'001}, {target.data() + 700'001, 299'999}};
  ASSERT_EQ(adma_copyv(from, 4, to, 2), 0);
  EXPECT_EQ(source, target);
  EXPECT_EQ(adma_copyv(from, 3, to, 2), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Engine, BatchCompletesWithItsLastPiece) {
  constexpr std::size_t kCount = 2000;  // more chunks than a plain copy ever has
  const auto source = pattern(kCount * 600, 5);
  std::vector<unsigned char> target(kCount * 600);
  std::vector<adma_piece> pieces;
  for (std::size_t i = 0; i < kCount; ++i)
    pieces.push_back({source.data() + i * 600, target.data() + (kCount - 1 - i) * 600, 600});
  const adma_options cpu{ADMA_AUTO, ADMA_UNORDERED, 0, ADMA_CPU};
  const adma_cookie_t cookie = adma_icopy_batch(pieces.data(), pieces.size(), &cpu);
  ASSERT_GE(cookie, 0);
  ASSERT_EQ(adma_wait_copy(cookie), 0);
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(std::memcmp(target.data() + (kCount - 1 - i) * 600, source.data() + i * 600, 600), 0);
}

TEST(Engine, ReadyBytesOnlyGrowsAndIsTrue) {
  const auto source = pattern(std::size_t{16} << 20, 9);
  std::vector<unsigned char> target(source.size());
  const adma_options cpu{ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU};
  const adma_cookie_t cookie = adma_icopy_with(source.data(), target.data(), source.size(), &cpu);
  std::int64_t seen = 0;
  for (;;) {
    const std::int64_t ready = adma_ready_bytes(cookie);
    ASSERT_GE(ready, seen);
    ASSERT_EQ(std::memcmp(target.data() + seen, source.data() + seen, static_cast<std::size_t>(ready - seen)), 0);
    seen = ready;
    if (seen == static_cast<std::int64_t>(source.size())) break;
  }
  EXPECT_EQ(adma_wait_copy(cookie), 0);
}

TEST(Cookies, AreGoneOnceTheirEndWasReported) {
  char from[8] = "seven..", to[8];
  const adma_cookie_t cookie = adma_icopy(from, to, sizeof from);
  EXPECT_EQ(adma_wait_copy(cookie), 0);
  EXPECT_EQ(adma_wait_copy(cookie), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(adma_check_copy(cookie), -1);
  EXPECT_EQ(adma_ready_bytes(cookie), -1);
}

TEST(Cookies, ForeignAndInventedOnesAreErrors) {
  for (const adma_cookie_t cookie : {adma_cookie_t{0}, adma_cookie_t{-1}, adma_cookie_t{42}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(adma_check_copy(cookie), -1) << cookie;
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(adma_wait_copy(cookie), -1) << cookie;
  }
}

TEST(Cookies, RunOutWithAnErrorAndComeBack) {
  char from[8] = {}, to[8];
  std::vector<adma_cookie_t> unasked;
  adma_cookie_t cookie;
  while ((cookie = adma_icopy(from, to, sizeof from)) >= 0) {
    unasked.push_back(cookie);
    ASSERT_LT(unasked.size(), 100'000u);
  }
  EXPECT_EQ(errno, EAGAIN);
  for (const adma_cookie_t each : unasked) ASSERT_EQ(adma_wait_copy(each), 0);
  EXPECT_EQ(adma_wait_copy(adma_icopy(from, to, sizeof from)), 0);
}

// Whoever is told of the end may free the buffers, and the others must not take it that they may.
TEST(Cookies, OneOfSeveralThreadsIsToldOfTheEnd) {
  constexpr int kRounds = 200, kThreads = 3;
  const auto source = pattern(std::size_t{1} << 20, 5);
  std::vector<unsigned char> target(source.size());
  const adma_options cpu{ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU};
  for (int round = 0; round < kRounds; ++round) {
    const adma_cookie_t cookie = adma_icopy_with(source.data(), target.data(), source.size(), &cpu);
    ASSERT_GT(cookie, 0);
    std::atomic<int> told{0}, unknown{0};
    const auto wait = [&] {
      const int result = adma_wait_copy(cookie);
      if (result == 0) ++told;
      if (result == -1 && errno == EINVAL) ++unknown;
    };
    const auto check = [&] {
      for (int result = 0; result == 0;) {
        result = adma_check_copy(cookie);
        if (result == 1) ++told;
        if (result == -1 && errno == EINVAL) ++unknown;
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < kThreads; ++i) threads.emplace_back(wait);
    threads.emplace_back(check);
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(told, 1) << round;
    ASSERT_EQ(unknown, kThreads - 1) << round;
  }
}

TEST(BadInput, IsRefused) {
  char byte = 0;
  EXPECT_EQ(adma_copy(nullptr, &byte, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(adma_copy(&byte, nullptr, 1), -1);
  EXPECT_EQ(adma_icopy(nullptr, nullptr, 1), -1);
  EXPECT_EQ(adma_copy(nullptr, nullptr, 0), 0);
  EXPECT_EQ(adma_copy(&byte, &byte + 1, SIZE_MAX), -1);
  EXPECT_EQ(errno, EINVAL);
  adma_options options{static_cast<adma_intent>(9), ADMA_UNORDERED, 0, ADMA_ANY};
  EXPECT_EQ(adma_copy_with(&byte, &byte, 1, &options), -1);
  EXPECT_EQ(errno, EINVAL);
  options = {ADMA_AUTO, ADMA_AFTER, 12345, ADMA_ANY};  // after a cookie that never was
  EXPECT_EQ(adma_icopy_with(&byte, &byte, 1, &options), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Order, AChainCopiesInOrder) {
  // Each link of the chain copies what the one before it wrote; sizes change lanes on the way.
  std::vector<std::vector<unsigned char>> stages(60, std::vector<unsigned char>(400'000));
  stages[0] = pattern(400'000, 11);
  adma_cookie_t before = 0;
  std::vector<adma_cookie_t> cookies;
  for (std::size_t i = 1; i < stages.size(); ++i) {
    adma_options options{i % 2 == 0 ? ADMA_STREAM : ADMA_KEEP, ADMA_AFTER, before, i % 3 == 0 ? ADMA_ANY : ADMA_CPU};
    if (before == 0) options.order = ADMA_UNORDERED;
    before = adma_icopy_with(stages[i - 1].data(), stages[i].data(), 400'000, &options);
    ASSERT_GE(before, 0);
    cookies.push_back(before);
  }
  ASSERT_EQ(adma_wait_copy(before), 0);  // the last one first: waiting helps with everything before it
  EXPECT_EQ(stages.back(), stages.front());
  cookies.pop_back();
  for (const adma_cookie_t cookie : cookies) EXPECT_EQ(adma_wait_copy(cookie), 0);
}

TEST(Order, AVeryLongChainOfSmallCopiesDoesNotGoDeep) {
  std::vector<unsigned char> big(std::size_t{32} << 20), sink(big.size());
  std::vector<std::array<char, 16>> stages(3000);
  stages[0].fill('x');
  const adma_options cpu{ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU};
  adma_cookie_t before = adma_icopy_with(big.data(), sink.data(), big.size(), &cpu);
  std::vector<adma_cookie_t> cookies{before};
  for (std::size_t i = 1; i < stages.size(); ++i) {
    const adma_options options{ADMA_AUTO, ADMA_AFTER, before, ADMA_ANY};
    before = adma_icopy_with(stages[i - 1].data(), stages[i].data(), 16, &options);
    ASSERT_GE(before, 0);
    cookies.push_back(before);
  }
  ASSERT_EQ(adma_wait_copy(before), 0);
  EXPECT_EQ(stages.back(), stages.front());
  cookies.pop_back();
  for (const adma_cookie_t cookie : cookies) ASSERT_EQ(adma_wait_copy(cookie), 0);
}

TEST(Order, AFenceComesAfterEverythingBefore) {
  for (int round = 0; round < 20; ++round) {
    const auto source = pattern(2'000'000, static_cast<std::uint64_t>(round));
    std::vector<unsigned char> middle(source.size()), target(source.size());
    std::vector<adma_cookie_t> cookies;
    for (std::size_t at = 0; at < source.size(); at += 200'000) {
      const adma_options cpu{ADMA_AUTO, ADMA_UNORDERED, 0, ADMA_CPU};
      cookies.push_back(adma_icopy_with(source.data() + at, middle.data() + at, 200'000, &cpu));
    }
    const adma_options fence{ADMA_AUTO, ADMA_FENCE, 0, ADMA_ANY};
    ASSERT_EQ(adma_wait_copy(adma_icopy_with(middle.data(), target.data(), target.size(), &fence)), 0);
    ASSERT_EQ(target, source);
    for (const adma_cookie_t cookie : cookies) ASSERT_EQ(adma_wait_copy(cookie), 0);
  }
}

TEST(Threads, ManySubmitAndWaitAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &wrong] {
      Random random(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < 150; ++i) {
        const auto source = pattern(1 + random.below(300'000), random());
        std::vector<unsigned char> target(source.size());
        const adma_options options{static_cast<adma_intent>(random.below(3)), ADMA_UNORDERED, 0,
                                   static_cast<adma_channel>(random.below(3))};
        const adma_cookie_t cookie = adma_icopy_with(source.data(), target.data(), source.size(), &options);
        if (random.below(2) == 0)
          while (adma_check_copy(cookie) == 0) std::this_thread::yield();
        else
          adma_wait_copy(cookie);
        if (source != target) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, TwoWaitForOneCookie) {
  for (int round = 0; round < 50; ++round) {
    const auto source = pattern(1'000'000, 7);
    std::vector<unsigned char> target(source.size());
    const adma_options cpu{ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU};
    const adma_cookie_t cookie = adma_icopy_with(source.data(), target.data(), source.size(), &cpu);
    int first = 0, second = 0;
    std::thread other([&] { first = adma_wait_copy(cookie); });
    second = adma_wait_copy(cookie);
    other.join();
    EXPECT_TRUE(first == 0 || second == 0);  // whoever comes after the end was reported finds the cookie gone
    ASSERT_EQ(source, target);
  }
}

TEST(Fork, TheChildHasAnEngineOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in the child of a process that has some";
#endif
  const auto source = pattern(std::size_t{4} << 20, 13);
  std::vector<unsigned char> target(source.size());
  const adma_options cpu{ADMA_STREAM, ADMA_UNORDERED, 0, ADMA_CPU};
  const adma_cookie_t cookie = adma_icopy_with(source.data(), target.data(), source.size(), &cpu);
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<unsigned char> mine(source.size());
    const bool unknown = adma_wait_copy(cookie) == -1 && errno == EINVAL;
    const adma_cookie_t own = adma_icopy_with(source.data(), mine.data(), mine.size(), &cpu);
    const bool copied = adma_wait_copy(own) == 0 && mine == source;
    ::_exit(unknown && copied ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(adma_wait_copy(cookie), 0);
  EXPECT_EQ(source, target);
}

}  // namespace
}  // namespace viaduct::copy
