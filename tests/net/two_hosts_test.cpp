// Engines of two hosts: network namespaces joined by a veth pair. IPv4 and IPv6, large frames, and what goes wrong
// between hosts: interfaces that go down, ways that become narrower, processes that stand still, are killed and
// started again.
#include "base/two_hosts.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/child.hpp"
#include "base/random.hpp"
#include "net/engine_pair.hpp"

namespace viaduct::net {
namespace {

using Kind = FlowEvent::Kind;
using testing::Child;

// A process on the right host that echoes, and has memory.
Child echo_on(const TwoHosts& hosts) {
  return Child([&] {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(0);
    hosts.enter(TwoHosts::right);
    Program server;
    server.echoes = true;
    server.offer("echo");
    (void)run(
        {&server}, [] { return false; }, 200 * kSecond);
    return 0;
  });
}

class BetweenHosts : public ::testing::Test {
 protected:
  void begin(unsigned mtu = 1500, bool six = false) {
    hosts_ = std::make_unique<TwoHosts>(mtu);
    if (six && hosts_->missing().empty()) {
      for (const auto host : {TwoHosts::left, TwoHosts::right}) {
        const std::string interface = TwoHosts::interface(host);
        hosts_->run_in(host, "sysctl -w net.ipv6.conf." + interface + ".disable_ipv6=0");
        hosts_->run_in(host, "ip addr add " + six_of(host) + "/64 dev " + interface + " nodad");
      }
    }
    if (!hosts_->missing().empty()) GTEST_SKIP() << "NOT TESTED: " << hosts_->missing();
    (void)port_of_this_test();  // the children's as well
    hosts_->enter(TwoHosts::left);
    client_ = std::make_unique<Program>();
  }
  void TearDown() override {
    client_ = nullptr;
    if (hosts_ != nullptr) hosts_->leave();
  }
  static std::string six_of(TwoHosts::Host host) { return host == TwoHosts::left ? "fd77::1" : "fd77::2"; }
  static std::string right() { return TwoHosts::address(TwoHosts::right); }

  void join(std::uint64_t user, const std::string& host = right()) {
    client_->connect(user, "echo", 15 * kSecond, host);
    ASSERT_TRUE(
        run({client_.get()}, [&] { return client_->has(user, Kind::accepted) || client_->has(user, Kind::failed); }));
    ASSERT_TRUE(client_->has(user, Kind::accepted)) << client_->find(user, Kind::failed)->text;
  }
  bool echoes(std::uint64_t user, std::size_t size = 4, std::uint64_t within = 20 * kSecond) {
    const std::size_t before = client_->heard[user].size();
    if (client_->say(user, std::string(size, 'e')) != Sent::yes) return false;
    return run(
        {client_.get()}, [&] { return client_->heard[user].size() > before; }, within);
  }
  // Until something else is true.
  template <class Done>
  bool goes_on(std::uint64_t user, Done&& done) {
    while (!done()) {
      if (!echoes(user, 1000)) return false;
    }
    return true;
  }
  std::size_t frame_size(std::uint64_t user) { return client_->engine->path(client_->flows[user]).frame_size; }

