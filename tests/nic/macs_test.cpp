// The operating system's MACs when things go wrong: interfaces that are missing, go down or away, too long frames, no
// permission. What they do when all is well is in mac_conformance_test.cpp.
#include <gmock/gmock.h>
#include <unistd.h>
#include <viaduct/nic_macs.hpp>

#include "base/child.hpp"
#include "base/own_network.hpp"
#include "nic/mac/checksum.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Bytes> take_all(Mac& mac, std::size_t wanted) {
  std::vector<Bytes> taken;
  const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
  while (taken.size() < wanted && Clock::steady().now_ns() < end) {
    Frame frame;
    if (mac.receive({&frame, 1}) == 0) continue;
    taken.emplace_back(frame.data, frame.data + frame.length);
    mac.release(1);
  }
  return taken;
}

std::size_t send(Mac& mac, const Bytes& frame) {
  const Frame offered{frame.data(), static_cast<std::uint32_t>(frame.size())};
  return mac.transmit({&offered, 1});
}

// `mac` idles until it knows what became of its interface.
bool becomes(const Mac& mac, Mac& idling, Link link) {
  const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
  Frame frame;
  while (Clock::steady().now_ns() < end) {
    if (idling.receive({&frame, 1}) != 0) idling.release(1);
    if (mac.link() == link) return true;
  }
  return false;
}

// left0 and right0, connected with each other, where nobody else is.
class OnVeth : public ::testing::Test {
 protected:
  void SetUp() override {
    network_.add_veth("left0", "right0");
    if (!network_.missing().empty()) GTEST_SKIP() << network_.missing();
  }
  OwnNetwork network_;
  Failure why_;
};
class PacketMac : public OnVeth {};
class TapMac : public OnVeth {};
class XdpMac : public OnVeth {};

