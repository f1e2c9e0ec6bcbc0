// An adapter whose host is another MAC: frames go through the firmware both ways, whatever runs it.
#include <gmock/gmock.h>
#include <viaduct/nic_bridge.hpp>

#include <thread>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using testing::HasSubstr;

class BridgePartitions : public testing::TestWithParam<Partition> {};

// One wire on either side: what goes into its far end comes out of the other's.
TEST_P(BridgePartitions, CarryFramesBothWaysInOrder) {
  auto [kernel, host] = make_wire();
  auto [mac, network] = make_wire();
  Config config;
  config.partition = GetParam();
  config.processors = GetParam() == Partition::dynamic ? 2 : 0;
  config.spin_us = 0;
  config.hold_when_empty = true;
  Failure why;
  const auto bridge = Bridge::create(config, std::move(host), std::move(mac), why);
  ASSERT_TRUE(bridge) << why.message;

  constexpr std::uint32_t kFrames = 3000;
  Mac* const ends[2] = {kernel.get(), network.get()};
  std::uint32_t sent[2] = {}, received[2] = {};
  while (received[0] < kFrames || received[1] < kFrames) {
    bool idle = GetParam() != Partition::inlined || !bridge->poll();
    for (int i = 0; i < 2; ++i) {
      const Bytes frame = numbered_frame(sent[i], 60 + sent[i] % 1400);
      const Frame offered{frame.data(), static_cast<std::uint32_t>(frame.size())};
      if (sent[i] < kFrames && ends[i]->transmit({&offered, 1}) == 1) ++sent[i], idle = false;
      Frame got;
      if (ends[i]->receive({&got, 1}) == 0) continue;
      idle = false;
      ASSERT_EQ(Bytes(got.data, got.data + got.length), numbered_frame(received[i], 60 + received[i] % 1400));
      ++received[i];
      ends[i]->release(1);
    }
    if (idle) std::this_thread::yield();
  }
  EXPECT_EQ(bridge->counters().from_host, kFrames);
  EXPECT_EQ(bridge->counters().to_host, kFrames);
  EXPECT_EQ(bridge->adapter().statistics().totals.packets_sent, kFrames);
  EXPECT_EQ(bridge->adapter().statistics().totals.packets_received, kFrames);
}

std::string name_of_partition(const testing::TestParamInfo<Partition>& partition) {
  constexpr const char* kNames[] = {"inline", "release", "parallel", "dynamic"};
  return kNames[static_cast<int>(partition.param)];
}
INSTANTIATE_TEST_SUITE_P(, BridgePartitions,
                         testing::Values(Partition::inlined, Partition::release, Partition::parallel,
                                         Partition::dynamic),
                         name_of_partition);

TEST(Bridge, RefusesAHostWhoseFramesAreLongerThanTheMacs) {
  auto [kernel, host] = make_wire({.max_frame = 9014});
  auto [mac, network] = make_wire();
  Failure why;
  EXPECT_FALSE(Bridge::create({}, std::move(host), std::move(mac), why));
  EXPECT_THAT(why.message, HasSubstr("an MTU of 1500"));
}

TEST(Bridge, DropsAndCountsWhatTheHostCannotTake) {
  auto [kernel, host] = make_wire({.max_frame = 1000});
  auto [mac, network] = make_wire();
  Failure why;
  Config config;
  config.hold_when_empty = true;  // until the first buffers are posted
  const auto bridge = Bridge::create(config, std::move(host), std::move(mac), why);
  ASSERT_TRUE(bridge) << why.message;
  for (const std::size_t length : {1200u, 900u}) {
    const Bytes frame = numbered_frame(static_cast<std::uint32_t>(length), length);
    const Frame offered{frame.data(), static_cast<std::uint32_t>(frame.size())};
    ASSERT_EQ(network->transmit({&offered, 1}), 1u);
  }
  for (int i = 0; i < 100; ++i) bridge->poll();
  Frame got;
  ASSERT_EQ(kernel->receive({&got, 1}), 1u);
  EXPECT_EQ(got.length, 900u);
  kernel->release(1);
  EXPECT_EQ(bridge->host_side().counters().transmit_drops, 1u);
}

}  // namespace
}  // namespace viaduct::nic
