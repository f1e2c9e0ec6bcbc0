// The packet MAC for one process among several on an interface: which frames it hears, and what an interface that
// changes under it does.
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <viaduct/nic_macs.hpp>

#include "base/own_network.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using ::testing::ElementsAre;

constexpr EndpointPlace kPlace{.ether_type = 0x88b5, .offset = 30};

class PacketEndpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    network_.add_veth("left0", "right0");
    if (!network_.missing().empty()) GTEST_SKIP() << network_.missing();
    outside_ = make_packet_mac({.interface = "left0", .express = false}, why_);
    ASSERT_TRUE(outside_) << why_.message;
  }
  std::unique_ptr<Mac> endpoint(std::uint16_t id, bool listens = true, bool promiscuous = false) {
    auto mac = make_packet_mac({.interface = "right0",
                                .endpoint_at = kPlace,
                                .endpoint = id,
                                .listens = listens,
                                .promiscuous = promiscuous,
                                .express = false},
                               why_);
    EXPECT_TRUE(mac) << why_.message;
    return mac;
  }
  Bytes frame(std::uint16_t id, std::uint32_t number, const MacAddress& to) {
    Bytes made = numbered_frame(number, 80);
    std::memcpy(made.data(), to.data(), to.size());
    std::memcpy(made.data() + kPlace.offset, &id, sizeof id);
    return made;
  }
  static void send(Mac& mac, const Bytes& frame) {
    const Frame offered{frame.data(), static_cast<std::uint32_t>(frame.size())};
    ASSERT_EQ(mac.transmit({&offered, 1}), 1U);
  }
  // Numbers up to the one that says that no more were sent: every endpoint in these tests hears that.
  static std::vector<std::uint32_t> heard(Mac& mac, std::uint32_t last) {
    std::vector<std::uint32_t> numbers;
    const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
    while (Clock::steady().now_ns() < end) {
      Frame frame;
      if (mac.receive({&frame, 1}) == 0) continue;
      numbers.push_back(number_of({frame.data, frame.length}));
      mac.release(1);
      if (numbers.back() == last) break;
    }
    return numbers;
  }

  OwnNetwork network_;
  Failure why_;
  std::unique_ptr<Mac> outside_;
};

TEST_F(PacketEndpoint, HearsItsOwnFramesAndThoseForAll) {
  const auto one = endpoint(0x0102), other = endpoint(0x0201), quiet = endpoint(7, false);
  const MacAddress here = one->address();
  send(*outside_, frame(0x0102, 1, here));
  send(*outside_, frame(0x0201, 2, here));
  send(*outside_, frame(7, 3, here));
  send(*outside_, frame(0, 4, here));
  Bytes stranger = frame(7, 5, here);
  stranger[13] = std::byte{0xb6};
  send(*outside_, stranger);
  Bytes cut = frame(7, 6, here);
  cut.resize(kPlace.offset + 1);
  send(*outside_, cut);
  send(*outside_, frame(0x0102, 8, here));
  send(*outside_, frame(0x0201, 8, here));
  send(*outside_, frame(7, 8, here));
  EXPECT_THAT(heard(*one, 8), ElementsAre(1, 4, 8));
  EXPECT_THAT(heard(*other, 8), ElementsAre(2, 4, 8));
  EXPECT_THAT(heard(*quiet, 8), ElementsAre(3, 8));
}

TEST_F(PacketEndpoint, PassesOverFramesForOtherHosts) {
  const auto plain = endpoint(7), promiscuous = endpoint(7, true, true);
  const MacAddress here = plain->address();
  MacAddress elsewhere = here;
  elsewhere[5] ^= 1;
  send(*outside_, frame(7, 1, elsewhere));
  send(*outside_, frame(7, 2, MacAddress{255, 255, 255, 255, 255, 255}));
  send(*outside_, frame(7, 3, here));
  EXPECT_THAT(heard(*plain, 3), ElementsAre(2, 3));
  EXPECT_THAT(heard(*promiscuous, 3), ElementsAre(1, 2, 3));
}

TEST_F(PacketEndpoint, DoesNotHearWhatThisHostSends) {
  const auto one = endpoint(1), other = endpoint(2);
  send(*one, frame(2, 1, other->address()));
  send(*outside_, frame(2, 2, other->address()));
  EXPECT_THAT(heard(*other, 2), ElementsAre(2));
}

TEST_F(PacketEndpoint, KeepsItsFilter) {
  const auto mac = endpoint(7);
  sock_filter all{BPF_RET | BPF_K, 0, 0, UINT32_MAX};
  const sock_fprog program{1, &all};
  EXPECT_EQ(::setsockopt(mac->fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(PacketEndpoint, TellsAnMtuThatChangesAndGoesOn) {
  const auto mac = endpoint(7);
  EXPECT_EQ(mac->capabilities().max_frame, kStandardFrame);
  ASSERT_TRUE(network_.run("ip link set right0 mtu 1000"));
  EXPECT_EQ(mac->capabilities().max_frame, 1000 + kEthernetHeader);
  EXPECT_EQ(mac->max_frame(), kStandardFrame);
  send(*mac, numbered_frame(1, 1400));  // taken, or it would be offered for ever
  EXPECT_EQ(mac->counters().transmit_drops, 1U);
  send(*mac, numbered_frame(2, 900));
  EXPECT_THAT(heard(*outside_, 2), ElementsAre(2));
  ASSERT_TRUE(network_.run("ip link set right0 mtu 1500"));
  EXPECT_EQ(mac->capabilities().max_frame, kStandardFrame);
  send(*mac, numbered_frame(3, 1400));
  EXPECT_THAT(heard(*outside_, 3), ElementsAre(3));
}

TEST_F(PacketEndpoint, HearsAgainAfterItsInterfaceWasDown) {
  const auto mac = endpoint(7);
  ASSERT_TRUE(network_.run("ip link set right0 down"));
  EXPECT_EQ(mac->link(), Link::down);
  send(*mac, numbered_frame(1, 100));
  EXPECT_EQ(mac->counters().transmit_drops, 1U);
  ASSERT_TRUE(network_.run("ip link set right0 up"));
  Frame none;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(mac->receive({&none, 1}), 0U);  // finds what the socket says of it
  EXPECT_EQ(mac->link(), Link::up);
  send(*outside_, frame(7, 2, mac->address()));
  EXPECT_THAT(heard(*mac, 2), ElementsAre(2));
  send(*mac, numbered_frame(3, 100));
  EXPECT_THAT(heard(*outside_, 3), ElementsAre(3));
}

}  // namespace
}  // namespace viaduct::nic