TEST(Macs, SayWhatIsWrongWithTheirName) {
  Failure why;
  EXPECT_FALSE(make_mac("packt:eth0", 0, why));
  EXPECT_THAT(why.message, AllOf(HasSubstr("'packt:eth0' is no MAC"), HasSubstr("packet:INTERFACE")));
  EXPECT_FALSE(make_mac("udp:127.0.0.1:7000", 0, why));
  EXPECT_FALSE(make_mac("udp::7000,nowhere", 0, why));
  EXPECT_THAT(why.message, HasSubstr("'nowhere' is not HOST:PORT"));
  EXPECT_FALSE(make_mac("udp:,127.0.0.1:7000", 70'000, why));
  EXPECT_THAT(why.message, HasSubstr("60 to 65507"));
}

TEST_F(PacketMac, NamesTheInterfaceThatIsMissing) {
  EXPECT_FALSE(make_packet_mac({.interface = "absent0"}, why_));
  EXPECT_THAT(why_.message, HasSubstr("there is no interface absent0"));
  EXPECT_EQ(why_.code.value(), ENODEV);
}

TEST_F(PacketMac, SaysWhichMtuItsFramesNeed) {
  EXPECT_FALSE(make_packet_mac({.interface = "left0", .max_frame = 9014}, why_));
  EXPECT_THAT(why_.message, AllOf(HasSubstr("MTU of 1500"), HasSubstr("ip link set left0 mtu 9000")));
}

// In a child: who has given up being root does not get it back.
TEST(Macs, NameTheCapabilityThatIsMissing) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to give it up";
  ::testing::internal::CaptureStderr();
  viaduct::testing::Child child([] {
    if (::setresuid(65534, 65534, 65534) != 0) return 2;
    Failure why;
    CHILD_EXPECT(make_packet_mac({.interface = "lo"}, why) == nullptr);
    CHILD_EXPECT(why.message.find("CAP_NET_RAW") != std::string::npos);
    CHILD_EXPECT(make_xdp_mac({.interface = "lo"}, why) == nullptr);
    CHILD_EXPECT(why.message.find("CAP_NET_RAW") != std::string::npos);
    CHILD_EXPECT(make_tap_mac({.interface = "tap9"}, why) == nullptr);
    CHILD_EXPECT(why.message.find("CAP_NET_ADMIN") != std::string::npos ||
                 why.message.find("/dev/net/tun") != std::string::npos);
    return 0;
  });
  const int code = child.wait();
  EXPECT_EQ(code, 0) << ::testing::internal::GetCapturedStderr();
}

TEST_F(PacketMac, CountsWhatItLosesWhileTheLinkIsDownAndGoesOnAfterwards) {
  const auto here = make_packet_mac({.interface = "left0"}, why_),
             there = make_packet_mac({.interface = "right0"}, why_);
  ASSERT_TRUE(here && there) << why_.message;
  ASSERT_TRUE(network_.run("ip link set left0 down"));
  EXPECT_EQ(here->link(), Link::down);
  EXPECT_EQ(send(*here, numbered_frame(1, 60)), 1u) << "taken, or it would be offered for ever";
  EXPECT_EQ(here->counters().transmit_drops, 1u);
  ASSERT_TRUE(network_.run("ip link set left0 up"));
  ASSERT_TRUE(becomes(*here, *here, Link::up));
  ASSERT_EQ(send(*here, numbered_frame(2, 60)), 1u);
  EXPECT_THAT(take_all(*there, 1), ElementsAre(numbered_frame(2, 60)));
  ASSERT_EQ(send(*there, numbered_frame(3, 60)), 1u);
  EXPECT_THAT(take_all(*here, 1), ElementsAre(numbered_frame(3, 60)));
}

TEST_F(PacketMac, SendsWhatAChildThatInheritedItWrites) {
  const auto here = make_packet_mac({.interface = "left0"}, why_),
             there = make_packet_mac({.interface = "right0"}, why_);
  ASSERT_TRUE(here && there) << why_.message;
  ASSERT_EQ(send(*here, numbered_frame(1, 60)), 1u);
  viaduct::testing::Child child([&] { return send(*here, numbered_frame(2, 60)) == 1 ? 0 : 1; });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(take_all(*there, 2), ElementsAre(numbered_frame(1, 60), numbered_frame(2, 60)));
}

TEST_F(PacketMac, SendsAllTheSameWhereTheQueueIsTaken) {
  const auto first = make_packet_mac({.interface = "left0"}, why_),
             second = make_packet_mac({.interface = "left0"}, why_);
  const auto there = make_packet_mac({.interface = "right0"}, why_);
  ASSERT_TRUE(first && second && there) << why_.message;
  ASSERT_EQ(send(*first, numbered_frame(1, 60)), 1u);
  ASSERT_EQ(send(*second, numbered_frame(2, 60)), 1u);
  EXPECT_THAT(take_all(*there, 2), ElementsAre(numbered_frame(1, 60), numbered_frame(2, 60)));
}

TEST_F(PacketMac, SurvivesTheRemovalOfItsInterface) {
  const auto mac = make_packet_mac({.interface = "left0"}, why_);
  ASSERT_TRUE(mac) << why_.message;
  ASSERT_TRUE(network_.run("ip link del left0"));
  EXPECT_TRUE(becomes(*mac, *mac, Link::gone));
  Frame frame;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(mac->receive({&frame, 1}), 0u);
  EXPECT_EQ(mac->fd(), -1) << "a descriptor that is always readable lets nobody sleep";
  EXPECT_EQ(send(*mac, numbered_frame(1, 60)), 1u);
  EXPECT_EQ(mac->counters().transmit_drops, 1u);
}

TEST_F(PacketMac, HearsOnlyTheEtherTypeAskedFor) {
  const auto here = make_packet_mac({.interface = "left0"}, why_);
  const auto there = make_packet_mac({.interface = "right0", .ether_type = 0x88b5}, why_);
  ASSERT_TRUE(here && there) << why_.message;
  Bytes other = numbered_frame(1, 60);
  other[13] = std::byte{0xb6};
  ASSERT_EQ(send(*here, other), 1u);
  ASSERT_EQ(send(*here, numbered_frame(2, 60)), 1u);
  EXPECT_THAT(take_all(*there, 1), ElementsAre(numbered_frame(2, 60)));
}

TEST_F(PacketMac, CountsWhatItsRingHadNoRoomFor) {
  const auto here = make_packet_mac({.interface = "left0"}, why_);
  const auto there = make_packet_mac({.interface = "right0", .ring_frames = 64}, why_);
  ASSERT_TRUE(here && there) << why_.message;
  std::uint64_t sent = 0;
  for (std::uint32_t i = 0; i < 500; ++i) sent += send(*here, numbered_frame(i, 60));
  const std::size_t received = take_all(*there, sent - there->counters().receive_drops).size();
  EXPECT_GT(there->counters().receive_drops, 0u);
  EXPECT_EQ(received + there->counters().receive_drops, sent);
  ASSERT_EQ(send(*here, numbered_frame(1000, 60)), 1u);
  EXPECT_THAT(take_all(*there, 1), ElementsAre(numbered_frame(1000, 60))) << "recovers at once";
}

TEST_F(TapMac, RefusesAnInterfaceOfAnotherKind) {
  EXPECT_FALSE(make_tap_mac({.interface = "left0"}, why_));
  EXPECT_THAT(why_.message, HasSubstr("left0 is there already and is no tap"));
}

TEST_F(TapMac, SurvivesTheRemovalOfItsInterface) {
  const auto mac = make_tap_mac({.interface = "tap7", .mtu = 4000}, why_);
  if (mac == nullptr) GTEST_SKIP() << why_.message;
  EXPECT_EQ(mac->max_frame(), 4014u);
  ASSERT_TRUE(network_.run("ip link del tap7"));
  EXPECT_TRUE(becomes(*mac, *mac, Link::gone));
  EXPECT_EQ(mac->fd(), -1);
  EXPECT_EQ(send(*mac, numbered_frame(1, 60)), 1u);
  EXPECT_EQ(mac->counters().transmit_drops, 1u);
}

TEST(UdpMac, GoesOnWhenNobodyListensYet) {
  const int port = 10'000 + 2 * (::getpid() % 10'000);
  const std::string left = "127.0.0.1:" + std::to_string(port), right = "127.0.0.1:" + std::to_string(port + 1);
  Failure why;
  const auto here = make_udp_mac({.local = left, .remote = right}, why);
  ASSERT_TRUE(here) << why.message;
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(send(*here, numbered_frame(i, 60)), 1u);
  const auto there = make_udp_mac({.local = right, .remote = left}, why);
  ASSERT_TRUE(there) << why.message;
  (void)send(*here, numbered_frame(20, 60));  // may take the blame for one before
  ASSERT_EQ(send(*here, numbered_frame(21, 60)), 1u);
  std::vector<Bytes> got;
  do got = take_all(*there, 1);
  while (!got.empty() && number_of(got[0]) != 21);
  EXPECT_THAT(got, ElementsAre(numbered_frame(21, 60)));
}

