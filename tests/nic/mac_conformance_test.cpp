// What every MAC must do, whatever it stands on. A MAC joins by a row in kMacs: how to make two that are joined, or why
// that cannot be done here.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <viaduct/nic_macs.hpp>

#include <set>
#include <thread>

#include "base/own_network.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

struct Ends {
  std::unique_ptr<Mac> here, there;
  std::string missing;  // why there are none: the test is skipped with these words
};

struct MacUnderTest {
  const char* name;
  Ends (*make)();
  bool keeps_all = true;  // frames are not lost while the receiver keeps up
};
void PrintTo(const MacUnderTest& mac, std::ostream* out) {
  *out << mac.name;
}

Ends wire() {
  auto [a, b] = make_wire();
  return {std::move(a), std::move(b), {}};
}
Ends wire_of_large_frames() {
  auto [a, b] = make_wire({.max_frame = 9014});
  return {std::move(a), std::move(b), {}};
}
Ends slow_wire() {
  auto [a, b] = make_wire({.faults = {.delay_ns = 20'000, .delay_spread_ns = 10'000}});
  return {std::move(a), std::move(b), {}};
}

// Longer than any burst of these tests: what is lost is lost by a fault.
constexpr std::uint32_t kDeepRing = 4096;

Ends both_or_why(std::unique_ptr<Mac> here, std::unique_ptr<Mac> there, const Failure& why) {
  if (here == nullptr || there == nullptr) return {{}, {}, why.message};
  return {std::move(here), std::move(there), {}};
}

Ends packet_over_veth(unsigned mtu, bool express = true) {
  OwnNetwork network;
  if (!network.add_veth("left0", "right0", mtu)) return {{}, {}, network.missing()};
  Failure why;
  const auto end = [&](const char* interface) {
    return make_packet_mac({.interface = interface, .ring_frames = kDeepRing, .express = express}, why);
  };
  auto here = end("left0");
  return both_or_why(std::move(here), end("right0"), why);
}
Ends packet() {
  return packet_over_veth(1500);
}
Ends packet_by_sendmmsg() {
  return packet_over_veth(1500, false);
}
Ends packet_of_large_frames() {
  return packet_over_veth(9000);
}

Ends xdp_over_veth(unsigned mtu, bool native) {
  OwnNetwork network;
  if (!network.add_veth("left0", "right0", mtu)) return {{}, {}, network.missing()};
  Failure why;
  auto here = make_xdp_mac({.interface = "left0", .native = native, .ring_frames = kDeepRing}, why);
  return both_or_why(std::move(here),
                     make_xdp_mac({.interface = "right0", .native = native, .ring_frames = kDeepRing}, why), why);
}
Ends xdp_native() {
  return xdp_over_veth(1500, true);
}
Ends xdp_generic() {
  return xdp_over_veth(1500, false);
}
Ends xdp_of_large_frames() {
  return xdp_over_veth(9000, true);
}

// Tests run side by side: each process has two ports of its own.
Ends udp_over(const std::string& host) {
  const int port = 10'000 + 2 * (::getpid() % 10'000);
  const std::string left = host + ":" + std::to_string(port), right = host + ":" + std::to_string(port + 1);
  Failure why;
  auto here = make_udp_mac({.local = left, .remote = right}, why);
  return both_or_why(std::move(here), make_udp_mac({.local = right, .remote = left}, why), why);
}
Ends udp() {
  return udp_over("127.0.0.1");
}
Ends udp_over_ip_6() {
  return udp_over("[::1]");
}

