// A driver that lies, and frames that cannot be: counted and dropped, and the adapter goes on.
#include <gmock/gmock.h>

#include "nic/pair.hpp"
#include "nic/simulated_adapter.hpp"

namespace viaduct::nic {
namespace {

using testing::ElementsAre;

// A bad driver on the left, a good one on the right, in virtual time.
class Hostile : public testing::Test {
 protected:
  void make(const SimulatedOptions& options = {}) {
    auto [a, b] = make_wire({.clock = &clock_});
    left_ = std::make_unique<SimulatedAdapter>(std::move(a), clock_, options);
    right_ = std::make_unique<SimulatedAdapter>(std::move(b), clock_, options);
    turn();
  }
  void turn(int times = 200) {
    for (int i = 0; i < times; ++i) {
      for (unsigned cpu = 0; cpu < left_->processors(); ++cpu) left_->turn(cpu), right_->turn(cpu);
      clock_.advance_ns(10'000);
    }
  }
  HostRings& rings() { return left_->driver().host_rings(); }
  void put(SendDescriptor descriptor) { rings().send[producer_++ % kSendRing] = descriptor; }
  void ring(std::uint32_t producer) { left_->registers().write_mailbox(Mailbox::send_producer, producer); }
  // A good frame by way of the ring, as the last proof that the adapter goes on.
  void put_good(std::uint32_t number) {
    const Bytes frame = numbered_frame(number, 60);
    std::copy(frame.begin(), frame.end(), memory_.begin());
    if (!address_) address_ = left_->driver().register_memory(memory_.data(), memory_.size());
    put({*address_, 60, SendDescriptor::kEnd, 0});
  }

  MockClock clock_;
  std::unique_ptr<SimulatedAdapter> left_, right_;
  std::uint32_t producer_ = 0;
  Bytes memory_ = Bytes(65536);
  std::optional<HostAddress> address_;
};

TEST_F(Hostile, DropsPacketsWhoseDescriptorsCannotBe) {
  make();
  put_good(1);
  const SendDescriptor bad[] = {
      {HostAddress{63} << 48, 60, SendDescriptor::kEnd, 0},            // no such region
      {*address_ + memory_.size() - 10, 60, SendDescriptor::kEnd, 0},  // reaches out of its region
      {*address_ + (HostAddress{1} << 47), 60, SendDescriptor::kEnd, 0},
      {*address_, 0, SendDescriptor::kEnd, 0},
      {*address_, kStandardFrame + 1, SendDescriptor::kEnd, 0},
      {*address_, UINT32_MAX, SendDescriptor::kEnd, 0},
      {*address_, 13, SendDescriptor::kEnd, 0},
      {~HostAddress{0}, UINT32_MAX, SendDescriptor::kEnd, 0xffff},
  };
  for (const SendDescriptor& descriptor : bad) put(descriptor);
  put({*address_, 1000, 0, 0}), put({*address_, 1000, SendDescriptor::kEnd, 0});  // too long together
  put_good(1);
  ring(producer_);
  turn();
  const Bytes good = numbered_frame(1, 60);
  EXPECT_THAT(receive_all(right_->driver()), ElementsAre(good, good));
  EXPECT_EQ(left_->totals().bad_send_packets, std::size(bad) + 1);
  EXPECT_EQ(left_->totals().packets_sent, 2u);
  EXPECT_EQ(left_->firmware().send.consumer, producer_) << "bad descriptors are consumed too";
}

TEST_F(Hostile, DropsAPacketOfTooManyFragmentsWhole) {
  make();
  put_good(1);
  for (std::uint32_t i = 0; i < 100; ++i) put({*address_, 20, 0, 0});
  put({*address_, 20, SendDescriptor::kEnd, 0});
  put_good(1);
  ring(producer_);
  turn();
  EXPECT_EQ(receive_all(right_->driver()).size(), 2u);
  EXPECT_EQ(left_->totals().bad_send_packets, 1u);
}

TEST_F(Hostile, WaitsForTheEndOfAPacketThatIsNotThereYet) {
  make();
  put_good(1);
  put({*address_, 30, 0, 0});
  ring(producer_);
  turn();
  EXPECT_EQ(receive_all(right_->driver()).size(), 1u);
  put({*address_ + 30, 30, SendDescriptor::kEnd, 0});
  ring(producer_);
  turn();
  EXPECT_THAT(receive_all(right_->driver()), ElementsAre(numbered_frame(1, 60)));
}

TEST_F(Hostile, IgnoresIndicesThatJump) {
  make();
  for (const std::uint32_t jump : {kSendRing + 1, 0x8000'0000u, 0xffff'ffffu}) {
    ring(jump);
    left_->registers().write_mailbox(Mailbox::receive_producer, kReceiveRing + jump * 3);
    turn(20);
  }
  EXPECT_GE(left_->totals().bad_indices, 3u);
  EXPECT_EQ(left_->totals().packets_sent, 0u);
  put_good(7);
  ring(producer_);
  turn();
  EXPECT_THAT(receive_all(right_->driver()), ElementsAre(numbered_frame(7, 60)));
}

TEST_F(Hostile, GivesBackReceiveBuffersThatCannotBeUsed) {
  SimulatedOptions options;
  options.mini_buffer = 0;
  make(options);
  // Spoil the buffers at the right before it fetches them again: give all back with impossible descriptors.
  for (std::uint32_t i = 0; i < 600; ++i) {
    ASSERT_TRUE(left_->driver().send_copy(numbered_frame(i, 60)));
    left_->driver().ring();
    turn(50);
    (void)left_->driver().reclaim({});
    Packet packet;
    ASSERT_EQ(right_->driver().receive(0, {&packet, 1}), 1u) << i;
    right_->driver().give_back(packet);
    // The descriptor just written, spoilt before the mailbox tells of it.
    ReceiveDescriptor& descriptor = right_->driver().host_rings().receive[i % kReceiveRing];
    if (i < 3) descriptor.address = HostAddress{40} << 48;
    if (i >= 3 && i < 5) descriptor.length = 0;
    right_->driver().post();
  }
  turn();
  EXPECT_EQ(right_->totals().bad_receive_descriptors, 5u);
  EXPECT_EQ(right_->driver().counters().buffers_returned_bad, 5u);
  EXPECT_EQ(right_->totals().packets_received, 600u);
}

TEST_F(Hostile, DropsFramesLongerThanTheirBuffer) {
  make();
  for (ReceiveDescriptor& descriptor : right_->firmware().receive_ring) descriptor.length = 500;
  ASSERT_TRUE(left_->driver().send_copy(numbered_frame(1, 501)));
  ASSERT_TRUE(left_->driver().send_copy(numbered_frame(2, 500)));
  left_->driver().ring();
  turn();
  EXPECT_THAT(receive_all(right_->driver()), ElementsAre(numbered_frame(2, 500)));
  EXPECT_EQ(right_->totals().short_buffer_drops, 1u);
}

// Plays back whatever frames it is given.
class Replay final : public Mac {
 public:
  std::string name() const override { return "replay"; }
  MacAddress address() const override { return {}; }
  std::uint32_t max_frame() const override { return kStandardFrame; }
  MacCounters counters() const override { return {}; }
  std::size_t transmit(std::span<const Frame> frames) override { return frames.size(); }
  std::size_t receive(std::span<Frame> frames) override {
    std::size_t count = 0;
    for (; count < frames.size() && at < script.size(); ++count, ++at)
      frames[count] = {script[at].data(), static_cast<std::uint32_t>(script[at].size())};
    return count;
  }
  void release(std::size_t count) override { released += count; }

