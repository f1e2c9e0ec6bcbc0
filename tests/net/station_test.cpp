// Stations on a simulated switch: meeting, refusals, restarts, forged frames.
#include <gtest/gtest.h>

#include "base/crc32c.hpp"
#include "net/simulated_switch.hpp"

namespace viaduct::net {
namespace {

TEST(Station, MeetsAndTalksWhateverIsLost) {
  for (const double drop : {0.0, 0.3}) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      Switch network(drop, seed);
      Host& first = network.add(1);
      Host& second = network.add(2);
      second.station.offer("echo");
      second.echoes = true;
      const std::uint64_t number =
          first.station.connect(second.place, "echo", 1472, network.now, network.now + 20 * kSecond);
      ASSERT_TRUE(network.run(network.now + 20 * kSecond, [&] { return !first.connected.empty(); }));
      EXPECT_EQ(first.connected, std::vector{number});
      first.station.use(number)->open({}, {});
      ASSERT_TRUE(network.run(network.now + 20 * kSecond, [&] { return first.accepted.contains(number); }));
      EXPECT_EQ(second.met.size(), 1U);
      for (int i = 0; i < 20; ++i) first.say(number, "message " + std::to_string(i));
      ASSERT_TRUE(network.run(network.now + 20 * kSecond, [&] { return first.heard[number].size() == 20; }));
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(first.heard[number][static_cast<std::size_t>(i)], "message " + std::to_string(i));
      EXPECT_EQ(second.station.sessions(), 1U);
    }
  }
}

TEST(Station, SaysWhyThereIsNoSession) {
  Switch network;
  Host& first = network.add(1);
  Host& second = network.add(2);
  second.station.offer("something");
  const std::uint64_t end = network.now + 2 * kSecond;
  const std::uint64_t to_nobody = first.station.connect(Place{2, 0, 0, 0, 0, 77}, "x", 1472, network.now, end);
  const std::uint64_t other_name = first.station.connect(second.place, "something else", 1472, network.now, end);
  EXPECT_TRUE(network.run(end + kSecond, [&] { return first.failed.size() == 2; }));
  EXPECT_EQ(first.failed[to_nobody], "nobody answered");
  EXPECT_EQ(first.failed[other_name], "nobody there goes by the name 'something else'");
  EXPECT_EQ(second.for_another, 1U);
  EXPECT_GE(network.now, end);
  EXPECT_EQ(first.station.sessions(), 0U);
  EXPECT_EQ(first.station.next_deadline(), UINT64_MAX);
}

TEST(Station, AnswersAnotherVersionWithBothNumbers) {
  Switch network;
  Host& second = network.add(2);
  second.station.offer("echo");
  std::vector<std::byte> hello(kHeaderSize);
  const auto body = GrowingBytes().add(std::uint64_t{4711}).add(std::uint32_t{0}).take();
  hello.insert(hello.end(), body.begin(), body.end());
  FrameHeader header{};
  header.kind = static_cast<std::uint8_t>(FrameKind::hello);
  seal_frame(hello, header);
  hello[4] = std::byte{9};  // the version
  const std::uint32_t checksum = crc32c(std::span(hello).subspan(4));
  std::memcpy(hello.data(), &checksum, sizeof checksum);
  EXPECT_EQ(second.station.receive(Place{2, 0, 0, 0, 0, 1}, hello, network.now), Station::Taken::yes);
  std::array<std::byte, 500> room;
  Place to{};
  const std::size_t size = second.station.next_frame(room, to, network.now);
  const auto refusal = open_frame(std::span(room).first(size));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->header.session, 4711U);
  EXPECT_EQ(static_cast<Refusal>(refusal->chunks[0]), Refusal::other_version);
  const std::string text(reinterpret_cast<const char*>(refusal->chunks.data()) + 1, refusal->chunks.size() - 1);
  EXPECT_EQ(text, "it speaks version 1 of the protocol, and was asked in version 9");
}

