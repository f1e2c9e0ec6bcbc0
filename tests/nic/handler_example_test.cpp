// The handler that docs/nic.md shows: it answers ping frames in the firmware, and what handlers may rely on.
#include <gmock/gmock.h>
#include <atomic>

#include <thread>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

class Echo final : public FrameHandler {
 public:
  explicit Echo(std::uint16_t type) : type_(type) {}

  // On the processor of Receive Complete. Frames are hostile: look at lengths first.
  void handle(std::span<const Frame> frames, std::span<FrameFate> fates, Transmitter& out) override {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const Frame& frame = frames[i];
      if (fates[i] != FrameFate::to_host || frame.length < kEthernetHeader || frame.length > answer_.size()) continue;
      const auto type = static_cast<std::uint16_t>(std::to_integer<unsigned>(frame.data[12]) << 8 |
                                                   std::to_integer<unsigned>(frame.data[13]));
      if (type != type_) continue;
      std::memcpy(answer_.data(), frame.data, frame.length);
      std::memcpy(answer_.data(), frame.data + 6, 6);  // back to whom it came from
      std::memcpy(answer_.data() + 6, frame.data, 6);
      fates[i] = out.send({answer_.data(), frame.length}) ? FrameFate::taken : FrameFate::dropped;
    }
  }

 private:
  const std::uint16_t type_;
  std::array<std::byte, kStandardFrame> answer_{};
};

Config with(FrameHandler& handler, Partition partition) {
  Config config = inlined();
  config.handler = &handler;
  config.hold_when_empty = true;  // frames that come before the first buffers are posted
  config.partition = partition;
  if (partition == Partition::dynamic) config.processors = 2;
  config.spin_us = 0;
  return config;
}

bool receive_in_time(Mac& mac, Frame& frame) {
  for (const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000; Clock::steady().now_ns() < end;) {
    if (mac.receive({&frame, 1}) == 1) return true;
    std::this_thread::yield();
  }
  return false;
}

class HandlerExample : public testing::TestWithParam<Partition> {};

TEST_P(HandlerExample, AnswersPingFramesAndLeavesTheOthersToTheHost) {
  Echo echo(0x88b6);
  auto [here, there] = make_wire();
  Failure why;
  auto adapter = Adapter::create(with(echo, GetParam()), std::move(there), why);
  ASSERT_TRUE(adapter) << why.message;
  for (std::uint32_t i = 0; i < 200; ++i) {
    Bytes ping = numbered_frame(i, 60 + i);
    ping[13] = std::byte{0xb6};
    const Bytes other = numbered_frame(1000 + i, 80);
    for (const Bytes* bytes : {static_cast<const Bytes*>(&ping), &other}) {
      const Frame frame{bytes->data(), static_cast<std::uint32_t>(bytes->size())};
      ASSERT_EQ(here->transmit({&frame, 1}), 1U);
    }
    for (int turns = 0; turns < 4; ++turns) adapter->poll();
    Frame answer;
    ASSERT_TRUE(receive_in_time(*here, answer)) << i;
    ASSERT_EQ(answer.length, ping.size());
    EXPECT_EQ(0, std::memcmp(answer.data, ping.data() + 6, 6));
    EXPECT_EQ(0, std::memcmp(answer.data + 6, ping.data(), 6));
    EXPECT_EQ(0, std::memcmp(answer.data + 12, ping.data() + 12, ping.size() - 12));
    here->release(1);
  }
  std::uint32_t to_host = 0;
  for (const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
       to_host < 200 && Clock::steady().now_ns() < end;) {
    adapter->poll();
    for (const Bytes& frame : receive_all(adapter->host())) EXPECT_EQ(number_of(frame), 1000 + to_host++);
  }
  EXPECT_EQ(to_host, 200U);
  EXPECT_EQ(adapter->statistics().totals.packets_sent, 200U);
}

// Sends a frame every millisecond, whatever arrives.
class Beacon final : public FrameHandler {
 public:
  void handle(std::span<const Frame>, std::span<FrameFate>, Transmitter&) override {}
  std::uint64_t next_due_ns() const override { return due_.load(); }
  void on_due(std::uint64_t now, Transmitter& out) override {
    due_ = now + 1'000'000;
    const Bytes frame = numbered_frame(number_, 60);
    if (out.send(frame)) ++number_;
  }

 private:
  std::atomic<std::uint64_t> due_{0};  // a processor that dozes looks, too
  std::uint32_t number_ = 0;
};

TEST_P(HandlerExample, IsCalledWhenItIsDueThoughEveryProcessorSleeps) {
  Beacon beacon;
  auto [here, there] = make_wire();
  Failure why;
  auto adapter = Adapter::create(with(beacon, GetParam()), std::move(there), why);
  ASSERT_TRUE(adapter) << why.message;
  for (std::uint32_t i = 0; i < 20; ++i) {
    if (GetParam() == Partition::inlined) (void)adapter->host().wait(0, 2'000'000);
    Frame frame;
    ASSERT_TRUE(receive_in_time(*here, frame)) << i;
    EXPECT_EQ(number_of({frame.data, frame.length}), i);
    here->release(1);
  }
}

INSTANTIATE_TEST_SUITE_P(, HandlerExample,
                         testing::Values(Partition::inlined, Partition::release, Partition::parallel,
                                         Partition::dynamic));

}  // namespace
}  // namespace viaduct::nic
