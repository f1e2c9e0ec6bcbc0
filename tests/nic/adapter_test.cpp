// From driver to driver: host, firmware, wire, firmware, host, on the caller's thread.
#include <gmock/gmock.h>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Adapter, CarriesAFrame) {
  Pair pair(inlined());
  const Bytes frame = numbered_frame(1, 60);
  ASSERT_TRUE(pair.left->host().send_copy(frame));
  pair.left->host().ring();
  pair.turn();
  EXPECT_THAT(receive_all(pair.right->host()), ElementsAre(frame));
}

TEST(Adapter, SendsNothingBeforeTheMailboxIsWritten) {
  Pair pair(inlined());
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(1, 60)));
  pair.turn();
  EXPECT_THAT(receive_all(pair.right->host()), IsEmpty());
}

TEST(Adapter, CarriesEveryLengthInBothDirections) {
  Pair pair(inlined());
  for (std::size_t length = kLeastNumbered; length <= kStandardFrame; length += 13) {
    const Bytes there = numbered_frame(1, length), back = numbered_frame(2, length);
    ASSERT_TRUE(pair.left->host().send_copy(there));
    ASSERT_TRUE(pair.right->host().send_copy(back));
    pair.left->host().ring(), pair.right->host().ring();
    pair.turn(8);
    ASSERT_THAT(receive_all(pair.right->host()), ElementsAre(there)) << length;
    ASSERT_THAT(receive_all(pair.left->host()), ElementsAre(back)) << length;
  }
}

TEST(Adapter, GathersAPacketFromItsFragmentsAndGivesTheCookieBack) {
  Pair pair(inlined());
  Bytes memory(4096);
  const Bytes frame = numbered_frame(3, 700);
  const auto address = pair.left->host().register_memory(memory.data(), memory.size());
  ASSERT_TRUE(address);
  std::copy_n(frame.begin(), 14, memory.begin());
  std::copy_n(frame.begin() + 14, 1, memory.begin() + 1000);
  std::copy(frame.begin() + 15, frame.end(), memory.begin() + 2000);
  const Fragment fragments[] = {{*address, 14}, {*address + 1000, 1}, {*address + 2000, 685}};
  ASSERT_TRUE(pair.left->host().send(fragments, 4711));
  pair.left->host().ring();
  pair.turn();
  EXPECT_THAT(receive_all(pair.right->host()), ElementsAre(frame));
  std::uint64_t cookies[4];
  ASSERT_EQ(pair.left->host().reclaim(cookies), 1u);
  EXPECT_EQ(cookies[0], 4711u);
  EXPECT_EQ(pair.left->host().send_space(), kSendRing);
}

TEST(Adapter, GoesRoundItsRingsManyTimesInOrder) {
  Pair pair(inlined());
  std::uint32_t sent = 0, received = 0;
  while (received < 20'000) {
    while (sent < 20'000 && pair.left->host().send_copy(numbered_frame(sent, 60 + sent % 1400))) ++sent;
    pair.left->host().ring();
    pair.turn(2);
    for (const Bytes& frame : receive_all(pair.right->host())) {
      ASSERT_EQ(frame, numbered_frame(received, 60 + received % 1400));
      ++received;
    }
  }
  const Totals totals = pair.right->statistics().totals;
  EXPECT_EQ(totals.packets_received, 20'000u);
  EXPECT_EQ(totals.no_buffer_drops, 0u);
  EXPECT_EQ(pair.left->statistics().totals.packets_sent, 20'000u);
}

TEST(Adapter, CountsDropsWhileThereAreNoBuffersAndRecoversAtOnce) {
  Config config = inlined();
  config.mini_buffer = 0;
  Pair pair(config);
  Packet held[kReceiveRing + 64];
  std::size_t count = 0;
  constexpr std::uint32_t kSent = kReceiveRing + 300;
  for (std::uint32_t sent = 0; sent < kSent;) {
    if (pair.left->host().send_copy(numbered_frame(sent, 60))) ++sent;
    pair.left->host().ring();
    pair.turn(4);
    count += pair.right->host().receive(0, std::span(held).subspan(count));
  }
  EXPECT_EQ(count, kReceiveRing);
  EXPECT_EQ(pair.right->statistics().totals.no_buffer_drops, kSent - kReceiveRing);
  for (const Packet& packet : std::span(held, count)) pair.right->host().give_back(packet);
  pair.right->host().post();
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(9999, 60)));
  pair.left->host().ring();
  pair.turn();
  EXPECT_THAT(receive_all(pair.right->host()), ElementsAre(numbered_frame(9999, 60)));
}

TEST(Adapter, HoldsFramesInTheMacInsteadWhenAsked) {
  Config config = inlined();
  config.mini_buffer = 0;
  config.hold_when_empty = true;
  Pair pair(config);
  std::vector<Packet> held;
  std::uint32_t sent = 0, received = 0;
  const auto take = [&] {
    Packet packets[64];
    for (const Packet& packet : std::span(packets, pair.right->host().receive(0, packets))) {
      ASSERT_EQ(number_of({packet.data, packet.length}), received++);
      held.push_back(packet);
    }
  };
  for (int i = 0; i < 100; ++i) {
    while (sent < kReceiveRing + 300 && pair.left->host().send_copy(numbered_frame(sent, 60))) ++sent;
    pair.left->host().ring();
    pair.turn(4);
    take();
  }
  EXPECT_EQ(received, kReceiveRing);
  for (const Packet& packet : held) pair.right->host().give_back(packet);
  pair.right->host().post();
  for (int i = 0; i < 100; ++i) pair.turn(4), take();
  EXPECT_EQ(received, kReceiveRing + 300);
  EXPECT_EQ(pair.right->statistics().totals.no_buffer_drops, 0u);
}

TEST(Adapter, PutsShortFramesIntoMiniBuffersAndLongOnesWhereTheyFit) {
  Pair pair(inlined());
  pair.turn();
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(1, 128)));
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(2, 129)));
  pair.left->host().ring();
  pair.turn();
  const RingLevels levels = pair.right->statistics().levels;
  EXPECT_EQ(levels.mini_available, kMiniRing - 1);
  EXPECT_EQ(levels.receive_available, kReceiveRing - 1);
}

TEST(Adapter, RefusesWhatCannotBeAndSaysWhy) {
  Failure why;
  Config config;
  config.partition = Partition::parallel;
  config.cores = {0};
  EXPECT_FALSE(Adapter::create(config, make_null_mac(), why));
  EXPECT_THAT(why.message, HasSubstr("1 cores for 2 processors"));
  config = {};
  config.queues = kMostQueues + 1;
  EXPECT_FALSE(Adapter::create(config, make_null_mac(), why));
  EXPECT_THAT(why.message, HasSubstr("receive queues"));
  config = {};
  config.partition = Partition::custom;
  config.processors = 2;
  config.processor_of[static_cast<unsigned>(Event::send_data_ready)] = 1;
  EXPECT_FALSE(Adapter::create(config, make_null_mac(), why));
  EXPECT_THAT(why.message, HasSubstr("share a DMA channel"));
}

}  // namespace
}  // namespace viaduct::nic
