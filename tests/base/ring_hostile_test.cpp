// One end of a ring against a peer that writes anything anywhere, at any moment between two operations.
//
// The memory lies between guard pages: an access outside the ring ends the test by SIGSEGV. What the end may do is
// bounded by what it can know itself; anything more must be reported as corrupt, and stay so.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/byte_ring.hpp"
#include "base/child.hpp"
#include "base/guarded_memory.hpp"
#include "base/random.hpp"
#include "base/slot_ring.hpp"

namespace viaduct {
namespace {

using testing::GuardedMemory;
using testing::Touching;

constexpr std::uint64_t kSeeds = 3000;
constexpr int kMostTurns = 60;
constexpr SlotRingGeometry kGeometry{.slot_size = 64, .slot_count = 8};
constexpr std::size_t kCapacity = 256;

// A number near those that matter (small counts, the capacity, the ends of the range), or any at all.
std::uint64_t nasty(Random& random) {
  constexpr std::uint64_t kEdges[] = {0, 8, 64, 256, 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX};
  if (random.chance(0.3)) return random();
  return kEdges[random.below(std::size(kEdges))] + random.below(9) - 4;
}

// Writes by 8-byte words (the peer is a process: its stores land whole), sometimes one, sometimes everything.
void vandalise(std::span<std::byte> memory, Random& random) {
  const auto write = [&](std::size_t word, std::uint64_t value) {
    std::memcpy(memory.data() + word * 8, &value, sizeof value);
  };
  const std::size_t words = memory.size() / 8;
  switch (random.below(16)) {
    case 0:
      for (std::size_t word = 0; word < words; ++word) write(word, random());
      break;
    case 1:  // the first lines: indices and wait words
      write(random.below(32) % words, nasty(random));
      break;
    case 2:
      write(random.below(words), nasty(random));
      break;
    default:  // leave it alone mostly, so that the ring gets anywhere
      break;
  }
}

// Wait words are garbage too: whatever they hold, waking and arming end.
void use(WaitWord& word, Random& random) {
  if (random.chance(0.9)) return;  // three system calls
  word.wake_if_armed();
  const std::uint32_t armed = word.arm();
  (void)word.sleep(armed, Deadline::at_ns(0), Clock::steady());
}

class HostilePeer : public ::testing::TestWithParam<Touching> {
 protected:
  // Runs `turn` until it says that the end is corrupt; then it must stay so. Counts the seeds that got there.
  template <class Attach, class Turn>
  void run(std::size_t bytes, Attach attach, Turn turn) {
    GuardedMemory memory(bytes, GetParam());
    int corrupted = 0, survived = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(seed);
      Random random(seed);
      memory.clear();
      auto end = attach(memory.bytes());
      const int turns = static_cast<int>(1 + random.below(kMostTurns));
      for (int i = 0; i < turns && !end.corrupt(); ++i) {
        vandalise(memory.bytes(), random);
        turn(end, random);
        if (HasFatalFailure()) return;
      }
      end.corrupt() ? ++corrupted : ++survived;
      if (!end.corrupt()) continue;
      memory.clear();  // an innocent face does not help
      turn(end, random);
      ASSERT_TRUE(end.corrupt());
    }
    EXPECT_TRUE(memory.slack_is_intact());
    EXPECT_GT(corrupted, 0);
    EXPECT_GT(survived, 0) << "the vandal never let the ring get anywhere: the test is too crude";
  }
};

TEST_P(HostilePeer, SlotProducer) {
  const auto attach = [](auto memory) { return *SlotProducer::attach(memory, kGeometry); };
  run(kGeometry.bytes(), attach, [](SlotProducer& end, Random& random) {
    const std::vector<std::byte> payload(random.below(57), std::byte{0x55});
    // What was free when last looked at, then once more what an unchanged head can give.
    unsigned pushed = 0;
    const bool was_corrupt = end.corrupt();
    while (end.try_push(1, payload) == RingState::ok) ASSERT_LE(++pushed, 2 * kGeometry.slot_count);
    ASSERT_FALSE(was_corrupt && pushed > 0);
    ASSERT_FALSE(end.corrupt() && end.has_space());
    use(end.shared().data, random);
    use(end.shared().space, random);
    // Plays the consumer's part now and then.
    if (random.chance(0.5)) end.shared().head.fetch_add(random.below(3));
  });
}

TEST_P(HostilePeer, SlotConsumer) {
  std::uint64_t position = 0;  // of an honest producer, so that some slots are good
  const auto attach = [&](auto memory) { return position = 0, *SlotConsumer::attach(memory, kGeometry); };
  run(kGeometry.bytes(), attach, [&](SlotConsumer& end, Random& random) {
    if (random.chance(0.7)) {
      auto* slot = reinterpret_cast<std::byte*>(&end.shared()) + sizeof(SlotRingShared) + position % 8 * 64;
      const detail::SlotHeader header{static_cast<std::uint32_t>(++position), 0,
                                      static_cast<std::uint16_t>(random.below(60))};  // 57..59 do not fit
      std::memcpy(slot, &header, sizeof header);
    }
    const bool was_corrupt = end.corrupt();
    SlotConsumer::Message message;
    for (unsigned i = 0; end.try_peek(message) == RingState::ok; ++i) {
      ASSERT_FALSE(was_corrupt);
      ASSERT_LE(i, kGeometry.slot_count);
      ASSERT_LE(message.payload.size(), 56u);
      for (const std::byte b : message.payload) (void)*static_cast<const volatile std::byte*>(&b);
      end.release();
    }
    ASSERT_EQ(end.corrupt(), end.try_peek(message) == RingState::corrupt);
    ASSERT_EQ(end.corrupt(), end.has_data()) << "whoever waits for data must learn of the corruption";
    use(end.shared().data, random);
  });
}

TEST_P(HostilePeer, ByteProducer) {
  const auto attach = [](auto memory) { return *ByteProducer::attach(memory, kCapacity); };
  run(byte_ring_bytes(kCapacity), attach, [](ByteProducer& end, Random& random) {
    const bool was_corrupt = end.corrupt();
    const std::vector<std::byte> bytes(random.below(2 * kCapacity), std::byte{0x55});
    const std::size_t written = end.write(bytes);
    ASSERT_LE(written, was_corrupt ? 0 : kCapacity);
    const auto space = end.space();
    ASSERT_LE(space.size(), was_corrupt ? 0 : kCapacity);
    for (auto& piece : {space.first, space.second}) std::fill(piece.begin(), piece.end(), std::byte{0x66});
    if (!end.corrupt()) end.publish(random.below(space.size() + 1));
    use(end.shared().space, random);
    if (random.chance(0.5)) end.shared().head.fetch_add(random.below(20));
  });
}

TEST_P(HostilePeer, ByteConsumer) {
  const auto attach = [](auto memory) { return *ByteConsumer::attach(memory, kCapacity); };
  run(byte_ring_bytes(kCapacity), attach, [](ByteConsumer& end, Random& random) {
    const bool was_corrupt = end.corrupt();
    std::vector<std::byte> bytes(random.below(2 * kCapacity));
    ASSERT_LE(end.read(bytes), was_corrupt ? 0 : kCapacity);
    const auto ready = end.peek();
    ASSERT_LE(ready.size(), was_corrupt ? 0 : kCapacity);
    for (const auto& piece : {ready.first, ready.second})
      for (const std::byte& b : piece) (void)*static_cast<const volatile std::byte*>(&b);
    if (!end.corrupt()) end.consume(random.below(ready.size() + 1));
    use(end.shared().data, random);
    if (random.chance(0.5)) end.shared().tail.fetch_add(random.below(100));
  });
}

INSTANTIATE_TEST_SUITE_P(Of, HostilePeer, ::testing::Values(Touching::front_guard, Touching::back_guard),
                         [](const auto& test) {
                           return test.param == Touching::front_guard ? "FrontGuarded" : "BackGuarded";
                         });

// One impossible value at a time, with the ring in the middle of its life: 24 written, 16 of them read.
TEST(ImpossibleIndices, MakeTheByteProducerCorrupt) {
  for (const std::uint64_t head :
       {std::uint64_t{15}, std::uint64_t{0}, std::uint64_t{25}, kCapacity + 25, UINT64_MAX}) {
    GuardedMemory memory(byte_ring_bytes(kCapacity));
    auto producer = *ByteProducer::attach(memory.bytes(), kCapacity);
    producer.publish(24);
    producer.shared().head = 16;
    ASSERT_EQ(producer.bytes_free(), kCapacity - 8);
    producer.shared().head = head;
    EXPECT_EQ(producer.bytes_free(), 0u) << head;
    EXPECT_TRUE(producer.corrupt()) << head;
    producer.shared().head = 16;
    EXPECT_EQ(producer.write(memory.bytes().first(1)), 0u) << "for good";
    EXPECT_EQ(producer.space().size(), 0u);
  }
}

TEST(ImpossibleIndices, MakeTheByteConsumerCorrupt) {
  for (const std::uint64_t tail : {std::uint64_t{23}, std::uint64_t{0}, 16 + kCapacity + 1, UINT64_MAX}) {
    GuardedMemory memory(byte_ring_bytes(kCapacity));
    auto consumer = *ByteConsumer::attach(memory.bytes(), kCapacity);
    consumer.shared().tail = 24;
    ASSERT_EQ(consumer.bytes_ready(), 24u);
    consumer.consume(16);
    consumer.shared().tail = tail;
    EXPECT_EQ(consumer.bytes_ready(), 0u) << tail;
    EXPECT_TRUE(consumer.corrupt()) << tail;
    consumer.shared().tail = 24;
    std::byte byte{};
    EXPECT_EQ(consumer.read({&byte, 1}), 0u) << "for good";
    EXPECT_EQ(consumer.peek().size(), 0u);
  }
}

TEST(ImpossibleIndices, MakeTheSlotProducerCorrupt) {
  for (const std::uint64_t head : {std::uint64_t{3}, std::uint64_t{0}, std::uint64_t{13}, UINT64_MAX}) {
    GuardedMemory memory(kGeometry.bytes());
    auto producer = *SlotProducer::attach(memory.bytes(), kGeometry);
    for (int i = 0; i < 8; ++i) ASSERT_EQ(producer.try_push(0, {}), RingState::ok);
    producer.shared().head = 4;
    for (int i = 0; i < 4; ++i) ASSERT_EQ(producer.try_push(0, {}), RingState::ok);
    producer.shared().head = head;
    EXPECT_EQ(producer.try_push(0, {}), RingState::corrupt) << head;
    producer.shared().head = 12;
    EXPECT_EQ(producer.try_push(0, {}), RingState::corrupt) << "for good";
  }
}

TEST(ImpossibleIndices, MakeTheSlotConsumerCorrupt) {
  // What the next slot, position 0, may hold is nothing or stamp 1 with a length that fits.
  for (const detail::SlotHeader header : {detail::SlotHeader{2, 0, 0}, detail::SlotHeader{0xffffffff, 0, 0},
                                          detail::SlotHeader{1, 0, 57}, detail::SlotHeader{1, 0, 0xffff}}) {
    GuardedMemory memory(kGeometry.bytes());
    auto consumer = *SlotConsumer::attach(memory.bytes(), kGeometry);
    std::byte* const slot = memory.bytes().data() + sizeof(SlotRingShared);
    std::memcpy(slot, &header, sizeof header);
    SlotConsumer::Message message;
    EXPECT_EQ(consumer.try_peek(message), RingState::corrupt) << header.stamp << ' ' << header.length;
    const detail::SlotHeader good{1, 0, 0};
    std::memcpy(slot, &good, sizeof good);
    EXPECT_EQ(consumer.try_peek(message), RingState::corrupt) << "for good";
  }
}

}  // namespace
}  // namespace viaduct