// A switch shows its peers by addresses of its own table: this puts the hosts' addresses back into the frames, both
// ways.
class SwitchPort final : public Mac {
 public:
  explicit SwitchPort(std::unique_ptr<UdpSwitch> mac) : switch_(std::move(mac)) {}
  void join(const SwitchPort& peer) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(peer.switch_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    handle_ = switch_->keep_peer(reinterpret_cast<const sockaddr*>(&address), sizeof address);
    peer_ = peer.address();
  }
  std::string name() const override { return switch_->name(); }
  MacAddress address() const override { return switch_->address(); }
  std::uint32_t max_frame() const override { return switch_->max_frame(); }
  MacCounters counters() const override { return switch_->counters(); }
  std::size_t transmit(std::span<const Frame> frames) override {
    std::vector<Bytes> copies;
    std::vector<Frame> addressed;
    for (const Frame& frame : frames) {
      copies.emplace_back(frame.data, frame.data + frame.length);
      if (frame.length >= handle_.size()) std::memcpy(copies.back().data(), handle_.data(), handle_.size());
      addressed.push_back({copies.back().data(), frame.length});
    }
    return switch_->transmit(addressed);
  }
  std::size_t receive(std::span<Frame> frames) override {
    const std::size_t count = switch_->receive(frames);
    for (const Frame& frame : frames.first(count)) {
      auto* bytes = const_cast<std::byte*>(frame.data);
      EXPECT_EQ(std::memcmp(bytes + 6, handle_.data(), 6), 0);
      std::memcpy(bytes + 6, peer_.data(), 6);
    }
    return count;
  }
  void release(std::size_t count) override { switch_->release(count); }
  Capabilities capabilities() const override { return switch_->capabilities(); }
  int fd() const override { return switch_->fd(); }

 private:
  std::unique_ptr<UdpSwitch> switch_;
  MacAddress handle_{}, peer_{};
};

Ends udp_switch() {
  Failure why;
  auto here = make_udp_switch({.local = "127.0.0.1:0"}, why);
  auto there = make_udp_switch({.local = "127.0.0.1:0"}, why);
  if (here == nullptr || there == nullptr) return {{}, {}, why.message};
  auto left = std::make_unique<SwitchPort>(std::move(here));
  auto right = std::make_unique<SwitchPort>(std::move(there));
  left->join(*right);
  right->join(*left);
  return {std::move(left), std::move(right), {}};
}

// The kernel's side of a tap is an interface like any other: a packet MAC sits there.
Ends tap() {
  OwnNetwork network;
  if (!network.missing().empty()) return {{}, {}, network.missing()};
  Failure why;
  auto here = make_tap_mac({.interface = "tap7"}, why);
  if (here == nullptr) return {{}, {}, why.message};
  return both_or_why(std::move(here), make_packet_mac({.interface = "tap7", .ring_frames = kDeepRing}, why), why);
}

constexpr MacUnderTest kMacs[] = {
    {"wire", wire},
    {"wire_of_large_frames", wire_of_large_frames},
    {"slow_wire", slow_wire},
    {"packet", packet},
    {"packet_by_sendmmsg", packet_by_sendmmsg},
    {"packet_of_large_frames", packet_of_large_frames},
    {"xdp_native", xdp_native},
    {"xdp_generic", xdp_generic},
    {"xdp_of_large_frames", xdp_of_large_frames},
    {"udp", udp, false},
    {"udp_over_ip_6", udp_over_ip_6, false},
    {"udp_switch", udp_switch, false},
    {"tap", tap},
};

class MacConformance : public testing::TestWithParam<MacUnderTest> {
 protected:
  void SetUp() override {
    ends_ = GetParam().make();
    if (!ends_.missing.empty()) GTEST_SKIP() << GetParam().name << ": " << ends_.missing;
  }

  static bool offer(Mac& mac, const Bytes& frame) {
    const Frame offered{frame.data(), static_cast<std::uint32_t>(frame.size())};
    return mac.transmit({&offered, 1}) == 1;
  }
  // Waits for one frame; empty when none comes in time. Frames of others are passed over.
  static Bytes take(Mac& mac) {
    const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
    while (Clock::steady().now_ns() < end) {
      Frame frame;
      if (mac.receive({&frame, 1}) == 0) continue;
      const Bytes bytes(frame.data, frame.data + frame.length);
      mac.release(1);
      if (ours(bytes)) return bytes;
    }
    return {};
  }
  static bool ours(std::span<const std::byte> frame) {
    return frame.size() >= kLeastNumbered && frame[12] == std::byte{0x88} && frame[13] == std::byte{0xb5};
  }
  // Frames for `to`, with `from` as their source: what a real interface insists on.
  static Bytes addressed(const Mac& from, const Mac& to, std::uint32_t number, std::size_t length) {
    Bytes frame = numbered_frame(number, length);
    const MacAddress source = from.address(), destination = to.address();
    std::memcpy(frame.data(), destination.data(), 6);
    std::memcpy(frame.data() + 6, source.data(), 6);
    return frame;
  }

