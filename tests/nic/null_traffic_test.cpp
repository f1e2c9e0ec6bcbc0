// The firmware between a host and a MAC that cost nothing. Also what callgrind counts instructions of (docs/nic.md).
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

constexpr std::uint64_t kPackets = 20'000;

// Polls until so many packets went both ways together.
Totals run(std::uint32_t send_length, std::uint64_t frames_to_receive) {
  Config config;
  config.null_host = NullTraffic{send_length};
  config.measure_time = config.trace = false;
  Failure why;
  const auto adapter =
      Adapter::create(config, make_null_mac({.frame_length = 60, .frames_to_receive = frames_to_receive}), why);
  EXPECT_TRUE(adapter) << why.message;
  Totals totals;
  do {
    for (int i = 0; i < 16; ++i) adapter->poll();
    totals = adapter->statistics().totals;
  } while (totals.packets_sent + totals.packets_received < kPackets);
  EXPECT_EQ(adapter->mac().counters().sent, totals.packets_sent);
  return totals;
}

TEST(NullTraffic, Sends) {
  const Totals totals = run(60, 0);
  EXPECT_EQ(totals.packets_received, 0u);
  EXPECT_EQ(totals.bytes_sent, totals.packets_sent * 60);
  RecordProperty("packets", static_cast<int>(totals.packets_sent));
}

TEST(NullTraffic, Receives) {
  const Totals totals = run(0, kPackets);
  EXPECT_EQ(totals.packets_sent, 0u);
  EXPECT_EQ(totals.packets_received, kPackets) << "with hold, no frame is dropped";
  EXPECT_EQ(totals.no_buffer_drops, 0u);
}

}  // namespace
}  // namespace viaduct::nic