TEST(Station, ARestartedPeerIsAnotherAndHurtsNobodyElse) {
  Switch network;
  Host& first = network.add(1);
  Host* second = &network.add(2);
  Host& third = network.add(3);
  second->station.offer("echo");
  third.station.offer("echo");
  second->echoes = third.echoes = true;
  const std::uint64_t to_second = open_flow(network, first, *second, "echo");
  const std::uint64_t to_third = open_flow(network, first, third, "echo");

  // It is gone: nothing comes back, and the other session goes on as if nothing were.
  network.stop(*second);
  first.say(to_second, "lost");
  std::uint64_t began = network.now;
  for (int i = 0; i < 50; ++i) {
    first.say(to_third, std::to_string(i));
    const auto count = static_cast<std::size_t>(i) + 1;
    ASSERT_TRUE(network.run(network.now + kSecond, [&] { return first.heard[to_third].size() == count; }));
  }
  EXPECT_LT(network.now - began, 50 * kMillisecond);
  EXPECT_TRUE(first.over.empty());

  // It comes back: the old session is over at the next probe, and a new one works.
  second = &network.add(2);
  second->station.offer("echo");
  second->echoes = true;
  began = network.now;
  ASSERT_TRUE(network.run(network.now + kSecond, [&] { return !first.over.empty(); }));
  EXPECT_EQ(first.over, (std::map<std::uint64_t, Over>{{to_second, Over::forgotten}}));
  EXPECT_LT(network.now - began, 500 * kMillisecond);
  EXPECT_EQ(second->station.sessions(), 0U);
  const std::uint64_t again = open_flow(network, first, *second, "echo");
  first.say(again, "hello");
  EXPECT_TRUE(network.run(network.now + kSecond, [&] { return first.heard[again].size() == 1; }));
}

TEST(Station, ForgedFramesTouchNothing) {
  Switch network;
  Host& first = network.add(1);
  Host& second = network.add(2);
  second.station.offer("echo");
  second.echoes = true;
  const std::uint64_t number = open_flow(network, first, second, "echo");
  const Place elsewhere{2, 0, 0, 0, 0, 66};
  const auto frame = [](FrameKind kind, std::uint64_t session, std::uint64_t of) {
    std::vector<std::byte> bytes(kHeaderSize + 1, static_cast<std::byte>(ChunkKind::ping));
    FrameHeader header{};
    header.kind = static_cast<std::uint8_t>(kind);
    header.session = session;
    header.number = of;
    seal_frame(bytes, header);
    return bytes;
  };
  // With the right number, from elsewhere; with wrong numbers, from the peer's place.
  EXPECT_EQ(first.station.receive(elsewhere, frame(FrameKind::session, number, 5), network.now),
            Station::Taken::dropped);
  EXPECT_EQ(first.station.counters().dropped_stray, 1U);
  Random random(7);
  for (int i = 0; i < 1000; ++i) {
    for (const FrameKind kind : {FrameKind::session, FrameKind::answer, FrameKind::refusal, FrameKind::unknown}) {
      first.station.receive(second.place, frame(kind, random(), 1 + random.below(100)), network.now);
    }
  }
  network.rest(kMillisecond);
  EXPECT_TRUE(first.over.empty());
  first.say(number, "still here");
  EXPECT_TRUE(network.run(network.now + kSecond, [&] { return first.heard[number].size() == 1; }));
}

