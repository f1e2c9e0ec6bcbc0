// How large frames get on ways that carry less than the interfaces say, and that change.
#include <gtest/gtest.h>

#include "net/path_mtu.hpp"
#include "net/simulated_switch.hpp"

namespace viaduct::net {
namespace {

constexpr std::size_t kJumbo = 8958;

struct Way {
  explicit Way(std::size_t carries, const std::string& secret = {}) : largest(carries) {
    StationOptions options;
    options.session.frame_size = kJumbo;
    if (!secret.empty()) options.key = std::make_shared<const Key>(Key::of(std::as_bytes(std::span(secret))));
    first = &network.add(1, options);
    second = &network.add(2, options);
    second->station.offer("echo");
    second->echoes = true;
    network.tap = [this](const Place&, const Place&, std::span<std::byte> frame) { return frame.size() <= largest; };
    number = first->station.connect(second->place, "echo", kJumbo, network.now, network.now + kSecond);
    EXPECT_TRUE(network.run(network.now + kSecond, [&] { return !first->connected.empty(); }));
    first->station.use(number)->open({}, {});
    EXPECT_TRUE(network.run(network.now + kSecond, [&] { return first->accepted.contains(number); }));
  }
  bool echoes(std::size_t size) {
    const std::size_t before = first->heard[number].size();
    first->say(number, std::string(size, 'x'));
    return network.run(network.now + 20 * kSecond, [&] { return first->heard[number].size() == before + 1; });
  }
  std::size_t frame_size() { return first->station.look(number)->frame_size(); }

  std::size_t largest;
  Switch network;
  Host* first;
  Host* second;
  std::uint64_t number = 0;
};

TEST(PathMtu, UsesWhatBothInterfacesCarry) {
  Way way(kJumbo);
  const std::uint64_t began = way.network.now;
  ASSERT_TRUE(way.echoes(4));
  way.network.rest(kMillisecond);
  EXPECT_EQ(way.frame_size(), kJumbo);
  EXPECT_LT(way.network.now - began, 2 * kMillisecond);
}

TEST(PathMtu, FindsWhatTheWayCarries) {
  for (const std::size_t carries : {1458, 2000, 4321, 8000, 8900}) {
    for (const char* secret : {"", "a secret"}) {
      Way way(carries, secret);
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(way.echoes(4));
      way.network.rest(kSecond);
      EXPECT_LE(way.frame_size(), carries);
      EXPECT_GE(way.frame_size() + 40, carries);
      const SessionCounters& counters = way.first->station.look(way.number)->counters();
      EXPECT_EQ(counters.lost_by_number + counters.lost_by_time, 0U) << "nothing that carries anything is lost";
      ASSERT_TRUE(way.echoes(3000));
    }
  }
}

TEST(PathMtu, NoticesThatTheWayHasBecomeNarrower) {
  for (const std::size_t carries : {3500, 1400, 1250, 600, 300}) {
    Way way(kJumbo);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(way.echoes(4000));
    ASSERT_EQ(way.frame_size(), kJumbo);
    way.largest = carries;
    const std::uint64_t began = way.network.now;
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(way.echoes(4000)) << carries << ", " << i;
    EXPECT_LT(way.network.now - began, 3 * kSecond);
    EXPECT_LE(way.frame_size(), carries);
    EXPECT_GE(way.frame_size(), carries < 512 ? 256U : carries - 100) << carries;
    // It becomes wide again, which is tried after a minute.
    way.largest = kJumbo;
    way.network.rest(61 * kSecond);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(way.echoes(4000));
    EXPECT_EQ(way.frame_size(), kJumbo);
  }
}

TEST(PathMtu, AWayThatLosesEverythingForAWhileIsNoNarrowOne) {
  Way way(kJumbo);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(way.echoes(4000));
  way.largest = 0;
  for (int i = 0; i < 8; ++i) way.first->say(way.number, std::string(4000, 'x'));
  way.network.rest(5 * kSecond);
  way.largest = kJumbo;
  ASSERT_TRUE(
      way.network.run(way.network.now + 5 * kSecond, [&] { return way.first->heard[way.number].size() == 11; }));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(way.echoes(4000));
  way.network.rest(kSecond);
  EXPECT_EQ(way.frame_size(), kJumbo);
}

}  // namespace
}  // namespace viaduct::net
