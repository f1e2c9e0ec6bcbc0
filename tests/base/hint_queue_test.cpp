#include "base/hint_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/guarded_memory.hpp"
#include "base/random.hpp"

namespace viaduct {
namespace {

using ::testing::ElementsAre;
using testing::GuardedMemory;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

struct Hints {
  explicit Hints(std::uint32_t capacity)
      : memory(hint_queue_bytes(capacity)), queue(*HintQueue::attach(memory.bytes(), capacity)) {}
  GuardedMemory memory;
  HintQueue queue;

  std::vector<std::uint32_t> take(std::size_t most) {
    std::vector<std::uint32_t> numbers(most);
    numbers.resize(queue.take(numbers));
    return numbers;
  }
};

class HintQueueOf : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t capacity_ = GetParam();
  Hints hints_{capacity_};
};

TEST_P(HintQueueOf, TakesEveryNumberOnceHoweverOftenItWasPut) {
  EXPECT_TRUE(hints_.queue.empty());
  EXPECT_THAT(hints_.take(4), IsEmpty());
  for (std::uint32_t n = 0; n < capacity_; ++n) hints_.queue.put(n), hints_.queue.put(n);
  EXPECT_FALSE(hints_.queue.empty());
  auto taken = hints_.take(capacity_ + 10);
  ASSERT_EQ(taken.size(), capacity_);
  std::sort(taken.begin(), taken.end());
  for (std::uint32_t n = 0; n < capacity_; ++n) ASSERT_EQ(taken[n], n);
  EXPECT_TRUE(hints_.queue.empty());
  EXPECT_THAT(hints_.take(4), IsEmpty());
}

TEST_P(HintQueueOf, FindsAnyLoneNumber) {
  Random random(capacity_);
  for (int i = 0; i < 200; ++i) {
    const auto number = static_cast<std::uint32_t>(random.below(capacity_));
    hints_.queue.put(number);
    ASSERT_THAT(hints_.take(4), ElementsAre(number));
    ASSERT_TRUE(hints_.queue.empty());
  }
}

TEST_P(HintQueueOf, WhatDoesNotFitIsTakenLater) {
  Random random(capacity_);
  std::set<std::uint32_t> put;
  for (int i = 0; i < 500; ++i) put.insert(static_cast<std::uint32_t>(random.below(capacity_)));
  for (const std::uint32_t number : put) hints_.queue.put(number);
  std::vector<std::uint32_t> taken;
  while (!hints_.queue.empty()) {
    const auto some = hints_.take(3);
    ASSERT_FALSE(some.empty()) << "not empty, and nothing there";
    taken.insert(taken.end(), some.begin(), some.end());
  }
  EXPECT_THAT(taken, UnorderedElementsAreArray(put));
}

// Everybody has something to say all the time, and the consumer takes only a few at once.
TEST_P(HintQueueOf, NobodyStarves) {
  const std::uint32_t active = std::min(capacity_, 4096u);
  std::vector<int> turns(active);
  for (std::uint32_t n = 0; n < active; ++n) hints_.queue.put(n);
  for (std::uint32_t round = 0; round < 4 * active; ++round)
    for (const std::uint32_t number : hints_.take(1 + round % 2)) {
      ++turns[number];
      hints_.queue.put(number);
    }
  EXPECT_GT(*std::min_element(turns.begin(), turns.end()), 0)
      << "number " << std::min_element(turns.begin(), turns.end()) - turns.begin();
}

TEST_P(HintQueueOf, IgnoresNumbersThatAHostileProducerInvents) {
  // Every bit of every level, those beyond the capacity included.
  const auto levels = hints_.memory.bytes().subspan(sizeof(WaitWord));
  std::fill(levels.begin(), levels.end(), std::byte{0xff});
  std::vector<std::uint32_t> taken;
  for (std::uint32_t look = 0; look < capacity_ / 64 + 10 && !hints_.queue.empty(); ++look) {
    const auto some = hints_.take(128);
    taken.insert(taken.end(), some.begin(), some.end());
  }
  EXPECT_TRUE(hints_.queue.empty());
  ASSERT_EQ(taken.size(), capacity_);
  EXPECT_LT(*std::max_element(taken.begin(), taken.end()), capacity_);
  EXPECT_TRUE(hints_.memory.slack_is_intact());
}

TEST_P(HintQueueOf, SurvivesGarbageBetweenOperations) {
  Random random(capacity_);
  std::vector<std::uint32_t> numbers(64);
  for (int turn = 0; turn < 2000; ++turn) {
    const std::size_t word = random.below(hints_.memory.bytes().size() / 8);
    reinterpret_cast<std::atomic<std::uint64_t>*>(hints_.memory.bytes().data())[word] = random();
    const std::size_t count = hints_.queue.take(numbers);
    ASSERT_LE(count, numbers.size());
    for (std::size_t i = 0; i < count; ++i) ASSERT_LT(numbers[i], capacity_);
    hints_.queue.ready().wake_if_armed();
  }
  // And a hint given now arrives all the same.
  hints_.queue.put(capacity_ - 1);
  bool found = false;
  for (std::uint32_t look = 0; look < 2 * (capacity_ / 64 + 64) && !found; ++look)
    for (const std::uint32_t number : hints_.take(64)) found |= number == capacity_ - 1;
  EXPECT_TRUE(found);
}

INSTANTIATE_TEST_SUITE_P(Capacity, HintQueueOf, ::testing::Values(1, 64, 65, 4096, 4097, kMostHints),
                         ::testing::PrintToStringParamName());

TEST(HintQueue, APutFinishedByAnotherAfterItsProducerDied) {
  Hints hints(4097);
  // Killed after the lowest level: the bit of number 7 stands alone.
  reinterpret_cast<std::atomic<std::uint64_t>*>(hints.memory.bytes().data() + sizeof(WaitWord))[0] = 1u << 7;
  EXPECT_THAT(hints.take(4), IsEmpty());
  hints.queue.put(9);
  EXPECT_THAT(hints.take(4), ElementsAre(7, 9));
}

TEST(HintQueue, TakesRoundRobinFromWhereItStopped) {
  Hints hints(64);
  for (const std::uint32_t n : {3, 10, 40}) hints.queue.put(n);
  EXPECT_THAT(hints.take(1), ElementsAre(3));
  hints.queue.put(3);
  EXPECT_THAT(hints.take(2), ElementsAre(10, 40)) << "the one just served comes last";
  EXPECT_THAT(hints.take(2), ElementsAre(3));
}

TEST(HintQueue, RefusesBadCapacitiesAndMemory) {
  GuardedMemory memory(4096);
  for (const std::uint32_t capacity : {0u, kMostHints + 1, UINT32_MAX})
    EXPECT_FALSE(HintQueue::attach(memory.bytes(), capacity)) << capacity;
  EXPECT_FALSE(HintQueue::attach(memory.bytes().first(hint_queue_bytes(64) - 1), 64));
  EXPECT_FALSE(HintQueue::attach(memory.bytes().subspan(8), 64));
  EXPECT_TRUE(HintQueue::attach(memory.bytes(), 64));
}

}  // namespace
}  // namespace viaduct
