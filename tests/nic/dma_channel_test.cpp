// The live DMA channel: order, the engine for large copies, sharing between processors.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "nic/dma_channel.hpp"

namespace viaduct::nic {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed + (i >> 8));
  return bytes;
}

TEST(DmaChannel, CopiesEveryShortLengthExactly) {
  HostMemory memory;
  Bytes host(256), local = pattern(200, 1);
  const HostAddress address = *memory.add(host.data(), host.size());
  DmaChannel channel(Direction::write, memory, DmaChannel::kNeverShare);
  for (std::uint32_t length = 0; length <= 200; ++length) {
    std::fill(host.begin(), host.end(), std::byte{0xaa});
    channel.enqueue({address + 8, local.data(), length, Transfer::frame, 0, length});
    DmaCompletion completion;
    ASSERT_TRUE(channel.next_completion(completion));
    ASSERT_EQ(completion.argument, length);
    ASSERT_TRUE(std::equal(host.begin() + 8, host.begin() + 8 + length, local.begin()));
    ASSERT_EQ(host[7], std::byte{0xaa});
    ASSERT_EQ(host[8 + length], std::byte{0xaa});
  }
}

TEST(DmaChannel, WritesNothingOutsideTheMemory) {
  HostMemory memory;
  Bytes host(64);
  const HostAddress address = *memory.add(host.data(), host.size());
  EXPECT_NE(memory.at(address, 64), nullptr);
  EXPECT_EQ(memory.at(address, 65), nullptr);
  EXPECT_EQ(memory.at(address + 64, 1), nullptr);
  EXPECT_EQ(memory.at(address - 1, 1), nullptr);
  EXPECT_EQ(memory.at(address + (HostAddress{1} << 48), 1), nullptr);
  const volatile HostAddress last = ~HostAddress{0};
  EXPECT_EQ(memory.at(last, 1), nullptr);
}

TEST(DmaChannel, KeepsOrderBehindALargeCopy) {
  HostMemory memory;
  constexpr std::uint32_t kLarge = 1 << 20;
  Bytes host(kLarge + 64), local = pattern(kLarge, 2);
  const HostAddress address = *memory.add(host.data(), host.size());
  DmaChannel channel(Direction::write, memory, DmaChannel::kNeverShare);
  auto& index = *reinterpret_cast<std::uint32_t*>(host.data() + kLarge);
  for (std::uint32_t round = 1; round <= 20; ++round) {
    std::fill_n(host.begin(), kLarge, std::byte{0});
    channel.enqueue({address, local.data(), kLarge, Transfer::frame, 0, 0});
    channel.enqueue({address + kLarge, nullptr, 4, Transfer::return_producer, 0, round});
    while (!channel.has_completions()) {
      if (index == round) {
        ASSERT_TRUE(std::equal(local.begin(), local.end(), host.begin())) << "the index overtook";
      }
    }
    DmaCompletion completion;
    while (!channel.next_completion(completion) || completion.what != Transfer::return_producer)
      (void)channel.has_completions();
    ASSERT_EQ(index, round);
    ASSERT_TRUE(std::equal(local.begin(), local.end(), host.begin()));
  }
}

TEST(DmaChannel, SharedCopiesAreDoneOnceEachWithHelpers) {
  HostMemory memory;
  constexpr std::uint32_t kSize = 2048, kSlots = 64, kRounds = 300;
  Bytes host(kSize * kSlots);
  const HostAddress address = *memory.add(host.data(), host.size());
  DmaChannel channel(Direction::write, memory, 512);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> helped{0};
  std::vector<std::thread> helpers;
  for (int i = 0; i < 2; ++i)
    helpers.emplace_back([&] {
      while (!stop.load()) {
        if (channel.help())
          helped.fetch_add(1);
        else
          std::this_thread::yield();
      }
    });
  std::vector<Bytes> sources;
  for (std::uint32_t i = 0; i < kSlots; ++i) sources.push_back(pattern(kSize, i));
  bool right = true;
  for (std::uint32_t round = 0; round < kRounds && right; ++round) {
    for (std::uint32_t i = 0; i < kSlots; ++i)
      channel.enqueue({address + i * kSize, sources[(i + round) % kSlots].data(), kSize, Transfer::frame, 0, i});
    std::this_thread::yield();
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      DmaCompletion completion;
      while (!channel.next_completion(completion)) (void)channel.has_completions();
      right &= completion.argument == i && std::equal(sources[(i + round) % kSlots].begin(),
                                                      sources[(i + round) % kSlots].end(), host.begin() + i * kSize);
    }
  }
  stop = true;
  for (std::thread& helper : helpers) helper.join();
  EXPECT_TRUE(right);
  EXPECT_GT(helped.load(), 0u);
}

}  // namespace
}  // namespace viaduct::nic
