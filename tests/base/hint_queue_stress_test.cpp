// Many producers, one sleeping consumer, and producers that die: no hint is lost, nobody is blocked.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "base/guarded_memory.hpp"
#include "base/hint_queue.hpp"
#include "base/random.hpp"
#include "base/waiter.hpp"

namespace viaduct {
namespace {

using testing::Child;
using testing::GuardedMemory;
using testing::HangGuard;

constexpr std::uint32_t kNumbers = 4097;  // three levels

// The work that hints point to: a counter per number, raised before each hint.
struct Work {
  std::atomic<std::uint32_t> counters[kNumbers];
};

struct Stage {
  GuardedMemory work_memory{sizeof(Work), testing::Touching::front_guard};
  GuardedMemory queue_memory{hint_queue_bytes(kNumbers)};
  Work& work = *reinterpret_cast<Work*>(work_memory.bytes().data());
  HintQueue queue = *HintQueue::attach(queue_memory.bytes(), kNumbers);

  void tell(std::uint32_t number) {
    work.counters[number].fetch_add(1, std::memory_order_relaxed);  // R1 of the queue publishes it
    queue.put(number);
    queue.ready().wake_if_armed();
  }
};

// Follows the hints until the counters it has seen add up to `total`; a lost hint leaves it asleep for ever.
void consume(Stage& stage, std::uint64_t total) {
  std::vector<std::uint32_t> seen(kNumbers), numbers(16);
  Waiter waiter(0);
  FutexSleeper sleeper;
  for (std::uint64_t sum = 0; sum < total;) {
    const std::size_t count = stage.queue.take(numbers);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t now = stage.work.counters[numbers[i]].load(std::memory_order_relaxed);
      sum += now - seen[numbers[i]];
      seen[numbers[i]] = now;
    }
    if (count == 0) {
      ASSERT_EQ(waiter.wait(stage.queue.ready(), sleeper, Deadline::never(), [&] { return !stage.queue.empty(); }),
                WaitResult::ready);
    }
  }
}

TEST(HintQueueStress, ThreeProducersAndASleepingConsumerLoseNothing) {
  const HangGuard guard;
  Stage stage;
  constexpr int kHints = testing::rounds(100'000);
  std::vector<std::thread> producers;
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    producers.emplace_back([&stage, seed] {
      Random random(seed);
      for (int i = 0; i < kHints; ++i) {
        // Few numbers, of one word and of several: where producers and consumer meet most often.
        stage.tell(static_cast<std::uint32_t>(random.below(2)) * 4096);
        if (i % 4 == 0) stage.tell(static_cast<std::uint32_t>(random.below(kNumbers)));
      }
    });
  consume(stage, 3u * (kHints + (kHints + 3) / 4));
  for (std::thread& producer : producers) producer.join();
  std::vector<std::uint32_t> rest(kNumbers);
  stage.queue.take(rest);
  EXPECT_TRUE(stage.queue.empty());
}

TEST(HintQueueStress, AProducerKilledAnywhereBlocksNobody) {
  const HangGuard guard;
  Stage stage;
  Random random(1);
  std::vector<std::uint32_t> numbers(64);
  for (int death = 0; death < testing::rounds(200); ++death) {
    std::atomic<std::uint32_t>& life = stage.work.counters[0];
    life = 0;
    Child producer([&] {
      Random mine(static_cast<std::uint64_t>(death));
      for (;;) stage.tell(static_cast<std::uint32_t>(mine.below(2)) * 4000);
      return 0;
    });
    // Alive for some of its hints, so that the kill falls between any two of its steps.
    const auto enough = static_cast<std::uint32_t>(1 + random.below(2000));
    while (life.load() < enough) stage.queue.take(numbers);
    producer.kill();
    ASSERT_EQ(producer.wait(), -SIGKILL);
    while (!stage.queue.empty()) stage.queue.take(numbers);
    // The survivors' hints arrive, the dead one's numbers included.
    for (const std::uint32_t number : {0u, 4000u, 4096u}) {
      stage.tell(number);
      std::size_t found = 0;
      const std::size_t count = stage.queue.take(numbers);
      for (std::size_t i = 0; i < count; ++i) found += numbers[i] == number;
      ASSERT_EQ(found, 1u) << number;
    }
  }
}

}  // namespace
}  // namespace viaduct
