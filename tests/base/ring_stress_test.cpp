// Both rings between two threads (where the thread sanitizer looks for missing edges) and between two processes, with
// both ends sleeping whenever they find nothing: a lost wake-up hangs, a lost ordering edge breaks the checksum.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/byte_ring.hpp"
#include "base/child.hpp"
#include "base/guarded_memory.hpp"
#include "base/random.hpp"
#include "base/slot_ring.hpp"
#include "base/waiter.hpp"

namespace viaduct {
namespace {

using testing::Child;
using testing::GuardedMemory;
using testing::HangGuard;

constexpr int kMessages = testing::rounds(200'000);
constexpr std::uint64_t kStreamBytes = testing::rounds(64 << 20);
constexpr SlotRingGeometry kGeometry{.slot_size = 64, .slot_count = 16};
constexpr std::size_t kCapacity = 8192;

template <class Ready>
bool wait_until(WaitWord& word, Ready ready) {
  static thread_local Waiter waiter(2'000);
  FutexSleeper sleeper;
  return waiter.wait(word, sleeper, Deadline::never(), ready) == WaitResult::ready;
}

// The n-th message: 1..7 words, each telling n, so that a slot seen half-written cannot pass.
std::span<const std::byte> nth_message(std::uint64_t n, std::array<std::uint64_t, 7>& words) {
  words.fill(n * 0x9e3779b97f4a7c15);
  return std::as_bytes(std::span(words)).first(8 + n % 49);
}

int produce_messages(std::span<std::byte> memory) {
  auto producer = *SlotProducer::attach(memory, kGeometry);
  std::array<std::uint64_t, 7> words;
  for (int n = 0; n < kMessages; ++n) {
    const auto payload = nth_message(static_cast<std::uint64_t>(n), words);
    while (producer.try_push(static_cast<std::uint16_t>(n), payload) == RingState::full)
      if (!wait_until(producer.shared().space, [&] { return producer.has_space(); })) return 1;
    producer.shared().data.wake_if_armed();
  }
  return producer.corrupt() ? 1 : 0;
}

int consume_messages(std::span<std::byte> memory) {
  auto consumer = *SlotConsumer::attach(memory, kGeometry);
  std::array<std::uint64_t, 7> words;
  for (int n = 0; n < kMessages;) {
    SlotConsumer::Message message;
    const RingState state = consumer.try_peek(message);
    if (state == RingState::empty) {
      consumer.publish_head();
      consumer.shared().space.wake_if_armed();
      if (!wait_until(consumer.shared().data, [&] { return consumer.has_data(); })) return 1;
      continue;
    }
    CHILD_EXPECT(state == RingState::ok);
    const auto expected = nth_message(static_cast<std::uint64_t>(n), words);
    CHILD_EXPECT(message.tag == static_cast<std::uint16_t>(n));
    CHILD_EXPECT(std::ranges::equal(message.payload, expected));
    if (consumer.release()) consumer.shared().space.wake_if_armed();
    ++n;
  }
  return 0;
}

std::byte nth_byte(std::uint64_t n) {
  return static_cast<std::byte>(n * 131 >> 5);
}

int produce_stream(std::span<std::byte> memory) {
  auto producer = *ByteProducer::attach(memory, kCapacity);
  Random random(1);
  std::vector<std::byte> piece(20000);
  for (std::uint64_t written = 0; written < kStreamBytes;) {
    const std::size_t size = std::min<std::uint64_t>(1 + random.below(piece.size()), kStreamBytes - written);
    for (std::size_t i = 0; i < size; ++i) piece[i] = nth_byte(written + i);
    for (std::size_t done = 0; done < size;) {
      const std::size_t taken = producer.write(std::span(piece).first(size).subspan(done));
      producer.shared().data.wake_if_armed();
      done += taken;
      if (taken != 0) continue;
      CHILD_EXPECT(!producer.corrupt());
      if (!wait_until(producer.shared().space, [&] { return producer.bytes_free() > 0; })) return 1;
    }
    written += size;
  }
  return 0;
}

int consume_stream(std::span<std::byte> memory) {
  auto consumer = *ByteConsumer::attach(memory, kCapacity);
  Random random(2);
  std::vector<std::byte> piece(20000);
  for (std::uint64_t taken = 0; taken < kStreamBytes;) {
    const std::size_t size = consumer.read(std::span(piece).first(1 + random.below(piece.size())));
    consumer.shared().space.wake_if_armed();
    for (std::size_t i = 0; i < size; ++i) CHILD_EXPECT(piece[i] == nth_byte(taken + i));
    taken += size;
    if (size != 0) continue;
    CHILD_EXPECT(!consumer.corrupt());
    if (!wait_until(consumer.shared().data, [&] { return consumer.bytes_ready() > 0; })) return 1;
  }
  return 0;
}

struct Pairing {
  const char* name;
  std::size_t bytes;
  int (*produce)(std::span<std::byte>);
  int (*consume)(std::span<std::byte>);
};

class RingStress : public ::testing::TestWithParam<Pairing> {
 protected:
  HangGuard guard_;
  GuardedMemory memory_{GetParam().bytes};
};

TEST_P(RingStress, BetweenTwoThreads) {
  int produced = -1;
  std::thread producer([&] { produced = GetParam().produce(memory_.bytes()); });
  const int consumed = GetParam().consume(memory_.bytes());
  producer.join();
  EXPECT_EQ(produced, 0);
  EXPECT_EQ(consumed, 0);
}

TEST_P(RingStress, BetweenTwoProcesses) {
  Child producer([&] { return GetParam().produce(memory_.bytes()); });
  EXPECT_EQ(GetParam().consume(memory_.bytes()), 0);
  EXPECT_EQ(producer.wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, RingStress,
                         ::testing::Values(Pairing{"Slots", kGeometry.bytes(), produce_messages, consume_messages},
                                           Pairing{"Bytes", byte_ring_bytes(kCapacity), produce_stream,
                                                   consume_stream}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace viaduct
