// The contest of the copy kernels, with invented times; and the kernels themselves.
#include "copy/kernel_contest.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "base/random.hpp"
#include "copy/kernels.hpp"

namespace viaduct::copy {
namespace {

constexpr std::size_t kLength = std::size_t{1} << 20;

// Copies so many bytes, each candidate as fast as `ns_per_kb` says: of who copies, and of how much was copied before.
class Program {
 public:
  explicit Program(int candidates) : contest_(candidates) {}

  void copy(std::int64_t bytes, const std::function<double(int who, std::int64_t before)>& ns_per_kb) {
    for (const std::int64_t end = copied_ + bytes; copied_ < end; copied_ += static_cast<std::int64_t>(kLength)) {
      const int who = contest_.current();
      if (!contest_.timed()) {
        contest_.copied(kLength);
        continue;
      }
      timed_bytes_ += static_cast<std::int64_t>(kLength);
      contest_.copied(who, kLength, static_cast<std::uint64_t>(ns_per_kb(who, copied_) * (kLength >> 10)));
    }
  }

  KernelContest& contest() { return contest_; }
  std::int64_t timed_bytes() const { return timed_bytes_; }

 private:
  KernelContest contest_;
  std::int64_t copied_ = 0;
  std::int64_t timed_bytes_ = 0;
};

constexpr std::int64_t kWhole = 4 * KernelContest::kLaps * KernelContest::kTurn;  // a contest of four

TEST(KernelContest, WhoCopiesLittleIsNotMeasured) {
  Program program(4);
  program.copy(KernelContest::kBefore - static_cast<std::int64_t>(kLength), [](int, std::int64_t) { return 50.0; });
  EXPECT_EQ(program.timed_bytes(), 0);
  EXPECT_EQ(program.contest().current(), 0);
}

TEST(KernelContest, TheFastestStaysWhoeverItIs) {
  for (int fastest = 0; fastest < 4; ++fastest) {
    Program program(4);
    program.copy(KernelContest::kBefore + kWhole + 10 * static_cast<std::int64_t>(kLength),
                 [&](int who, std::int64_t) { return who == fastest ? 45.0 : 50.0; });
    EXPECT_FALSE(program.contest().timed());
    EXPECT_EQ(program.contest().current(), fastest);
    EXPECT_LE(program.timed_bytes(), kWhole + 10 * static_cast<std::int64_t>(kLength)) << "it must come to an end";
  }
}

TEST(KernelContest, EquallyFastIsNotFaster) {
  Program program(4);
  program.copy(KernelContest::kBefore + kWhole, [](int who, std::int64_t) { return who == 0 ? 50.0 : 49.5; });
  EXPECT_FALSE(program.contest().timed());
  EXPECT_EQ(program.contest().current(), 0);
}

// The favourite's first turn falls into a slow phase, where memory is touched for the first time.
TEST(KernelContest, ASlowPhaseDecidesNothing) {
  Program program(4);
  program.copy(KernelContest::kBefore + kWhole, [](int, std::int64_t before) {
    return before < KernelContest::kBefore + KernelContest::kTurn ? 200.0 : 50.0;
  });
  EXPECT_FALSE(program.contest().timed());
  EXPECT_EQ(program.contest().current(), 0);
}

// What one candidate leaves in the cache is paid for by the next, at the beginning of its turn.
TEST(KernelContest, TheBeginningOfATurnDoesNotCount) {
  Program program(2);
  std::int64_t began = 0;
  int last = -1;
  program.copy(KernelContest::kBefore + kWhole, [&](int who, std::int64_t before) {
    if (who != last) began = before, last = who;
    const bool beginning = before - began < KernelContest::kTurn / 2 - static_cast<std::int64_t>(kLength);
    return who == 1 && beginning ? 500.0 : who == 1 ? 40.0 : 50.0;
  });
  EXPECT_FALSE(program.contest().timed());
  EXPECT_EQ(program.contest().current(), 1);
}

TEST(KernelContest, EverybodyHasAnotherTryLater) {
  Program program(2);
  program.copy(KernelContest::kBefore + kWhole, [](int who, std::int64_t) { return who == 1 ? 40.0 : 50.0; });
  ASSERT_EQ(program.contest().current(), 1);
  program.copy(KernelContest::kAgain + kWhole, [](int who, std::int64_t) { return who == 1 ? 60.0 : 50.0; });
  EXPECT_FALSE(program.contest().timed());
  EXPECT_EQ(program.contest().current(), 0);
}

TEST(KernelContest, OneCandidateNeedsNone) {
  Program program(1);
  program.copy(KernelContest::kBefore + kWhole, [](int, std::int64_t) { return 50.0; });
  EXPECT_EQ(program.timed_bytes(), 0);
}

TEST(Kernels, AllCopyExactlyWhatWasAskedAndMemcpyIsAmongThem) {
  constexpr std::size_t kGuard = 128;
  ASSERT_STREQ(stream_kernels().back().name, "memcpy");
  Random random(5);
  for (const StreamKernel& kernel : stream_kernels())
    for (const std::size_t size : {0, 1, 63, 64, 4095, 4096, 4159, 8192, 9000, 70'001, 262'144})
      for (const std::size_t shift : {0, 1, 40, 63}) {
        std::vector<std::byte> source(size + 64), target(size + 64 + 2 * kGuard, std::byte{0xee});
        for (std::byte& byte : source) byte = static_cast<std::byte>(random());
        std::byte* const to = target.data() + kGuard + shift;
        kernel.copy(to, source.data() + 7, size);
        ASSERT_EQ(std::memcmp(to, source.data() + 7, size), 0) << kernel.name << ", size " << size << ", " << shift;
        for (std::size_t i = 0; i < kGuard; ++i)
          ASSERT_TRUE(to[size + i] == std::byte{0xee} && to[-1 - static_cast<std::ptrdiff_t>(i)] == std::byte{0xee})
              << kernel.name << " wrote outside, size " << size;
      }
}

// Through a whole contest, with both kinds of copier.
TEST(Kernels, BytesAreRightWhileTheyAreMeasured) {
  Random random(6);
  for (const Copier copier : {Copier::alone, Copier::shared})
    for (const std::size_t size : {30'000, 100'000}) {
      std::vector<std::byte> source(size), target(size);
      const std::int64_t rounds = (KernelContest::kBefore + kWhole) / static_cast<std::int64_t>(size) + 100;
      for (std::int64_t i = 0; i < rounds; ++i) {
        const std::size_t at = static_cast<std::size_t>(i) % size;
        source[at] = static_cast<std::byte>(random());
        copy_streaming(target.data(), source.data(), size, copier);
        ASSERT_EQ(target[at], source[at]);
      }
      EXPECT_EQ(target, source);
    }
}

// Often enough that it is measured whether memcpy stumbles between such addresses.
TEST(Kernels, BytesAreRightAFewApartModulo4096) {
  Random random(7);
  for (const std::size_t size : {2'000, 16'000, 100'000}) {
    std::vector<std::byte> memory(2 * size + 3 * 4096);
    std::byte* const from = memory.data();
    std::byte* const to = from + (size + 4095) / 4096 * 4096 + 9;
    ASSERT_TRUE(aliases(to, from));
    for (std::size_t i = 0; i < 1'000; ++i) {
      from[i] = static_cast<std::byte>(random());
      copy_kept(to, from, size);
      ASSERT_EQ(to[i], from[i]);
    }
    EXPECT_EQ(std::memcmp(to, from, size), 0);
  }
}

}  // namespace
}  // namespace viaduct::copy
