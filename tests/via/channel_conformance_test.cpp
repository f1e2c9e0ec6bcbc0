// Channel conformance: the transports there are; messages, flow control and how channels end.
#include <sys/socket.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "base/fd.hpp"
#include "base/random.hpp"
#include "via/channel_conformance.hpp"
#include "via/net_transport.hpp"

namespace viaduct::via::testing {
namespace {

using viaduct::testing::Child;
using viaduct::testing::rounds;

// ---- the transports there are

ChannelPair shm_pair(const ChannelOptions& options) {
  std::error_code fault;
  ChannelPair pair = make_channel_pair(options, fault);
  EXPECT_FALSE(fault) << fault.message();
  return pair;
}

ChannelPair shm_over_socket(const ChannelOptions& options) {
  auto sockets = make_socket_pair(SOCK_STREAM);
  std::error_code opened, joined;
  ChannelPair pair;
  pair.first = open_channel(sockets->first.release(), options, opened);
  pair.second = join_channel(sockets->second.release(), 1000, joined);
  EXPECT_FALSE(opened || joined);
  return pair;
}

void run_in_threads(const ChannelOptions& options, const Role& near, const Role& far) {
  ChannelPair pair = shm_pair(options);
  std::thread other([&] {
    EXPECT_EQ(far(*pair.second), 0);
    pair.second.reset();
  });
  EXPECT_EQ(near(*pair.first), 0);
  pair.first.reset();
  other.join();
}

void run_in_processes(const ChannelOptions& options, const Role& near, const Role& far) {
  auto sockets = make_socket_pair(SOCK_STREAM);
  Child other([&] {
    sockets->first.reset();
    std::error_code fault;
    const auto channel = join_channel(sockets->second.release(), 10'000, fault);
    CHILD_EXPECT(channel != nullptr);
    return far(*channel);
  });
  sockets->second.reset();
  std::error_code fault;
  {
    const auto channel = open_channel(sockets->first.release(), options, fault);
    ASSERT_NE(channel, nullptr) << fault.message();
    EXPECT_EQ(near(*channel), 0);
  }
  EXPECT_EQ(other.wait(), 0);
}

// ---- over the network

nic::WireOptions perfect_wire() {
  return {.max_frame = 9014};
}

nic::WireOptions faulty_wire() {
  return {.faults = {.seed = 7, .loss = 0.02, .duplication = 0.02, .reordering = 0.05, .corruption = 0.01}};
}

template <nic::WireOptions (*kWire)()>
ChannelPair net_over_wire(const ChannelOptions& options) {
  auto [first, second] = nic::make_wire(kWire());
  return settled_pair(NetSide::on(std::move(first)), NetSide::on(std::move(second)), options);
}

ChannelPair net_over_udp(const ChannelOptions& options) {
  return settled_pair(NetSide::on_udp(port_of_this_test()), NetSide::on_udp(port_of_this_test()), options);
}

int play(Connection connection, const Role& role) {
  EXPECT_NE(connection.channel, nullptr);
  return connection.channel == nullptr ? 1 : role(*connection.channel);
}

template <nic::WireOptions (*kWire)()>
void run_over_wire(const ChannelOptions& options, const Role& near, const Role& far) {
  auto [first, second] = nic::make_wire(kWire());
  NetSide here = NetSide::on(std::move(first)), there = NetSide::on(std::move(second));
  // Whoever is through goes on to drive its engine: the other may still wait for what it has said.
  std::atomic<int> over = 0;
  const auto see_off = [&](NetSide& side) {
    for (++over; over < 2;) (void)side.network->engine().drain(1'000'000);
  };
  std::thread other([&] {
    EXPECT_EQ(play(accept_one(there, options), far), 0);
    see_off(there);
  });
  EXPECT_EQ(play(ask(here, options), near), 0);
  see_off(here);
  other.join();
  settle(here, there);
}

void run_over_udp(const ChannelOptions& options, const Role& near, const Role& far) {
  const std::uint16_t port = port_of_this_test();
  Child other([&] {
    NetSide side = NetSide::on_udp(port);
    Connection connection = accept_one(side, options);
    CHILD_EXPECT(connection.channel != nullptr);
    return far(*connection.channel);
  });
  NetSide side = NetSide::on_udp(port);
  EXPECT_EQ(play(ask(side, options), near), 0);
  (void)side.network->engine().drain(5'000'000'000);
  EXPECT_EQ(other.wait(), 0);
}

const Transport kTransports[] = {
    {"shm_pair", shm_pair, run_in_threads, true},
    {"shm_processes", shm_over_socket, run_in_processes, true},
    {"net_wire", net_over_wire<perfect_wire>, run_over_wire<perfect_wire>},
    {"net_faulty_wire", net_over_wire<faulty_wire>, run_over_wire<faulty_wire>},
    {"net_udp", net_over_udp, run_over_udp},
};

INSTANTIATE_TEST_SUITE_P(, ChannelConformance, ::testing::ValuesIn(kTransports),
                         [](const auto& one) { return std::string(one.param.name); });

// ---- messages

TEST_P(ChannelConformance, AnEmptyChannelHasNothingAndIsOpen) {
  const ChannelPair ends = pair();
  Fragment fragment;
  for (Channel* end : {ends.first.get(), ends.second.get()}) {
    EXPECT_EQ(end->peek(fragment), Got::nothing);
    EXPECT_EQ(end->close_reason(), CloseReason::open);
    EXPECT_GT(end->credits(), 0u);
    EXPECT_GT(end->largest_fragment(), 52u);
  }
  EXPECT_EQ(ends.first->largest_fragment(), ends.second->largest_fragment());
}

TEST_P(ChannelConformance, CarriesImmediateDataInOrderBothWays) {
  const ChannelPair ends = pair();
  const std::uint32_t values[] = {0, 1, 2, 255, 256, 0x7fff'ffff, 0x8000'0000, UINT32_MAX - 1, UINT32_MAX};
  for (const std::uint32_t value : values) {
    EXPECT_EQ(ends.first->try_send({}, value), Sent::taken);
    EXPECT_EQ(ends.second->try_send({}, ~value), Sent::taken);
  }
  Fragment fragment;
  for (const std::uint32_t value : values) {
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    EXPECT_EQ(fragment.immediate, value);
    EXPECT_TRUE(fragment.last);
    EXPECT_TRUE(fragment.bytes.empty());
    ends.second->consume();
    ASSERT_EQ(ends.first->peek(fragment), Got::fragment);
    EXPECT_EQ(fragment.immediate, ~value);
    ends.first->consume();
  }
  EXPECT_EQ(ends.second->peek(fragment), Got::nothing);
}

TEST_P(ChannelConformance, CarriesEverySize) {
  const ChannelPair ends = pair();
  const std::size_t largest = ends.first->largest_fragment();
  std::vector<std::size_t> sizes(200);
  std::iota(sizes.begin(), sizes.end(), std::size_t{0});
  sizes.insert(sizes.end(), {1023, 1024, 1025, 4095, 4096, 4097, largest - 1, largest});
  for (const std::size_t size : sizes) {
    ASSERT_EQ(send_fragment(*ends.first, message(size, size), static_cast<std::uint32_t>(size), true), Sent::taken);
    Fragment fragment;
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    EXPECT_EQ(fragment.immediate, size);
    EXPECT_FALSE(fragment.last);
    ASSERT_EQ(fragment.bytes.size(), size);
    EXPECT_TRUE(matches(fragment.bytes, size)) << size;
    ends.second->consume();
  }
}

TEST_P(ChannelConformance, GathersFromManyPieces) {
  const ChannelPair ends = pair();
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t length = random.below(round % 2 == 0 ? 60 : ends.first->largest_fragment() + 1);
    Bytes bytes = message(length, 3);
    std::vector<iovec> pieces;
    for (std::size_t at = 0; at < length;) {
      if (random.chance(0.2)) pieces.push_back({nullptr, 0});
      if (random.chance(0.1)) pieces.push_back({bytes.data(), 0});
      const std::size_t size = std::min<std::size_t>(length - at, random.below(round % 3 == 0 ? 5 : 3000));
      pieces.push_back({bytes.data() + at, size});
      at += size;
    }
    pieces.push_back({nullptr, 0});
    ASSERT_EQ(ends.first->try_send(pieces, 9), Sent::taken);
    Fragment fragment;
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    ASSERT_EQ(fragment.bytes.size(), length);
    ASSERT_TRUE(matches(fragment.bytes, 3));
    ends.second->consume();
  }
}

TEST_P(ChannelConformance, ATooLongFragmentIsRefusedWithoutHarm) {
  const ChannelPair ends = pair(kSmall);
  Channel& sender = *ends.first;
  Bytes bytes = message(sender.largest_fragment() + 1, 1);
  const iovec endless[] = {{bytes.data(), SIZE_MAX}, {bytes.data(), 2}};  // their sum is 1 modulo 2^64
  for (const bool full : {false, true}) {
    EXPECT_NE(send_fragment(sender, bytes, 5), Sent::taken);
    EXPECT_NE(sender.try_send(endless, 5), Sent::taken);
    EXPECT_EQ(sender.close_reason(), CloseReason::open);
    EXPECT_EQ(sender.credits(bytes.size()), 0u);
    EXPECT_EQ(sender.wait_to_send(bytes.size(), 1000), std::errc::message_size) << "waiting would be in vain";
    EXPECT_NE(send_fragment(sender, bytes, 5), Sent::full) << (full ? "never" : "not even now");
    (void)send_until_full(sender, {});
  }
  EXPECT_GT(consume_all(*ends.second), 0u);
  EXPECT_EQ(send_fragment(sender, std::span(bytes).first(sender.largest_fragment()), 5), Sent::taken);
  Fragment fragment;
  ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
  EXPECT_TRUE(matches(fragment.bytes, 1));
}

TEST_P(ChannelConformance, PeekTakesNothingAwayAndConsumeNeedsNoLook) {
  const ChannelPair ends = pair();
  for (std::uint32_t n = 0; n < 6; ++n)
    ASSERT_EQ(send_fragment(*ends.first, message(n * 40, n), n, n % 2 == 1), Sent::taken);
  for (std::uint32_t n = 0; n < 6; ++n) {
    Fragment first, second;
    ASSERT_EQ(ends.second->peek(first), Got::fragment);
    ASSERT_EQ(ends.second->peek(second), Got::fragment);
    EXPECT_EQ(first.immediate, n);
    EXPECT_EQ(second.immediate, n);
    EXPECT_EQ(first.last, second.last);
    EXPECT_EQ(first.bytes.data(), second.bytes.data());
    EXPECT_EQ(first.bytes.size(), second.bytes.size());
    EXPECT_TRUE(n % 3 != 0 || matches(first.bytes, n));  // the others are dropped unread
    ends.second->consume();
  }
  Fragment fragment;
  EXPECT_EQ(ends.second->peek(fragment), Got::nothing);
  ends.second->consume();  // there is nothing: no harm
  ASSERT_EQ(ends.first->try_send({}, 77), Sent::taken);
  ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
  EXPECT_EQ(fragment.immediate, 77u);
}

TEST_P(ChannelConformance, AFragmentStaysAsItIsUntilItIsConsumed) {
  const ChannelPair ends = pair(kSmall);
  const std::size_t size = ends.first->largest_fragment() - 11;
  ASSERT_EQ(send_fragment(*ends.first, message(size, 1), 1), Sent::taken);
  Fragment fragment;
  ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
  while (send_fragment(*ends.first, message(size, 2), 2) == Sent::taken) {
  }
  EXPECT_TRUE(matches(fragment.bytes, 1)) << "overwritten by what came later";
}

TEST_P(ChannelConformance, HasAFewWordsThatBothCanWrite) {
  if (!shares_memory()) GTEST_SKIP() << "only memory has them";
  run(
      [](Channel& channel) {
        const auto ours = std::span(channel.shared()->words(SharedEnd::Whose::ours), 64);
        for (const std::byte byte : ours) CHILD_EXPECT(byte == std::byte{0});
        ours[0] = std::byte{7};
        CHILD_EXPECT(send_message(channel, message(8, 1), 0));
        CHILD_EXPECT(receive_message(channel).has_value());
        CHILD_EXPECT(ours[63] == std::byte{9});
        CHILD_EXPECT(channel.shared()->words(SharedEnd::Whose::theirs)[1] == std::byte{8});
        return 0;
      },
      [](Channel& channel) {
        CHILD_EXPECT(receive_message(channel).has_value());
        CHILD_EXPECT(channel.shared()->words(SharedEnd::Whose::theirs)[0] == std::byte{7});
        channel.shared()->words(SharedEnd::Whose::theirs)[63] = std::byte{9};
        channel.shared()->words(SharedEnd::Whose::ours)[1] = std::byte{8};
        CHILD_EXPECT(send_message(channel, message(8, 1), 0));
        return 0;
      });
}

// ---- flow control

TEST_P(ChannelConformance, IsFullOnceAndHasRoomAgainAfterConsuming) {
  for (const std::size_t size : {0, 52, 53, 500}) {
    const ChannelPair ends = pair(kSmall);
    const Bytes bytes = message(size, 0);
    const std::size_t promised = ends.first->credits(size);
    const std::size_t sent = send_until_full(*ends.first, bytes);
    EXPECT_GE(sent, promised);
    EXPECT_EQ(ends.first->credits(size), 0u);
    EXPECT_EQ(ends.first->close_reason(), CloseReason::open);
    EXPECT_GE(ends.first->statistics().refused_full, 1u);
    for (int lap = 0; lap < 50; ++lap) {
      EXPECT_EQ(consume_all(*ends.second), sent) << "of " << size << " bytes";
      EXPECT_GT(ends.first->credits(size), 0u);
      ASSERT_EQ(send_until_full(*ends.first, bytes), sent) << "of " << size << " bytes in lap " << lap;
    }
  }
}

// A receiver that takes only some of what is there makes room as well, if not at once.
TEST_P(ChannelConformance, RoomComesBackWhileMessagesAreLeft) {
  const ChannelPair ends = pair(kSmall);
  const std::size_t sent = send_until_full(*ends.first, {});
  Fragment fragment;
  for (std::size_t i = 0; i < sent / 2; ++i) {
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    ends.second->consume();
  }
  EXPECT_GT(ends.first->credits(), 0u);
  EXPECT_EQ(ends.first->try_send({}, 0), Sent::taken);
}

TEST_P(ChannelConformance, CreditsAreTrue) {
  for (const ChannelOptions& options : {kSmall, ChannelOptions{.bulk_bytes = 16384, .slots = 64}}) {
    const ChannelPair ends = pair(options);
    Random random(11);
    for (int round = 0; round < rounds(20'000); ++round) {
      const std::size_t length = random.below(random.chance(0.3) ? 64 : ends.first->largest_fragment() + 1);
      std::size_t promised = ends.first->credits(length);
      if (random.chance(0.5)) promised = random.below(promised + 1);
      for (std::size_t i = 0; i < promised; ++i) {
        const std::size_t size = random.chance(0.5) ? length : random.below(length + 1);
        ASSERT_EQ(send_fragment(*ends.first, message(size, i), 0), Sent::taken)
            << "credit " << i << " of " << promised << " for " << length << " bytes, round " << round;
      }
      Fragment fragment;
      for (std::uint64_t n = random.below(10); n > 0 && ends.second->peek(fragment) == Got::fragment; --n)
        ends.second->consume();
    }
  }
}

// Odd sizes, so that every alignment and every way of meeting the end of the area comes by.
TEST_P(ChannelConformance, MillionsOfBytesGoRoundIntact) {
  const ChannelPair ends = pair(kSmall);
  Random random(13);
  std::uint64_t sent = 0, received = 0;
  std::size_t bytes = 0;
  std::vector<std::size_t> sizes;
  while (bytes < static_cast<std::size_t>(rounds(8'000'000))) {
    const std::size_t size =
        random.below(4) == 0 ? random.below(100) : random.below(ends.first->largest_fragment() + 1);
    if (send_fragment(*ends.first, message(size, sent), static_cast<std::uint32_t>(sent)) == Sent::taken) {
      sizes.push_back(size);
      ++sent;
      if (random.chance(0.6)) continue;
    }
    Fragment fragment;
    for (std::uint64_t n = 1 + random.below(6); n > 0 && ends.second->peek(fragment) == Got::fragment; --n) {
      ASSERT_EQ(fragment.immediate, static_cast<std::uint32_t>(received));
      ASSERT_EQ(fragment.bytes.size(), sizes[received]);
      ASSERT_TRUE(matches(fragment.bytes, received)) << "message " << received;
      bytes += fragment.bytes.size();
      ++received;
      ends.second->consume();
    }
  }
}

TEST_P(ChannelConformance, CountsWhatItDoes) {
  const ChannelPair ends = pair();
  for (const std::size_t size : {0, 10, 52, 53, 4000})
    ASSERT_EQ(send_fragment(*ends.first, message(size, 0), 0), Sent::taken);
  EXPECT_EQ(consume_all(*ends.second), 5u);
  const auto sent = ends.first->statistics(), received = ends.second->statistics();
  EXPECT_EQ(sent.fragments_sent, 5u);
  EXPECT_EQ(sent.bytes_sent, 4115u);
  EXPECT_EQ(sent.fragments_received, 0u);
  EXPECT_EQ(sent.refused_full, 0u);
  EXPECT_EQ(sent.wakes_sent, 0u) << "nobody slept";
  EXPECT_EQ(received.fragments_received, 5u);
  EXPECT_EQ(received.bytes_received, 4115u);
  EXPECT_EQ(received.fragments_sent, 0u);
}

// ---- ending

TEST_P(ChannelConformance, HalfCloseDeliversEverythingAndLeavesTheOtherHalfOpen) {
  const ChannelPair ends = pair();
  for (std::uint32_t n = 0; n < 20; ++n) ASSERT_EQ(send_fragment(*ends.first, message(n * 30, n), n), Sent::taken);
  ends.first->finish_sending();
  ends.first->finish_sending();
  EXPECT_EQ(ends.first->try_send({}, 0), Sent::closed);
  EXPECT_EQ(ends.first->close_reason(), CloseReason::closed_here);
  EXPECT_EQ(ends.first->credits(), 0u);
  EXPECT_FALSE(ends.first->wait_to_send(0, -1)) << "closed is an answer";
  Fragment fragment;
  for (std::uint32_t n = 0; n < 20; ++n) {
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    EXPECT_TRUE(fragment.immediate == n && matches(fragment.bytes, n));
    EXPECT_EQ(ends.second->close_reason(), CloseReason::open);
    ends.second->consume();
  }
  EXPECT_EQ(ends.second->peek(fragment), Got::end);
  EXPECT_EQ(ends.second->peek(fragment), Got::end);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  EXPECT_FALSE(ends.second->wait_to_receive(-1));
  for (std::uint32_t n = 0; n < 1000; ++n) {
    ASSERT_EQ(send_fragment(*ends.second, message(100, n), n), Sent::taken);
    ASSERT_EQ(ends.first->peek(fragment), Got::fragment);
    EXPECT_TRUE(fragment.immediate == n && matches(fragment.bytes, n));
    ends.first->consume();
  }
  ends.second->finish_sending();
  EXPECT_EQ(ends.first->peek(fragment), Got::end);
  EXPECT_EQ(ends.first->close_reason(), CloseReason::peer_finished);
}

TEST_P(ChannelConformance, FinishingAFullChannelIsNoticed) {
  const ChannelPair ends = pair(kSmall);
  const std::size_t sent = send_until_full(*ends.first, {});
  ends.first->finish_sending();
  EXPECT_EQ(consume_all(*ends.second), sent);
  Fragment fragment;
  EXPECT_EQ(ends.second->peek(fragment), Got::end);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
}

TEST_P(ChannelConformance, FinishingWakesAReceiver) {
  for (int round = 0; round < rounds(200); ++round) {
    const ChannelPair ends = pair(kSmall);
    std::thread receiver([&] {
      EXPECT_TRUE(receive_message(*ends.second));
      EXPECT_FALSE(receive_message(*ends.second));
    });
    EXPECT_TRUE(send_message(*ends.first, message(5000, 1), 0));
    ends.first->finish_sending();
    receiver.join();
    EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  }
}

TEST_P(ChannelConformance, ClosingIsFinishing) {
  ChannelPair ends = pair();
  ASSERT_EQ(send_fragment(*ends.first, message(5000, 1), 3), Sent::taken);
  ends.first.reset();
  const auto received = receive_message(*ends.second);
  ASSERT_TRUE(received);
  EXPECT_TRUE(received->immediate == 3 && received->bytes.size() == 5000 && matches(received->bytes, 1));
  EXPECT_FALSE(receive_message(*ends.second));
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  // Sooner or later sending says so too, however it is waited for.
  while (ends.second->try_send({}, 0) == Sent::taken) {
  }
  EXPECT_FALSE(ends.second->wait_to_send(0, -1));
  EXPECT_EQ(ends.second->try_send({}, 0), Sent::closed);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
}

// The sender learns it although its receiving half has never looked, and what was sent can still be received.
TEST_P(ChannelConformance, ASenderLearnsThatThePeerHasClosed) {
  ChannelPair ends = pair(kSmall);
  ASSERT_EQ(ends.first->try_send({}, 8), Sent::taken);
  EXPECT_GT(send_until_full(*ends.second, {}), 0u);
  std::thread waiter([&] { EXPECT_FALSE(ends.second->wait_to_send(0, -1)); });
  ends.first.reset();
  waiter.join();
  EXPECT_EQ(ends.second->try_send({}, 0), Sent::closed);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  const auto received = receive_message(*ends.second);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->immediate, 8u);
  EXPECT_FALSE(receive_message(*ends.second));
}

TEST_P(ChannelConformance, ClosingWakesAReceiver) {
  for (int round = 0; round < rounds(200); ++round) {
    ChannelPair ends = pair(kSmall);
    std::thread receiver([&] { EXPECT_FALSE(receive_message(*ends.second)); });
    if (round % 2 == 0) std::this_thread::yield();
    ends.first.reset();
    receiver.join();
    EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  }
}

}  // namespace
}  // namespace viaduct::via::testing