TEST_F(XdpMac, SurvivesTheRemovalOfItsInterface) {
  const auto mac = make_xdp_mac({.interface = "left0"}, why_);
  if (mac == nullptr) GTEST_SKIP() << why_.message;
  ASSERT_TRUE(network_.run("ip link del left0"));
  EXPECT_TRUE(becomes(*mac, *mac, Link::gone));
  EXPECT_EQ(send(*mac, numbered_frame(1, 60)), 1u);
  EXPECT_EQ(send(*mac, numbered_frame(2, 60)), 1u);
  EXPECT_GE(mac->counters().transmit_drops, 1u);
}

TEST(Checksum, IsCompletedAsACardWould) {
  // 0x0001 0xf203 0xf4f5 0xf6f7 sum to 0xddf2 (RFC 1071, section 3); the field itself counts as 0.
  const std::uint8_t bytes[] = {9, 9, 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7, 0, 0};
  Bytes frame(sizeof bytes);
  std::memcpy(frame.data(), bytes, sizeof bytes);
  ASSERT_TRUE(complete_checksum(frame, 2, 8));
  EXPECT_EQ(frame[10], std::byte{0x22});
  EXPECT_EQ(frame[11], std::byte{0x0d});
}

TEST(Checksum, StaysInsideTheFrame) {
  Bytes frame(20);
  EXPECT_FALSE(complete_checksum(frame, 21, 0));
  EXPECT_FALSE(complete_checksum(frame, 10, 9));
  EXPECT_FALSE(complete_checksum(frame, 19, 0));
  EXPECT_FALSE(complete_checksum(frame, 0xffff, 0xffff));
  EXPECT_TRUE(complete_checksum(frame, 10, 8));
}

}  // namespace
}  // namespace viaduct::nic