  Ends ends_;
};

TEST_P(MacConformance, SaysWhatItIs) {
  EXPECT_FALSE(ends_.here->name().empty());
  EXPECT_GE(ends_.here->max_frame(), kStandardFrame);
  EXPECT_EQ(ends_.here->link(), Link::up);
  EXPECT_NE(ends_.here->address(), ends_.there->address());
}

// As far as it can be found out from outside: how long a frame may be is tried below, and nothing is claimed of a
// privilege that is not needed.
TEST_P(MacConformance, SaysWhatItCanDo) {
  const Capabilities can = ends_.here->capabilities();
  EXPECT_EQ(can.max_frame, ends_.here->max_frame());
  const std::string name = ends_.here->name();
  const bool is_udp = name.starts_with("udp");
  const std::string_view privilege = name.starts_with("packet") ? "CAP_NET_RAW"
                                     : name.starts_with("xdp")  ? "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"
                                     : name.starts_with("tap")  ? "CAP_NET_ADMIN"
                                                                : "";
  EXPECT_EQ(can.privilege, privilege);
  EXPECT_EQ(can.segments > 1, is_udp) << can.segments;
  EXPECT_EQ(can.gathered_arrivals, is_udp);
  EXPECT_EQ(can.checked_arrivals, !name.starts_with("wire") && !name.starts_with("tap"));
  if (!is_udp) {
    EXPECT_TRUE(can.probes_path_mtu);  // a socket's datagrams may be cut, a switch's never are
  }
}

TEST_P(MacConformance, CarriesFramesOfEveryLengthUnchangedBothWays) {
  std::uint32_t number = 0;
  for (std::size_t length : {std::size_t{60}, std::size_t{61}, std::size_t{127}, std::size_t{1024}, std::size_t{1513},
                             std::size_t{ends_.here->max_frame()}}) {
    const Bytes there = addressed(*ends_.here, *ends_.there, ++number, length);
    ASSERT_TRUE(offer(*ends_.here, there));
    EXPECT_EQ(take(*ends_.there), there) << length;
    const Bytes back = addressed(*ends_.there, *ends_.here, ++number, length);
    ASSERT_TRUE(offer(*ends_.there, back));
    EXPECT_EQ(take(*ends_.here), back) << length;
  }
}