TEST(Station, AFloodOfHellosHoldsLittleAndLeavesSessionsAlone) {
  Switch network;
  StationOptions options;
  options.most_half_open = 16;
  options.most_sessions = 40;
  Host& second = network.add(2, options);
  second.station.offer("echo");
  second.echoes = true;
  Host& first = network.add(1);
  const std::uint64_t number = open_flow(network, first, second, "echo");
  for (std::uint64_t i = 1; i <= 5000; ++i) {
    std::vector<std::byte> hello(kHeaderSize);
    const auto body =
        GrowingBytes().add(i).add(i).add(std::uint16_t{1472}).add(std::uint16_t{0}).add(std::uint8_t{4}).take();
    hello.insert(hello.end(), body.begin(), body.end());
    for (const char c : {'e', 'c', 'h', 'o'}) hello.push_back(static_cast<std::byte>(c));
    FrameHeader header{};
    header.kind = static_cast<std::uint8_t>(FrameKind::hello);
    seal_frame(hello, header);
    const Place from{2, 1, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    EXPECT_EQ(second.station.receive(from, hello, network.now), Station::Taken::yes);
    ASSERT_LE(second.station.sessions(), 17U);
  }
  first.say(number, "still here");
  EXPECT_TRUE(network.run(network.now + kSecond, [&] { return first.heard[number].size() == 1; }));
}

TEST(Station, CountsHowLongAPeerIsSilentAndHowLongRoundTripsAre) {
  Switch network;
  Host& first = network.add(1);
  Host& second = network.add(2);
  second.station.offer("echo");
  second.echoes = true;
  const std::uint64_t number = open_flow(network, first, second, "echo");
  for (std::size_t i = 1; i <= 50; ++i) {
    first.say(number, "hello");
    ASSERT_TRUE(network.run(network.now + kSecond, [&] { return first.heard[number].size() == i; }));
  }
  const SessionCounters& counters = first.station.look(number)->counters();
  // 10 us each way on this switch.
  EXPECT_GE(counters.round_trips.percentile(0.5), 20'000U);
  EXPECT_LE(counters.round_trips.percentile(0.99), 40'000U);
  EXPECT_EQ(counters.silent_ns, 0U);
  bool silent = true;
  network.tap = [&](const Place& from, const Place&, std::span<std::byte>) { return !silent || from == first.place; };
  first.say(number, "are you there?");
  network.rest(3 * kSecond);
  silent = false;
  ASSERT_TRUE(network.run(network.now + kSecond, [&] { return first.heard[number].size() == 51; }));
  EXPECT_GT(counters.silent_ns, 2 * kSecond);
  EXPECT_LT(counters.silent_ns, 4 * kSecond);
  EXPECT_EQ(counters.lost_by_number + counters.lost_by_time - counters.needless, 0U) << "silence is no loss";
}

TEST(RoundTrips, AreClassedWithinAQuarter) {
  RoundTripHistogram one;
  EXPECT_EQ(one.percentile(0.5), 0U);
  for (std::uint64_t ns = 1000; ns < 30'000'000'000; ns += ns / 7) {
    RoundTripHistogram each;
    each.add(ns);
    EXPECT_GE(each.percentile(1), std::min<std::uint64_t>(ns, 17'000'000'000));
    if (ns > 1024 && ns < 17'000'000'000) {
      EXPECT_LE(each.percentile(1), ns + ns / 3) << ns;
    }
  }
}

TEST(Station, ManySessionsEndWhenTheyAreForgotten) {
  Switch network;
  Host& hub = network.add(1);
  hub.station.offer("echo");
  hub.echoes = true;
  std::vector<std::pair<Host*, std::uint64_t>> clients;
  for (std::uint8_t i = 0; i < 200; ++i) {
    Host& client = network.add(static_cast<std::uint8_t>(10 + i));
    clients.emplace_back(&client, open_flow(network, client, hub, "echo"));
  }
  EXPECT_EQ(hub.station.sessions(), 200U);
  // Idle for a minute: they ask each other whether they live, and do.
  network.rest(60 * kSecond);
  EXPECT_TRUE(hub.over.empty());
  for (auto& [client, number] : clients) {
    EXPECT_TRUE(client->over.empty());
    client->station.forget(number);
  }
  network.rest(kSecond);
  EXPECT_EQ(hub.over.size(), 200U);
  for (const auto& [number, over] : hub.over) {
    EXPECT_EQ(over, Over::finished_there);
    hub.station.forget(number);
  }
  network.rest(kSecond);
  EXPECT_EQ(hub.station.sessions(), 0U);
  for (auto& [client, number] : clients) EXPECT_EQ(client->station.sessions(), 0U);
  EXPECT_EQ(hub.station.next_deadline(), UINT64_MAX);
}

}  // namespace
}  // namespace viaduct::net
