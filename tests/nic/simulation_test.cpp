// Deterministic simulation: two adapters in virtual time over a wire that loses, duplicates, reorders, corrupts and
// delays. Everything comes from one seed; a failure names it, and `--gtest_filter` with VIADUCT_TEST_SEED runs it
// again.
#include <map>
#include <set>

#include "nic/pair.hpp"
#include "nic/simulated_adapter.hpp"

namespace viaduct::nic {
namespace {

constexpr unsigned kSteerAt = 14;

struct Scenario {
  WireFaults faults;
  SimulatedOptions adapter;
  std::uint32_t frames;

  static Scenario of(std::uint64_t seed) {
    Random random(seed);
    Scenario it;
    const auto sometimes = [&](double most) {
      return random.chance(0.4) ? most * static_cast<double>(random.below(100)) / 100 : 0.0;
    };
    it.faults = {.seed = seed,
                 .loss = sometimes(0.3),
                 .duplication = sometimes(0.3),
                 .reordering = sometimes(0.3),
                 .corruption = sometimes(0.3),
                 .reorder_depth = static_cast<std::uint32_t>(1 + random.below(8)),
                 .delay_ns = random.chance(0.3) ? random.below(20'000) : 0,
                 .delay_spread_ns = random.chance(0.3) ? random.below(20'000) : 0};
    it.adapter.hardware.seed = random();
    it.adapter.hardware.longest_transfer_ns = random.below(3000);
    it.adapter.hardware.entries = static_cast<std::uint32_t>(33 + random.below(100));
    it.adapter.hardware.frames = static_cast<std::uint32_t>(1 + random.below(32));
    it.adapter.processors = static_cast<unsigned>(1 + random.below(3));
    if (it.adapter.processors >= 2) it.adapter.hardware.processor_of = parallel_assignment();
    if (it.adapter.processors == 3) it.adapter.hardware.processor_of[0] = 2;
    it.adapter.queues = static_cast<unsigned>(1 + random.below(4));
    it.adapter.steering = Steering{kSteerAt, 0x88b5};
    it.adapter.mini_buffer = random.chance(0.5) ? 128 : 0;
    it.adapter.hold_when_empty = random.chance(0.5);
    it.adapter.batch = static_cast<unsigned>(1 + random.below(64));
    it.adapter.coalescing = {static_cast<std::uint32_t>(1 + random.below(60)), random.below(5000),
                             static_cast<std::uint32_t>(1 + random.below(25)), random.below(5000)};
    it.frames = static_cast<std::uint32_t>(50 + random.below(250));
    return it;
  }
};

std::size_t length_of(std::uint32_t number) {
  return kLeastNumbered + number * 131 % (kStandardFrame - kLeastNumbered + 1);
}
std::uint8_t steer_of(std::uint32_t number) {
  return static_cast<std::uint8_t>(number * 29);
}

// One end: sends numbered frames in fragments, receives, holds buffers for a while, gives them back in any order.
class End {
 public:
  End(std::unique_ptr<Mac> mac, const MockClock& clock, const Scenario& scenario, std::uint64_t seed)
      : scenario_(scenario),
        random_(seed),
        adapter(std::move(mac), clock, seeded(scenario.adapter, seed)),
        memory_(std::size_t{kSendRing} * 2048),
        slots_(kSendRing),
        seen_(scenario.adapter.queues) {
    base_ = *adapter.driver().register_memory(memory_.data(), memory_.size());
    for (std::uint32_t i = 0; i < kSendRing; ++i) slots_[i] = i;
  }

  void act() {
    switch (random_.below(5)) {
      case 0:
        send();
        break;
      case 1:
        adapter.driver().ring();
        break;
      case 2:
        reclaim();
        break;
      case 3:
        receive();
        break;
      case 4:
        give_back();
        break;
    }
  }
  bool all_sent() const { return sent_ == scenario_.frames; }
  std::size_t outstanding() const { return in_flight_.size(); }
  void settle() {  // what a well-behaved host does in the end
    adapter.driver().ring();
    reclaim();
    receive();
    while (!held_.empty()) give_back();
    adapter.driver().post();
  }

  void check_received() const {
    const bool reorders = scenario_.faults.reordering > 0, doubles = scenario_.faults.duplication > 0;
    for (unsigned queue = 0; queue < seen_.size(); ++queue) {
      std::set<std::uint32_t> unique(seen_[queue].begin(), seen_[queue].end());
      if (!doubles) {
        EXPECT_EQ(unique.size(), seen_[queue].size()) << "a frame was delivered twice";
      }
      if (!reorders) {
        EXPECT_TRUE(std::is_sorted(seen_[queue].begin(), seen_[queue].end())) << "queue " << queue;
      }
      for (const std::uint32_t number : unique) EXPECT_EQ(steer_of(number) % seen_.size(), queue) << "frame " << number;
    }
  }
  std::size_t intact() const {
    std::size_t count = 0;
    for (const auto& queue : seen_) count += queue.size();
    return count;
  }

 private:
  static SimulatedOptions seeded(SimulatedOptions options, std::uint64_t seed) {
    options.hardware.seed ^= seed;
    return options;
  }

  void send() {
    if (all_sent() || slots_.empty()) return;
    const std::uint32_t slot = slots_.back();
    const Bytes frame = numbered_frame(sent_, length_of(sent_), steer_of(sent_));
    std::copy(frame.begin(), frame.end(), memory_.begin() + slot * 2048);
    std::vector<Fragment> fragments;
    for (std::uint32_t at = 0; at < frame.size();) {
      const auto rest = static_cast<std::uint32_t>(frame.size()) - at;
      const std::uint32_t length = fragments.size() == 7 ? rest : 1 + static_cast<std::uint32_t>(random_.below(rest));
      fragments.push_back({base_ + slot * 2048 + at, length});
      at += length;
    }
    if (!adapter.driver().send(fragments, sent_)) return;
    slots_.pop_back();
    in_flight_.push_back({sent_++, slot});
  }
  void reclaim() {
    std::uint64_t cookies[16];
    for (const std::uint64_t cookie : std::span(cookies, adapter.driver().reclaim(cookies))) {
      ASSERT_FALSE(in_flight_.empty());
      ASSERT_EQ(cookie, in_flight_.front().number);
      // From now on the memory is ours again: the adapter must not look at it any more.
      std::fill_n(memory_.begin() + in_flight_.front().slot * 2048, 2048, std::byte{0xee});
      slots_.push_back(in_flight_.front().slot);
      in_flight_.pop_front();
    }
  }
  void receive() {
    const auto queue = static_cast<unsigned>(random_.below(seen_.size()));
    Packet packets[8];
    for (const Packet& packet : std::span(packets, adapter.driver().receive(queue, packets))) {
      const std::span<const std::byte> bytes(packet.data, packet.length);
      if (bytes.size() >= kLeastNumbered) {
        const std::uint32_t number = number_of(bytes);
        const bool whole = number < scenario_.frames && length_of(number) == bytes.size() &&
                           std::ranges::equal(bytes, numbered_frame(number, length_of(number), steer_of(number)));
        if (whole) seen_[queue].push_back(number);
        if (scenario_.faults.corruption == 0) {
          EXPECT_TRUE(whole) << "a frame changed on its way";
        }
      }
      held_.push_back(packet);
    }
  }
  void give_back() {
    for (std::uint64_t count = 1 + random_.below(8); count != 0 && !held_.empty(); --count) {
      std::swap(held_[random_.below(held_.size())], held_.back());
      std::fill_n(held_.back().data, held_.back().length, std::byte{0xdd});
      adapter.driver().give_back(held_.back());
      held_.pop_back();
    }
    if (random_.chance(0.5)) adapter.driver().post();
  }

  struct InFlight {
    std::uint32_t number, slot;
  };
  const Scenario& scenario_;
  Random random_;

 public:
  SimulatedAdapter adapter;

 private:
  Bytes memory_;
  HostAddress base_ = 0;
  std::vector<std::uint32_t> slots_;
  std::deque<InFlight> in_flight_;
  std::vector<Packet> held_;
  std::vector<std::vector<std::uint32_t>> seen_;
  std::uint32_t sent_ = 0;
};

void check_at_rest(End& end, const Scenario& scenario) {
  auto& firmware = end.adapter.firmware();
  const Totals totals = end.adapter.totals();
  const Host::Counters counters = end.adapter.driver().counters();
  EXPECT_TRUE(end.adapter.hardware().quiet());
  EXPECT_EQ(end.outstanding(), 0u) << "packets whose cookie never came back";
  EXPECT_EQ(counters.sent, scenario.frames);
  EXPECT_EQ(counters.reclaimed, scenario.frames);
  EXPECT_EQ(counters.bad_returns, 0u) << "a buffer was used twice";
  EXPECT_EQ(counters.buffers_returned_bad, 0u);
  EXPECT_EQ(totals.packets_sent, scenario.frames);
  EXPECT_EQ(totals.packets_received, counters.received);
  EXPECT_EQ(end.adapter.mac().counters().received, totals.packets_received + totals.no_buffer_drops);
  EXPECT_EQ(totals.bad_indices + totals.bad_send_packets + totals.bad_receive_descriptors + totals.bad_frames, 0u);
  // Every buffer is with the adapter again.
  EXPECT_EQ(available(firmware, 0), kReceiveRing) << "a buffer was lost";
  EXPECT_EQ(available(firmware, 1), scenario.adapter.mini_buffer != 0 ? kMiniRing : 0) << "a mini buffer was lost";
  EXPECT_EQ(firmware.send.consumer, firmware.driver_send_producer.load());
  EXPECT_EQ(firmware.send.cursor, firmware.send.consumer);
  end.check_received();
}

void simulate(std::uint64_t seed) {
  const Scenario scenario = Scenario::of(seed);
  MockClock clock;
  auto [left_mac, right_mac] = make_wire({.depth = 64, .faults = scenario.faults, .clock = &clock});
  End left(std::move(left_mac), clock, scenario, 2 * seed), right(std::move(right_mac), clock, scenario, 2 * seed + 1);
  End* const ends[2] = {&left, &right};
  Random random(~seed);
  for (int step = 0; step < 200'000 && !(left.all_sent() && right.all_sent()); ++step) {
    End& end = *ends[random.below(2)];
    if (random.chance(0.4))
      end.act();
    else
      end.adapter.turn(static_cast<unsigned>(random.below(end.adapter.processors())));
    clock.advance_ns(random.below(200));
    if (testing::Test::HasFailure()) return;
  }
  // Time passes, nothing new is sent: everything comes to rest.
  for (int step = 0; step < 2000; ++step) {
    for (End* const end : ends) {
      end->settle();
      for (unsigned i = 0; i < end->adapter.processors(); ++i) end->adapter.turn(i);
    }
    clock.advance_ns(500);
  }
  check_at_rest(left, scenario);
  check_at_rest(right, scenario);
  if (!scenario.faults.any() && scenario.adapter.hold_when_empty) {
    EXPECT_EQ(left.intact(), scenario.frames);
    EXPECT_EQ(right.intact(), scenario.frames);
  }
}

TEST(Simulation, ThousandsOfSeeds) {
  std::uint64_t first = 1, count = 3000;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  count = 100;  // each takes many times as long
#endif
  if (const char* seed = std::getenv("VIADUCT_TEST_SEED")) first = std::strtoull(seed, nullptr, 10), count = 1;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "VIADUCT_TEST_SEED=" << seed);
    simulate(seed);
    if (HasFailure()) return;
  }
}

TEST(Simulation, OneSeedIsOneRun) {
  const auto trace_of = [](std::uint64_t seed) {
    const Scenario scenario = Scenario::of(seed);
    MockClock clock;
    auto [a, b] = make_wire({.faults = scenario.faults, .clock = &clock});
    End left(std::move(a), clock, scenario, 1), right(std::move(b), clock, scenario, 2);
    Random random(seed);
    std::vector<std::uint64_t> trace;
    for (int step = 0; step < 3000; ++step) {
      End& end = random.chance(0.5) ? left : right;
      end.act();
      trace.push_back(end.adapter.turn(static_cast<unsigned>(random.below(end.adapter.processors()))));
      clock.advance_ns(random.below(200));
    }
    return trace;
  };
  EXPECT_EQ(trace_of(7), trace_of(7));
  EXPECT_NE(trace_of(7), trace_of(8));
}

}  // namespace
}  // namespace viaduct::nic
