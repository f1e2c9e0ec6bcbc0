#include "base/slot_ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "base/guarded_memory.hpp"

namespace viaduct {
namespace {

using testing::GuardedMemory;

constexpr SlotRingGeometry kSmall{.slot_size = 64, .slot_count = 8};

struct Ring {
  explicit Ring(SlotRingGeometry geometry) : memory(geometry.bytes()) {}
  GuardedMemory memory;
  SlotProducer producer = *SlotProducer::attach(memory.bytes(), geometry_of(memory));
  SlotConsumer consumer = *SlotConsumer::attach(memory.bytes(), geometry_of(memory));

  // The tests' rings all have slots of 64 bytes: the count follows from the size.
  static SlotRingGeometry geometry_of(const GuardedMemory& memory) {
    return {64, static_cast<std::uint32_t>((memory.bytes().size() - sizeof(SlotRingShared)) / 64)};
  }
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string_view text_of(const SlotConsumer::Message& message) {
  return {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()};
}

TEST(SlotRing, DeliversInOrderAcrossManyLaps) {
  Ring ring(kSmall);
  int sent = 0, received = 0;
  for (int lap = 0; lap < 100; ++lap) {
    // A different fill each time, so that the wrap falls everywhere in a burst.
    for (int i = 0; i <= lap % 8; ++i, ++sent)
      ASSERT_EQ(ring.producer.try_push(static_cast<std::uint16_t>(sent), bytes_of(std::to_string(sent))),
                RingState::ok);
    SlotConsumer::Message message;
    while (ring.consumer.try_peek(message) == RingState::ok) {
      EXPECT_EQ(message.tag, received);
      EXPECT_EQ(text_of(message), std::to_string(received));
      ring.consumer.release();
      ++received;
    }
    ring.consumer.publish_head();
    ASSERT_EQ(received, sent);
  }
}

TEST(SlotRing, SaysFullAndEmpty) {
  Ring ring(kSmall);
  SlotConsumer::Message message;
  EXPECT_EQ(ring.consumer.try_peek(message), RingState::empty);
  EXPECT_FALSE(ring.consumer.has_data());
  for (int i = 0; i < 8; ++i) ASSERT_EQ(ring.producer.try_push(0, {}), RingState::ok);
  EXPECT_EQ(ring.producer.try_push(0, {}), RingState::full);
  EXPECT_FALSE(ring.producer.has_space());
  EXPECT_TRUE(ring.consumer.has_data());
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(ring.consumer.try_peek(message), RingState::ok);
    ring.consumer.release();
  }
  EXPECT_EQ(ring.consumer.try_peek(message), RingState::empty) << "the last lap's stamps are not this one's";
  EXPECT_TRUE(ring.producer.has_space());
}

TEST(SlotRing, GivesSlotsBackInBatchesOrAtOnceWhenAsked) {
  Ring ring(kSmall);  // eight slots: batches of two
  SlotConsumer::Message message;
  for (int i = 0; i < 8; ++i) ASSERT_EQ(ring.producer.try_push(0, {}), RingState::ok);
  ASSERT_EQ(ring.consumer.try_peek(message), RingState::ok);
  EXPECT_FALSE(ring.consumer.release()) << "nobody needs waking for half a batch";
  EXPECT_FALSE(ring.producer.has_space());
  ASSERT_EQ(ring.consumer.try_peek(message), RingState::ok);
  EXPECT_TRUE(ring.consumer.release());
  EXPECT_TRUE(ring.producer.has_space());
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.producer.try_push(0, {}), RingState::ok);
  ASSERT_EQ(ring.consumer.try_peek(message), RingState::ok);
  ring.consumer.release();
  EXPECT_FALSE(ring.producer.has_space());
  ring.consumer.publish_head();
  EXPECT_TRUE(ring.producer.has_space());
}

TEST(SlotRing, CarriesEveryLengthFromNothingToAWholeSlot) {
  Ring ring({.slot_size = 64, .slot_count = 2});
  const std::string text(56, 'x');
  for (std::size_t length = 0; length <= 56; ++length) {
    ASSERT_EQ(ring.producer.try_push(9, bytes_of(text).first(length)), RingState::ok);
    SlotConsumer::Message message;
    ASSERT_EQ(ring.consumer.try_peek(message), RingState::ok);
    EXPECT_EQ(text_of(message), std::string_view(text).substr(0, length));
    ring.consumer.release();
  }
}

TEST(SlotRing, AClaimedSlotIsInvisibleUntilPublished) {
  Ring ring(kSmall);
  std::byte* place = nullptr;
  ASSERT_EQ(ring.producer.try_claim(place), RingState::ok);
  std::byte* again = nullptr;
  ASSERT_EQ(ring.producer.try_claim(again), RingState::ok);
  EXPECT_EQ(place, again) << "claiming takes nothing yet";
  place[0] = std::byte{'!'};
  EXPECT_FALSE(ring.consumer.has_data());
  ring.producer.publish(3, 1);
  SlotConsumer::Message message;
  ASSERT_EQ(ring.consumer.try_peek(message), RingState::ok);
  EXPECT_EQ(message.tag, 3);
  EXPECT_EQ(text_of(message), "!");
}

TEST(SlotRing, RefusesBadGeometry) {
  for (const std::uint32_t size : {0u, 1u, 32u, 63u, 65u, 96u, 65536u, 1u << 31})
    EXPECT_FALSE((SlotRingGeometry{size, 8}.check())) << size;
  for (const std::uint32_t count : {0u, 1u, 3u, 7u, 1u << 31})
    EXPECT_FALSE((SlotRingGeometry{64, count}.check())) << count;
  EXPECT_TRUE((SlotRingGeometry{64, 2}.check()));
  EXPECT_TRUE((SlotRingGeometry{32768, 1u << 30}.check()));
}

TEST(SlotRing, RefusesMemoryThatIsTooSmallOrOutOfLine) {
  GuardedMemory memory(kSmall.bytes() + 64, testing::Touching::front_guard);
  EXPECT_TRUE(SlotProducer::attach(memory.bytes(), kSmall));
  EXPECT_FALSE(SlotProducer::attach(memory.bytes().first(kSmall.bytes() - 1), kSmall));
  EXPECT_FALSE(SlotConsumer::attach(memory.bytes().first(kSmall.bytes() - 1), kSmall));
  EXPECT_FALSE(SlotProducer::attach(memory.bytes().subspan(8), kSmall));
  EXPECT_FALSE(SlotConsumer::attach(memory.bytes().subspan(8), kSmall));
  EXPECT_FALSE(SlotConsumer::attach(memory.bytes(), {.slot_size = 65, .slot_count = 8}));
}

}  // namespace
}  // namespace viaduct
