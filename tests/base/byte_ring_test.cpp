#include "base/byte_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/guarded_memory.hpp"
#include "base/random.hpp"

namespace viaduct {
namespace {

using testing::GuardedMemory;

struct Ring {
  explicit Ring(std::size_t size) : capacity(size), memory(byte_ring_bytes(size)) {}
  std::size_t capacity;
  GuardedMemory memory;
  ByteProducer producer = *ByteProducer::attach(memory.bytes(), capacity);
  ByteConsumer consumer = *ByteConsumer::attach(memory.bytes(), capacity);

  std::vector<std::byte> read(std::size_t most) {
    std::vector<std::byte> bytes(most);
    bytes.resize(consumer.read(bytes));
    return bytes;
  }
};

// Bytes whose value follows from their place in the stream: a lost or doubled byte shifts all that come after.
std::vector<std::byte> stream(std::uint64_t from, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((from + i) * 131 >> 3);
  return bytes;
}

TEST(ByteRing, KeepsTheStreamInOrderAcrossTheWrap) {
  Ring ring(64);
  Random random(1);
  std::uint64_t written = 0, taken = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    written += ring.producer.write(stream(written, random.below(100)));
    const auto got = ring.read(random.below(100));
    ASSERT_EQ(got, stream(taken, got.size()));
    taken += got.size();
  }
  EXPECT_GT(taken, 64u * 100);
}

TEST(ByteRing, TakesWhatFitsAndNoMore) {
  Ring ring(64);
  EXPECT_EQ(ring.producer.bytes_free(), 64u);
  EXPECT_EQ(ring.producer.write(stream(0, 40)), 40u);
  EXPECT_EQ(ring.producer.write(stream(40, 40)), 24u);
  EXPECT_EQ(ring.producer.write(stream(64, 1)), 0u);
  EXPECT_EQ(ring.producer.bytes_free(), 0u);
  EXPECT_EQ(ring.consumer.bytes_ready(), 64u);
  EXPECT_EQ(ring.read(1000), stream(0, 64));
  EXPECT_EQ(ring.read(1000).size(), 0u);
  EXPECT_EQ(ring.producer.bytes_free(), 64u);
}

TEST(ByteRing, NothingIsAWriteAndARead) {
  Ring ring(64);
  EXPECT_EQ(ring.producer.write({}), 0u);
  EXPECT_EQ(ring.consumer.read({}), 0u);
  EXPECT_EQ(ring.consumer.bytes_ready(), 0u);
  ring.producer.publish(0);
  ring.consumer.consume(0);
  EXPECT_EQ(ring.producer.bytes_free(), 64u);
  EXPECT_FALSE(ring.consumer.corrupt());
}

TEST(ByteRing, PublishesALargeMessageInPiecesAndKeepsItWhole) {
  Ring ring(1 << 17);
  const auto message = stream(7, (1 << 17) - 3);
  ASSERT_EQ(ring.producer.write(stream(0, 1000)), 1000u);  // so that the large one wraps
  ASSERT_EQ(ring.read(1000).size(), 1000u);
  EXPECT_EQ(ring.producer.write(message), message.size());
  EXPECT_EQ(ring.read(1 << 17), message);
}

TEST(ByteRing, SpaceAndPeekShowTwoPiecesAtTheWrap) {
  Ring ring(64);
  ASSERT_EQ(ring.producer.write(stream(0, 48)), 48u);
  ASSERT_EQ(ring.read(48).size(), 48u);

  const auto space = ring.producer.space();
  ASSERT_EQ(space.size(), 64u);
  EXPECT_EQ(space.first.size(), 16u);
  EXPECT_EQ(space.second.size(), 48u);
  EXPECT_EQ(space.first.data(), space.second.data() + 48);
  const auto message = stream(48, 20);
  std::copy_n(message.begin(), 16, space.first.begin());
  std::copy_n(message.begin() + 16, 4, space.second.begin());
  EXPECT_EQ(ring.consumer.bytes_ready(), 0u) << "not published yet";
  ring.producer.publish(20);

  const auto ready = ring.consumer.peek();
  ASSERT_EQ(ready.first.size(), 16u);
  ASSERT_EQ(ready.second.size(), 4u);
  EXPECT_TRUE(std::equal(ready.first.begin(), ready.first.end(), message.begin()));
  EXPECT_TRUE(std::equal(ready.second.begin(), ready.second.end(), message.begin() + 16));
  ring.consumer.consume(18);
  EXPECT_EQ(ring.consumer.peek().size(), 2u);
  EXPECT_EQ(ring.producer.bytes_free(), 62u);
  EXPECT_EQ(ring.read(64), stream(66, 2));
}

TEST(ByteRing, ExactlyUpToTheWrapIsOnePiece) {
  Ring ring(64);
  ASSERT_EQ(ring.producer.write(stream(0, 32)), 32u);
  ASSERT_EQ(ring.read(32).size(), 32u);
  ASSERT_EQ(ring.producer.write(stream(32, 32)), 32u);
  EXPECT_EQ(ring.consumer.peek().first.size(), 32u);
  EXPECT_TRUE(ring.consumer.peek().second.empty());
  ring.consumer.consume(32);
  EXPECT_EQ(ring.producer.space().first.size(), 64u) << "back at the start";
}

TEST(ByteRing, RefusesBadCapacitiesAndMemory) {
  GuardedMemory memory(byte_ring_bytes(128), testing::Touching::front_guard);
  EXPECT_TRUE(ByteProducer::attach(memory.bytes(), 128));
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{32}, std::size_t{96}, std::size_t{100},
                                     std::size_t{256}, SIZE_MAX, std::size_t{1} << 63}) {
    const auto producer = ByteProducer::attach(memory.bytes(), capacity);
    ASSERT_FALSE(producer) << capacity;
    EXPECT_EQ(producer.error().code(), EINVAL);
    EXPECT_FALSE(ByteConsumer::attach(memory.bytes(), capacity)) << capacity;
  }
  EXPECT_FALSE(ByteConsumer::attach(memory.bytes().subspan(8), 64)) << "out of line";
  EXPECT_FALSE(ByteConsumer::attach({}, 64));
}

}  // namespace
}  // namespace viaduct