TEST_P(MacConformance, KeepsTheOrderOfFrames) {
  for (std::uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(offer(*ends_.here, addressed(*ends_.here, *ends_.there, i, 100)));
  for (std::uint32_t i = 0; i < 100; ++i) {
    const Bytes frame = take(*ends_.there);
    ASSERT_FALSE(frame.empty());
    ASSERT_EQ(number_of(frame), i);
  }
}

TEST_P(MacConformance, ForgetsTheSendersMemoryAtOnce) {
  Bytes frame = addressed(*ends_.here, *ends_.there, 1, 200);
  const Bytes before = frame;
  ASSERT_TRUE(offer(*ends_.here, frame));
  std::fill(frame.begin(), frame.end(), std::byte{0});
  EXPECT_EQ(take(*ends_.there), before);
}

TEST_P(MacConformance, LeavesReceivedBytesAloneUntilTheyAreReleased) {
  constexpr std::uint32_t kHeld = 16;
  for (std::uint32_t i = 0; i < kHeld; ++i)
    ASSERT_TRUE(offer(*ends_.here, addressed(*ends_.here, *ends_.there, i, 300)));
  std::vector<Frame> held;
  const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
  while (held.size() < kHeld && Clock::steady().now_ns() < end) {
    Frame frame;
    if (ends_.there->receive({&frame, 1}) == 0) continue;
    if (ours({frame.data, frame.length}))
      held.push_back(frame);
    else
      ASSERT_TRUE(held.empty()) << "a stranger's frame in between", ends_.there->release(1);
  }
  ASSERT_EQ(held.size(), kHeld);
  for (std::uint32_t i = 0; i < 32; ++i) (void)offer(*ends_.here, addressed(*ends_.here, *ends_.there, 1000 + i, 300));
  for (std::uint32_t i = 0; i < kHeld; ++i)
    EXPECT_TRUE(
        std::ranges::equal(std::span(held[i].data, held[i].length), addressed(*ends_.here, *ends_.there, i, 300)))
        << i;
  ends_.there->release(kHeld);
  const Bytes next = take(*ends_.there);
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(number_of(next), 1000u);
}

TEST_P(MacConformance, SaysWhenItIsFullAndGoesOnAfterwards) {
  // Nobody receives: what is taken is bounded or dropped and counted, and the call returns.
  std::uint64_t taken = 0;
  for (std::uint32_t i = 0; i < 100'000; ++i) taken += offer(*ends_.here, addressed(*ends_.here, *ends_.there, i, 60));
  EXPECT_GT(taken, 0u);
  const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
  Bytes got;
  do {  // drain until the newest arrives
    (void)offer(*ends_.here, addressed(*ends_.here, *ends_.there, 1'000'000, 60));
    got = take(*ends_.there);
  } while (!got.empty() && number_of(got) != 1'000'000 && Clock::steady().now_ns() < end);
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(number_of(got), 1'000'000u);
}

TEST_P(MacConformance, SurvivesFramesThatCannotBe) {
  const Bytes huge(ends_.here->max_frame() + 1, std::byte{1});
  const Frame frames[] = {{huge.data(), static_cast<std::uint32_t>(huge.size())}};
  EXPECT_EQ(ends_.here->transmit(frames), 1u) << "an impossible frame must not block those behind it";
  EXPECT_GE(ends_.here->counters().transmit_drops, 1u);
  const Bytes good = addressed(*ends_.here, *ends_.there, 5, 60);
  ASSERT_TRUE(offer(*ends_.here, good));
  EXPECT_EQ(take(*ends_.there), good);
}

TEST_P(MacConformance, CountsWhatItCarries) {
  const MacCounters before = ends_.here->counters(), other = ends_.there->counters();
  for (std::uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(offer(*ends_.here, addressed(*ends_.here, *ends_.there, i, 80)));
    ASSERT_FALSE(take(*ends_.there).empty());
  }
  EXPECT_EQ(ends_.here->counters().sent - before.sent, 10u);
  EXPECT_GE(ends_.there->counters().received - other.received, 10u);
}

// One thread sends while another receives, both ways at once.
TEST_P(MacConformance, HasTwoHalvesThatRunAtTheSameTime) {
  constexpr std::uint32_t kFrames = 2000;
  const auto sender = [](Mac& from, Mac& to) {
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      const Bytes frame = addressed(from, to, i, 60 + i % 1000);
      while (!offer(from, frame)) std::this_thread::yield();
      if (i % 16 == 0) std::this_thread::yield();
    }
  };
  const auto receiver = [](Mac& mac, std::vector<std::uint32_t>& numbers) {
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      const Bytes frame = take(mac);
      if (frame.empty()) return;
      numbers.push_back(number_of(frame));
      if (number_of(frame) == kFrames - 1) return;
    }
  };
  std::vector<std::uint32_t> here, there;
  std::thread threads[] = {
      std::thread([&] { sender(*ends_.here, *ends_.there); }), std::thread([&] { sender(*ends_.there, *ends_.here); }),
      std::thread([&] { receiver(*ends_.here, here); }), std::thread([&] { receiver(*ends_.there, there); })};
  for (std::thread& thread : threads) thread.join();
  for (const auto* numbers : {&here, &there}) {
    EXPECT_TRUE(std::is_sorted(numbers->begin(), numbers->end()));
    EXPECT_EQ(std::set(numbers->begin(), numbers->end()).size(), numbers->size());
    if (GetParam().keeps_all) {
      EXPECT_EQ(numbers->size(), kFrames);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, MacConformance, testing::ValuesIn(kMacs),
                         [](const auto& mac) { return std::string(mac.param.name); });

}  // namespace
}  // namespace viaduct::nic
