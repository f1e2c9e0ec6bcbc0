// The UDP switch: one socket, many peers, each known by an address of the switch's own table.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <viaduct/nic_macs.hpp>

#include "base/clock.hpp"
#include "nic/mac/udp_peers.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

std::unique_ptr<UdpSwitch> open_switch() {
  Failure why;
  auto opened = make_udp_switch({.local = "127.0.0.1:0"}, why);
  EXPECT_NE(opened, nullptr) << why.message;
  return opened;
}
sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
MacAddress keep(UdpSwitch& mac, const UdpSwitch& peer) {
  const sockaddr_in address = loopback(peer.port());
  return mac.keep_peer(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}
Bytes frame_to(const MacAddress& to, std::uint32_t number, std::size_t length) {
  Bytes frame = numbered_frame(number, length);
  std::memcpy(frame.data(), to.data(), to.size());
  return frame;
}
MacAddress source_of(const Bytes& frame) {
  MacAddress source;
  std::memcpy(source.data(), frame.data() + 6, source.size());
  return source;
}
std::size_t offer(Mac& mac, std::span<const Bytes> frames) {
  std::vector<Frame> offered;
  for (const Bytes& frame : frames) offered.push_back({frame.data(), static_cast<std::uint32_t>(frame.size())});
  return mac.transmit(offered);
}
// Waits for the next frame; empty when none comes in time.
Bytes take(Mac& mac) {
  const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000;
  Frame frame;
  while (mac.receive({&frame, 1}) == 0) {
    if (Clock::steady().now_ns() > end) return {};
  }
  Bytes bytes(frame.data, frame.data + frame.length);
  mac.release(1);
  return bytes;
}

TEST(UdpSwitch, KeepsManyPeersApart) {
  auto hub = open_switch();
  std::vector<std::unique_ptr<UdpSwitch>> leaves;
  std::vector<MacAddress> known;
  for (int i = 0; i < 20; ++i) {
    leaves.push_back(open_switch());
    known.push_back(keep(*hub, *leaves.back()));
  }
  // Frames for all of them in one call, of lengths that would go as groups if they were for one.
  std::vector<Bytes> frames;
  for (std::uint32_t i = 0; i < 100; ++i) frames.push_back(frame_to(known[i / 3 % 20], i, 200));
  std::size_t sent = 0;
  while (sent < frames.size()) sent += offer(*hub, std::span(frames).subspan(sent));
  for (std::uint32_t leaf = 0; leaf < 20; ++leaf) {
    for (std::uint32_t i = 0; i < 100; ++i) {
      if (i / 3 % 20 != leaf) continue;
      const Bytes came = take(*leaves[leaf]);
      ASSERT_EQ(came.size(), 200U);
      EXPECT_EQ(number_of(came), i);
      // It answers whoever sent: the sender's address is in the leaf's own table.
      const std::vector<Bytes> answer{frame_to(source_of(came), 1000 + leaf, 100)};
      ASSERT_EQ(offer(*leaves[leaf], answer), 1U);
      const Bytes back = take(*hub);
      ASSERT_EQ(back.size(), 100U);
      EXPECT_EQ(number_of(back), 1000 + leaf);
      EXPECT_EQ(source_of(back), known[leaf]);
    }
  }
}

TEST(UdpSwitch, BelievesNoAddressThatAFrameClaims) {
  auto here = open_switch(), peer = open_switch(), stranger = open_switch();
  const MacAddress of_peer = keep(*here, *peer);
  Bytes forged = frame_to(keep(*stranger, *here), 7, 100);
  std::memcpy(forged.data() + 6, of_peer.data(), 6);
  const std::vector<Bytes> frames{forged};
  ASSERT_EQ(offer(*stranger, frames), 1U);
  const Bytes came = take(*here);
  EXPECT_EQ(number_of(came), 7U);
  EXPECT_NE(source_of(came), of_peer);
  EXPECT_EQ(here->peer_name(source_of(came)), "127.0.0.1:" + std::to_string(stranger->port()));
}

TEST(UdpSwitch, CountsFramesForNobody) {
  auto here = open_switch(), peer = open_switch();
  const MacAddress of_peer = keep(*here, *peer);
  const MacAddress nobody{2, 9, 9, 9, 9, 9};
  std::vector<Bytes> frames{frame_to(nobody, 1, 100), frame_to(of_peer, 2, 100), frame_to(nobody, 3, 100),
                            frame_to(of_peer, 4, 100)};
  std::size_t taken = 0;
  while (taken < frames.size()) taken += offer(*here, std::span(frames).subspan(taken));
  EXPECT_EQ(number_of(take(*peer)), 2U);
  EXPECT_EQ(number_of(take(*peer)), 4U);
  EXPECT_EQ(here->counters().transmit_drops, 2U);
  EXPECT_EQ(here->counters().sent, 2U);
}

TEST(UdpSwitch, KeepsPeersThatWereKeptAndForgetsStrangers) {
  UdpPeers peers;
  const auto address = [](std::uint32_t host) {
    SocketAddress made = SocketAddress::any(AF_INET);
    reinterpret_cast<sockaddr_in&>(made.storage).sin_addr.s_addr = htonl(host);
    return made;
  };
  const auto known = [&](const MacAddress& mac) {
    SocketAddress found;
    return peers.find(reinterpret_cast<const std::byte*>(mac.data()), found);
  };
  const MacAddress kept = peers.keep(address(1));
  const MacAddress stranger = peers.sender(address(2));
  EXPECT_EQ(peers.sender(address(1)), kept);
  const MacAddress kept_later = peers.sender(address(3));
  EXPECT_EQ(peers.keep(address(3)), kept_later);
  for (std::uint32_t host = 10; host < 10 + 3 * UdpPeers::kMostStrangers; ++host) peers.sender(address(host));
  EXPECT_TRUE(known(kept));
  EXPECT_TRUE(known(kept_later));
  EXPECT_FALSE(known(stranger));
  peers.forget(kept);
  for (std::uint32_t host = 100'000; host < 100'000 + 2 * UdpPeers::kMostStrangers; ++host) peers.sender(address(host));
  EXPECT_FALSE(known(kept));
  EXPECT_TRUE(known(kept_later));
}

}  // namespace
}  // namespace viaduct::nic