  std::unique_ptr<TwoHosts> hosts_;
  std::unique_ptr<Program> client_;
};

TEST_F(BetweenHosts, FramesFollowTheMtu) {
  ASSERT_NO_FATAL_FAILURE(begin(9000));
  if (IsSkipped()) return;
  Child server = echo_on(*hosts_);
  ASSERT_NO_FATAL_FAILURE(join(1));
  ASSERT_TRUE(echoes(1));
  ASSERT_TRUE(run(
      {client_.get()}, [&] { return frame_size(1) == 9000 - 28 - 14; }, kSecond))
      << frame_size(1);
  const Path path = client_->engine->path(client_->flows[1]);
  EXPECT_EQ(path.interface, TwoHosts::interface(TwoHosts::left));
  EXPECT_EQ(path.mtu, 9000U);
  // The other host's interface takes less from now on: what is longer vanishes there.
  ASSERT_TRUE(hosts_->run_in(TwoHosts::right, "ip link set " + TwoHosts::interface(TwoHosts::right) + " mtu 2000"));
  hosts_->enter(TwoHosts::left);
  std::vector<std::byte> out(500'000, std::byte{3}), back(500'000);
  ASSERT_EQ(client_->engine->put(client_->flows[1], out.data(), TaggedMemory::kTag, 0, out.size(), 1), Sent::yes);
  ASSERT_EQ(client_->engine->get(client_->flows[1], back.data(), TaggedMemory::kTag, 0, back.size(), 2), Sent::yes);
  ASSERT_TRUE(run({client_.get()}, [&] { return client_->events[1].size() == 3; }));
  EXPECT_EQ(out, back);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(echoes(1, 4000));
  // And this host's own.
  ASSERT_TRUE(hosts_->run_in(TwoHosts::left, "ip link set " + TwoHosts::interface(TwoHosts::left) + " mtu 1300"));
  hosts_->enter(TwoHosts::left);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(echoes(1, 4000));
  EXPECT_LE(frame_size(1), 1300U - 28 - 14);
}

TEST_F(BetweenHosts, OverIPv6) {
  ASSERT_NO_FATAL_FAILURE(begin(1500, true));
  if (IsSkipped()) return;
  Child server = echo_on(*hosts_);
  const std::string there = six_of(TwoHosts::right);
  ASSERT_NO_FATAL_FAILURE(join(1, "[" + there + "]:" + std::to_string(port_of_this_test())));
  ASSERT_NO_FATAL_FAILURE(join(2, there));
  ASSERT_NO_FATAL_FAILURE(join(3));  // the same process by its other address
  for (const std::uint64_t user : {1, 2, 3}) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(echoes(user, 4000));
  }
  const Path path = client_->engine->path(client_->flows[1]);
  EXPECT_TRUE(path.peer.starts_with("[" + there + "]:")) << path.peer;
  EXPECT_EQ(path.local, six_of(TwoHosts::left));
  EXPECT_EQ(path.frame_size, 1500U - 48 - 14);
  EXPECT_TRUE(client_->engine->path(client_->flows[3]).peer.starts_with(right() + ":"));
  std::vector<std::byte> out(300'000, std::byte{3});
  ASSERT_EQ(client_->engine->put(client_->flows[1], out.data(), TaggedMemory::kTag, 0, out.size(), 1), Sent::yes);
  ASSERT_TRUE(run({client_.get()}, [&] { return client_->has(1, Kind::transferred); }));
}

TEST_F(BetweenHosts, AnInterfaceGoesDownAndComesBack) {
  ASSERT_NO_FATAL_FAILURE(begin());
  if (IsSkipped()) return;
  Child server = echo_on(*hosts_);
  ASSERT_NO_FATAL_FAILURE(join(1));
  for (const auto host : {TwoHosts::left, TwoHosts::right}) {
    const std::string link = "ip link set " + TwoHosts::interface(host);
    ASSERT_TRUE(echoes(1));
    ASSERT_TRUE(hosts_->run_in(host, link + " down"));
    hosts_->enter(TwoHosts::left);
    EXPECT_FALSE(echoes(1, 4, kSecond));
    ASSERT_TRUE(hosts_->run_in(host, link + " up"));
    hosts_->enter(TwoHosts::left);
    const std::size_t said = client_->heard[1].size() + 1;
    ASSERT_TRUE(run({client_.get()}, [&] { return client_->heard[1].size() >= said; })) << "what was said meanwhile";
    EXPECT_TRUE(echoes(1));
  }
  EXPECT_FALSE(client_->has(1, Kind::closed));
}

TEST_F(BetweenHosts, AProcessThatStandsStillGoesOn) {
  ASSERT_NO_FATAL_FAILURE(begin());
  if (IsSkipped()) return;
  // VIADUCT_STAND_STILL_S=20 for the whole time.
  const char* const said = std::getenv("VIADUCT_STAND_STILL_S");
  const std::uint64_t seconds = said != nullptr ? std::strtoull(said, nullptr, 10) : 2;
  Child server = echo_on(*hosts_);
  ASSERT_NO_FATAL_FAILURE(join(1));
  ASSERT_TRUE(echoes(1));
  ASSERT_EQ(::kill(server.pid(), SIGSTOP), 0);
  EXPECT_FALSE(echoes(1, 1000, seconds * kSecond));
  ASSERT_EQ(::kill(server.pid(), SIGCONT), 0);
  ASSERT_TRUE(run({client_.get()}, [&] { return client_->heard[1].size() == 2; }));
  EXPECT_TRUE(echoes(1));
  EXPECT_FALSE(client_->has(1, Kind::closed));
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Killed in any state and started again at once, under the same name: the survivor hears of it and meets the new one.
// VIADUCT_KILL_ROUNDS=2000 for more than a few.
TEST_F(BetweenHosts, TheServerIsKilledAndStartedAgain) {
  ASSERT_NO_FATAL_FAILURE(begin());
  if (IsSkipped()) return;
  const char* const said = std::getenv("VIADUCT_KILL_ROUNDS");
  const std::uint64_t rounds = said != nullptr ? std::strtoull(said, nullptr, 10) : 24;
  Random random(1);
  std::vector<std::byte> out(400'000, std::byte{3}), in(400'000);
  std::size_t descriptors = 0;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    Child server = echo_on(*hosts_);
    const std::uint64_t delay = random.below(4) == 0 ? 0 : random.below(30 * kMillisecond);
    std::thread kills([&, pid = server.pid()] {
      std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
      ::kill(pid, SIGKILL);
    });
    client_->connect(round, "echo", 20 * kSecond, right());
    const auto ended = [&] { return client_->has(round, Kind::failed) || client_->has(round, Kind::closed); };
    bool asked = false;
    const std::uint64_t until = Clock::steady().now_ns() + delay + 20 * kMillisecond;
    while (!ended() && Clock::steady().now_ns() < until) {
      if (client_->has(round, Kind::accepted) && !asked) {
        asked = true;
        const FlowId flow = client_->flows[round];
        (void)client_->engine->put(flow, out.data(), TaggedMemory::kTag, 0, out.size(), 1);
        (void)client_->engine->get(flow, in.data(), TaggedMemory::kTag, 0, in.size(), 2);
      }
      if (asked) (void)client_->say(round, std::string(random.below(4000), 'k'));
      if (!client_->turn()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    kills.join();
    (void)server.wait();
    // Another takes its place; what waited for the first is answered, by a reason or by the second.
    Child second = echo_on(*hosts_);
    const std::uint64_t next = 1'000'000 + round;
    ASSERT_NO_FATAL_FAILURE(join(next)) << round;
    ASSERT_TRUE(echoes(next)) << round;
    client_->engine->close(client_->flows[round], false);
    client_->engine->close(client_->flows[next], false);
    client_->events.clear();
    client_->heard.clear();
    client_->flows.clear();
    second.kill();
    (void)second.wait();
    if (round == 5) descriptors = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), descriptors + 2) << "nothing is left behind";
}

// The client dies in any state: the server lets it go, and others are not disturbed.
TEST_F(BetweenHosts, ClientsAreKilled) {
  ASSERT_NO_FATAL_FAILURE(begin());
  if (IsSkipped()) return;
  const char* const said = std::getenv("VIADUCT_KILL_ROUNDS");
  const std::uint64_t rounds = said != nullptr ? std::strtoull(said, nullptr, 10) : 24;
  EngineOptions options;
  options.silence_ns = kSecond;
  options.keepalive_ns = kSecond / 2;
  client_ = std::make_unique<Program>(options);
  client_->echoes = true;
  client_->offer("echo");
  Random random(2);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    Child client([&] {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      hosts_->enter(TwoHosts::right);
      Program program;
      program.connect(1, "echo", 10 * kSecond, TwoHosts::address(TwoHosts::left));
      (void)run({&program}, [&] { return program.has(1, Kind::accepted); });
      std::vector<std::byte> out(400'000);
      for (;;) {
        (void)program.engine->put(program.flows[1], out.data(), TaggedMemory::kTag, 0, out.size(), 1);
        (void)program.say(1, std::string(3000, 'c'));
        (void)program.turn();
      }
      return 0;
    });
    const std::uint64_t until = Clock::steady().now_ns() + random.below(30 * kMillisecond);
    (void)run({client_.get()}, [&] { return Clock::steady().now_ns() > until; });
    client.kill();
    (void)client.wait();
  }
  // Those that were there are gone within the documented time.
  const auto none_is_left = [&] {
    for (const auto& [user, flow] : client_->flows) {
      if (client_->has(user, Kind::closed)) client_->engine->close(flow);
    }
    return client_->engine->sessions() == 0;
  };
  ASSERT_TRUE(run({client_.get()}, none_is_left, 10 * kSecond)) << client_->engine->sessions();
}

}  // namespace
}  // namespace viaduct::net
