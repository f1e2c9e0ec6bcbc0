// copy.hpp: ownership, batches, coroutines; and how operations are cut.
#include "copy/operation.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <viaduct/copy.hpp>

#include <atomic>
#include <coroutine>
#include <numeric>
#include <thread>
#include <vector>

namespace viaduct::copy {
namespace {

std::vector<unsigned char> counting(std::size_t size) {
  std::vector<unsigned char> bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(3));
  return bytes;
}

const Options kCpu{Intent::stream, Order::unordered, 0, Choice::cpu};

TEST(Operation, ItsDestructorWaits) {
  const auto source = counting(5'000'000);
  std::vector<unsigned char> target(source.size());
  { const Operation operation = start(source.data(), target.data(), source.size(), kCpu); }
  EXPECT_EQ(source, target);
}

TEST(Operation, MovesAndTellsItsEndTwice) {
  const auto source = counting(1'000'000);
  std::vector<unsigned char> target(source.size());
  Operation first = start(source.data(), target.data(), source.size(), kCpu);
  Operation second = std::move(first);
  EXPECT_FALSE(second.wait());
  EXPECT_FALSE(second.wait());
  EXPECT_TRUE(second.done());
  EXPECT_EQ(second.cookie(), 0);
  EXPECT_EQ(source, target);
}

TEST(Operation, AFailureIsAValue) {
  Operation operation = start(nullptr, nullptr, 5);
  EXPECT_TRUE(operation.done());
  EXPECT_EQ(operation.wait(), std::errc::bad_address);
}

TEST(Batch, GoesOutWithItsScope) {
  const auto source = counting(300'000);
  std::vector<unsigned char> target(source.size());
  {
    Batch batch(kCpu);
    for (std::size_t at = 0; at < source.size(); at += 1000) batch.add(source.data() + at, target.data() + at, 1000);
    EXPECT_EQ(batch.size(), 300u);
  }
  EXPECT_EQ(source, target);
}

struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Task copy_twice(const std::vector<unsigned char>& from, std::vector<unsigned char>& middle,
                std::vector<unsigned char>& to, std::atomic<int>& result) {
  Operation first = start(from.data(), middle.data(), from.size(), kCpu);
  const std::error_code one = co_await first;
  Operation second = start(middle.data(), to.data(), to.size(), kCpu);
  const std::error_code two = co_await second;
  result.store(one || two ? -1 : 1);
}

TEST(Coroutine, GoesOnWhenTheCopyIsThere) {
  for (int round = 0; round < 30; ++round) {
    const auto source = counting(round % 2 == 0 ? 2'000'000 : 100);
    std::vector<unsigned char> middle(source.size()), target(source.size());
    std::atomic<int> result{0};
    copy_twice(source, middle, target, result);
    while (result.load() == 0) std::this_thread::yield();
    EXPECT_EQ(result.load(), 1);
    ASSERT_EQ(source, target);
  }
}

Task copy_often(const std::vector<unsigned char>& from, std::vector<unsigned char>& to, int times,
                std::atomic<int>& result) {
  for (int i = 0; i < times; ++i) {
    if (const std::error_code fault = co_await start(from.data(), to.data(), from.size()); fault) {
      result.store(-1);
      co_return;
    }
  }
  result.store(1);
}

// It goes on in the worker, perhaps the only one, when it is time to measure what handing over to a worker costs.
TEST(Coroutine, MayBeTheOneThatHasTheCostsMeasured) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    const auto source = counting(1 << 20);
    std::vector<unsigned char> target(source.size());
    std::atomic<int> result{0};
    copy_often(source, target, 200, result);
    while (result.load() == 0) std::this_thread::yield();
    ::_exit(result.load() == 1 && source == target ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Chunks cover the operation without gap or overlap, and all but the first begin at a page of the destination.
TEST(Cutting, IsCompleteAndPageAligned) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{4096}, std::size_t{131'072}, std::size_t{131'073},
                                   std::size_t{10'000'001}, std::size_t{400} << 20}) {
    for (const std::uintptr_t offset : {0, 1, 4095}) {
      OperationRecord record;
      record.source = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40);
      record.destination = reinterpret_cast<std::byte*>((std::uintptr_t{1} << 41) + offset);
      record.length = length;
      record.cut(128 << 10);
      Chunk chunk;
      std::uint32_t index = 0, count = 0;
      std::size_t at = 0;
      for (; record.take_chunk(chunk, index); ++count) {
        ASSERT_EQ(index, count);
        ASSERT_EQ(chunk.source, record.source + at);
        ASSERT_EQ(chunk.destination, record.destination + at);
        if (index > 0) {
          ASSERT_EQ(reinterpret_cast<std::uintptr_t>(chunk.destination) % 4096, 0u);
        }
        ASSERT_GT(chunk.length, 0u);
        at += chunk.length;
      }
      EXPECT_EQ(at, length);
      EXPECT_LE(count, OperationRecord::kInlineChunks);
    }
  }
}

}  // namespace
}  // namespace viaduct::copy
