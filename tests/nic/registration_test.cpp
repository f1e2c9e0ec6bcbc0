// Memory that packets are sent from, while it is registered and afterwards.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "base/spin.hpp"
#include "nic/host_memory.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using ::testing::ElementsAre;

TEST(HostMemory, DoesNotKnowMemoryThatWasRemovedEvenWhenItsPlaceIsTakenAgain) {
  HostMemory memory;
  std::byte first[16], second[16];
  const auto old = memory.add(first, sizeof first);
  ASSERT_TRUE(old);
  EXPECT_FALSE(memory.remove(*old + 1)) << "not the address that add() gave";
  ASSERT_TRUE(memory.remove(*old));
  EXPECT_FALSE(memory.remove(*old));
  EXPECT_EQ(memory.at(*old, 1), nullptr);
  const auto again = memory.add(second, sizeof second);
  ASSERT_TRUE(again);
  EXPECT_NE(*again, *old);
  EXPECT_EQ(memory.at(*old, 1), nullptr);
  EXPECT_EQ(memory.at(*again + 3, 13), second + 3);
  EXPECT_EQ(memory.at(*again + 3, 14), nullptr);
}

TEST(HostMemory, HasRoomAgainAfterARemoval) {
  HostMemory memory;
  std::byte bytes[16];
  std::vector<HostAddress> regions;
  while (const auto region = memory.add(bytes, sizeof bytes)) regions.push_back(*region);
  EXPECT_EQ(regions.size(), HostMemory::kMostRegions);
  for (int i = 0; i < 5000; ++i) {  // more often than numbers last
    ASSERT_TRUE(memory.remove(regions[7]));
    const auto region = memory.add(bytes, sizeof bytes);
    ASSERT_TRUE(region);
    regions[7] = *region;
    ASSERT_EQ(memory.at(*region, 16), bytes);
  }
}

TEST(Registration, LastsUntilWhatWasSentFromItIsTaken) {
  Pair pair(inlined());
  Host& host = pair.left->host();
  const Bytes frame = numbered_frame(1, 60);
  Bytes memory = frame;
  const auto address = host.register_memory(memory.data(), memory.size());
  ASSERT_TRUE(address);
  const Fragment whole{*address, 60};
  ASSERT_TRUE(host.send({&whole, 1}, 7));
  EXPECT_FALSE(host.unregister_memory(*address)) << "queued";
  host.ring();
  EXPECT_FALSE(host.unregister_memory(*address)) << "rung for";
  pair.turn();
  EXPECT_TRUE(host.unregister_memory(*address)) << "taken";
  EXPECT_FALSE(host.unregister_memory(*address)) << "unknown by now";
  std::uint64_t cookies[4];
  EXPECT_EQ(host.reclaim(cookies), 1u);
  EXPECT_THAT(receive_all(pair.right->host()), ElementsAre(frame));
}

TEST(Registration, MakesThePacketsOfItsAddressBadWhenItEnds) {
  Pair pair(inlined());
  Host& host = pair.left->host();
  Bytes memory = numbered_frame(1, 60);
  const auto old = host.register_memory(memory.data(), memory.size());
  ASSERT_TRUE(old && host.unregister_memory(*old));
  const auto address = host.register_memory(memory.data(), memory.size());
  ASSERT_TRUE(address);
  for (const std::uint64_t from : {*old, *address}) {
    const Fragment whole{from, 60};
    ASSERT_TRUE(host.send({&whole, 1}, 0));
  }
  host.ring();
  pair.turn();
  EXPECT_EQ(pair.left->statistics().totals.bad_send_packets, 1u);
  EXPECT_THAT(receive_all(pair.right->host()), ElementsAre(numbered_frame(1, 60)));
}

TEST(Registration, OfTheDriversOwnMemoryDoesNotEnd) {
  Pair pair(inlined());
  EXPECT_FALSE(pair.left->host().unregister_memory(0));
  EXPECT_FALSE(pair.left->host().unregister_memory(std::uint64_t{1} << 48));
}

// The memory is unmapped at once: whoever still touched it would not survive.
TEST(Registration, EndsWhileProcessorsRun) {
  for (const Partition partition : {Partition::release, Partition::parallel, Partition::dynamic}) {
    Config config = inlined();
    config.partition = partition;
    config.processors = partition == Partition::dynamic ? 2 : 0;
    config.spin_us = 20;
    Pair pair(config, inlined(), {});
    Host& host = pair.left->host();
    std::vector<Bytes> got;
    constexpr std::uint32_t kRounds = 50;
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(page, MAP_FAILED);
      const Bytes frame = numbered_frame(i, 1000);
      std::memcpy(page, frame.data(), frame.size());
      const auto address = host.register_memory(page, 4096);
      ASSERT_TRUE(address);
      const Fragment whole{*address, 1000};
      ASSERT_TRUE(host.send({&whole, 1}, i));
      host.ring();
      while (!host.unregister_memory(*address)) cpu_relax();
      ::munmap(page, 4096);
      std::uint64_t cookie = 0;
      ASSERT_EQ(host.reclaim({&cookie, 1}), 1u);
      EXPECT_EQ(cookie, i);
      while (got.size() <= i) {
        pair.right->poll();
        for (Bytes& each : receive_all(pair.right->host())) got.push_back(std::move(each));
      }
      ASSERT_EQ(got[i], frame);
    }
  }
}

}  // namespace
}  // namespace viaduct::nic