  std::vector<Bytes> script;
  std::size_t at = 0, released = 0;
};

TEST(HostileFrames, OfAnyLengthAndContentAreCountedOrDelivered) {
  auto mac = std::make_unique<Replay>();
  Replay& replay = *mac;
  Random random(11);
  std::size_t good = 0;
  std::vector<Bytes> script;
  for (int i = 0; i < 5000; ++i) {
    const std::size_t length = random.chance(0.5) ? random.below(64) : random.below(3000);
    Bytes frame(length);
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random());
    good += length >= kEthernetHeader && length <= kStandardFrame;
    script.push_back(std::move(frame));
  }
  Config config;
  config.coalescing = Coalescing::none();
  config.queues = 4;
  config.steering = Steering{40, 0};  // beyond the end of many frames
  Failure why;
  const auto adapter = Adapter::create(config, std::move(mac), why);
  ASSERT_TRUE(adapter) << why.message;
  while (adapter->poll()) continue;  // the receive buffers are there
  replay.script = std::move(script);
  std::size_t received = 0;
  for (int i = 0; i < 1000; ++i) {
    adapter->poll();
    for (unsigned queue = 0; queue < 4; ++queue) received += receive_all(adapter->host(), queue).size();
  }
  const Totals totals = adapter->statistics().totals;
  EXPECT_EQ(received, good);
  EXPECT_EQ(totals.bad_frames, 5000 - good);
  EXPECT_EQ(replay.released, 5000u);
}

// Random rings, mailboxes and commands: nothing but counters may change outside the registered memory, and in the end
// the adapter still works.
TEST(HostileDriver, FuzzedRingsNeverHurtTheAdapter) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 30;  // each takes many times as long
#else
  constexpr std::uint64_t kSeeds = 300;
#endif
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    MockClock clock;
    auto [a, b] = make_wire({.clock = &clock});
    SimulatedOptions options;
    options.hardware.seed = seed;
    options.batch = static_cast<unsigned>(1 + random.below(64));
    SimulatedAdapter bad(std::move(a), clock, options), good(std::move(b), clock, options);
    const auto noise = [&](auto& ring) {
      auto* bytes = reinterpret_cast<std::uint8_t*>(&ring[random.below(std::size(ring))]);
      for (std::size_t i = 0; i < sizeof ring[0]; ++i)
        if (random.chance(0.6)) bytes[i] = random.chance(0.5) ? 0 : static_cast<std::uint8_t>(random());
    };
    std::uint32_t sent = 0;
    for (int step = 0; step < 2000; ++step) {
      switch (random.below(9)) {
        case 0:
          noise(bad.driver().host_rings().send);
          break;
        case 1:
          noise(bad.driver().host_rings().receive);
          break;
        case 2:
          noise(bad.driver().host_rings().mini);
          break;
        case 3:
          bad.registers().write_mailbox(static_cast<Mailbox>(random.below(kMailboxes)),
                                        random.chance(0.7) ? static_cast<std::uint32_t>(step * random.below(20))
                                                           : static_cast<std::uint32_t>(random()));
          break;
        case 4:
          bad.registers().commands[random.below(kCommandRing)].store(random() & 0x3'0000'00ff);
          break;
        case 5:
          if (good.driver().send_copy(numbered_frame(sent, 60))) ++sent;
          good.driver().ring();
          break;
        default:
          bad.turn(0), good.turn(0);
      }
      (void)receive_all(good.driver());
      (void)receive_all(bad.driver());
      clock.advance_ns(random.below(3000));
    }
    // The other end never noticed: what it sends goes out.
    for (int i = 0; i < 200; ++i) bad.turn(0), good.turn(0), clock.advance_ns(10'000), (void)receive_all(bad.driver());
    ASSERT_EQ(good.totals().packets_sent, sent);
    // And the bad one still sends, as soon as its driver is sane: an index that follows the last one taken.
    const std::uint64_t before = bad.totals().packets_sent;
    Bytes memory(2048);
    const auto address = bad.driver().register_memory(memory.data(), memory.size());
    ASSERT_TRUE(address);
    for (SendDescriptor& descriptor : bad.driver().host_rings().send)
      descriptor = {*address, 60, SendDescriptor::kEnd, 0};
    const std::uint32_t known = bad.firmware().driver_send_producer.load();
    bad.registers().write_mailbox(Mailbox::send_producer, known + 10);
    for (int i = 0; i < 3000; ++i)
      bad.turn(0), good.turn(0), clock.advance_ns(10'000), (void)receive_all(good.driver());
    ASSERT_GE(bad.totals().packets_sent, before + 9) << "the adapter no longer sends";
  }
}

}  // namespace
}  // namespace viaduct::nic
