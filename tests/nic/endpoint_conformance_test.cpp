// What every endpoint must do, whatever it stands on. One joins by a row in kEndpoints: how to make two that are
// joined, or why that cannot be done here.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <viaduct/nic_endpoint.hpp>
#include <viaduct/nic_macs.hpp>
#include <viaduct/nic_serve.hpp>

#include <set>
#include <thread>

#include "base/own_network.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

constexpr std::uint32_t kLimit = 64;  // of packets out at once
constexpr std::uint16_t kIdAt = 40;   // in a frame: which endpoint it is for

struct Ends {
  std::vector<std::unique_ptr<Server>> servers{};
  std::vector<std::unique_ptr<Adapter>> adapters{};  // below the endpoints
  std::unique_ptr<Endpoint> here{}, there{};
  MacAddress to_here{}, to_there{};  // what the other side addresses frames to
  std::string missing{};             // why there are none: the test is skipped with these words
};

struct EndpointUnderTest {
  const char* name;
  Ends (*make)();
};
void PrintTo(const EndpointUnderTest& endpoint, std::ostream* out) {
  *out << endpoint.name;
}

Ends exclusive(std::unique_ptr<Mac> here, std::unique_ptr<Mac> there, Failure why) {
  Ends ends;
  if (here == nullptr || there == nullptr) {
    ends.missing = why.message;
    return ends;
  }
  ends.to_here = here->address();
  ends.to_there = there->address();
  ends.here = make_exclusive_endpoint(std::move(here), {.hold_limit = kLimit}, why);
  ends.there = make_exclusive_endpoint(std::move(there), {.hold_limit = kLimit}, why);
  return ends;
}

Ends exclusive_wire() {
  auto [a, b] = make_wire();
  return exclusive(std::move(a), std::move(b), {});
}

Ends exclusive_packet() {
  OwnNetwork network;
  if (!network.add_veth("left0", "right0")) return {.missing = network.missing()};
  Failure why;
  auto here = make_packet_mac({.interface = "left0"}, why);
  auto there = make_packet_mac({.interface = "right0"}, why);
  return exclusive(std::move(here), std::move(there), why);
}

Ends exclusive_udp_switch() {
  Failure why;
  auto here = make_udp_switch({.local = "127.0.0.1:0"}, why);
  auto there = make_udp_switch({.local = "127.0.0.1:0"}, why);
  if (here == nullptr || there == nullptr) return {.missing = why.message};
  const auto known = [](UdpSwitch& mac, const UdpSwitch& peer) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(peer.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return mac.keep_peer(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  };
  const MacAddress to_there = known(*here, *there), to_here = known(*there, *here);
  Ends ends = exclusive(std::move(here), std::move(there), why);
  ends.to_there = to_there, ends.to_here = to_here;
  return ends;
}

// Both ends are one of many of an adapter.
Ends of_adapters(const Config& config, std::unique_ptr<Mac> here, std::unique_ptr<Mac> there, Failure why) {
  Ends ends;
  if (here == nullptr || there == nullptr) {
    ends.missing = why.message;
    return ends;
  }
  ends.to_here = here->address();
  ends.to_there = there->address();
  for (auto* mac : {&here, &there}) {
    ends.adapters.push_back(Adapter::create(config, std::move(*mac), why));
    if (ends.adapters.back() == nullptr) {
      ADD_FAILURE() << why.message;
      return ends;
    }
  }
  ends.here = ends.adapters[0]->open_endpoint({.id = 700, .hold_limit = kLimit}, why);
  ends.there = ends.adapters[1]->open_endpoint({.id = 701, .hold_limit = kLimit}, why);
  return ends;
}

Config with_endpoints(Partition partition, Delivery delivery = Delivery::together) {
  Config config;
  config.partition = partition;
  config.endpoint_at = EndpointPlace{.ether_type = 0x88b5, .offset = kIdAt};
  config.delivery = delivery;
  config.queues = delivery == Delivery::together ? 1 : 2;
  config.spin_us = 0;
  if (partition == Partition::dynamic) config.processors = 2;
  return config;
}

Ends on_wire(const Config& config) {
  auto [a, b] = make_wire();
  return of_adapters(config, std::move(a), std::move(b), {});
}
Ends adapter_inlined() {
  return on_wire(with_endpoints(Partition::inlined));
}
Ends adapter_release() {
  return on_wire(with_endpoints(Partition::release));
}
Ends adapter_parallel() {
  return on_wire(with_endpoints(Partition::parallel));
}
Ends adapter_dynamic() {
  return on_wire(with_endpoints(Partition::dynamic));
}
Ends adapter_multiqueue() {
  return on_wire(with_endpoints(Partition::release, Delivery::multiqueue));
}
Ends on_packet(const Config& config) {
  OwnNetwork network;
  if (!network.add_veth("left0", "right0")) return {.missing = network.missing()};
  Failure why;
  auto here = make_packet_mac({.interface = "left0"}, why);
  auto there = make_packet_mac({.interface = "right0"}, why);
  return of_adapters(config, std::move(here), std::move(there), why);
}
// Both ends are asked of servers. That these run in this process makes no difference to what is shared.
Ends served(const Config& config) {
  auto [a, b] = make_wire();
  Ends ends;
  ends.to_here = a->address();
  ends.to_there = b->address();
  Failure why;
  const std::string names[] = {"conformance-here-" + std::to_string(::getpid()),
                               "conformance-there-" + std::to_string(::getpid())};
  ends.servers.push_back(Server::create(names[0], config, std::move(a), why));
  ends.servers.push_back(Server::create(names[1], config, std::move(b), why));
  if (ends.servers[0] == nullptr || ends.servers[1] == nullptr) {
    ADD_FAILURE() << why.message;
    return ends;
  }
  const auto end = [&](const std::string& name, std::uint16_t id) {
    return open_served_endpoint(name, {.endpoint = {.id = id, .hold_limit = kLimit}, .bind = Binding::no}, why);
  };
  ends.here = end(names[0], 700);
  ends.there = end(names[1], 701);
  return ends;
}
Ends served_release() {
  return served(with_endpoints(Partition::release));
}
Ends served_multiqueue() {
  return served(with_endpoints(Partition::parallel, Delivery::multiqueue));
}
Ends adapter_inlined_packet() {
  return on_packet(with_endpoints(Partition::inlined));
}
Ends adapter_multiqueue_packet() {
  return on_packet(with_endpoints(Partition::release, Delivery::multiqueue));
}

constexpr EndpointUnderTest kEndpoints[] = {
    {"exclusive_wire", exclusive_wire},
    {"exclusive_packet", exclusive_packet},
    {"exclusive_udp_switch", exclusive_udp_switch},
    {"adapter_inlined", adapter_inlined},
    {"adapter_release", adapter_release},
    {"adapter_parallel", adapter_parallel},
    {"adapter_dynamic", adapter_dynamic},
    {"adapter_multiqueue", adapter_multiqueue},
    {"adapter_inlined_packet", adapter_inlined_packet},
    {"adapter_multiqueue_packet", adapter_multiqueue_packet},
    {"served_release", served_release},
    {"served_multiqueue", served_multiqueue},
};

class EndpointConformance : public testing::TestWithParam<EndpointUnderTest> {
 protected:
  void SetUp() override {
    ends_ = GetParam().make();
    if (!ends_.missing.empty()) GTEST_SKIP() << GetParam().name << ": " << ends_.missing;
    ASSERT_NE(ends_.here, nullptr);
    ASSERT_NE(ends_.there, nullptr);
  }

  Bytes frame(const Endpoint& to, std::uint32_t number, std::size_t length) const {
    Bytes made = numbered_frame(number, length);
    const MacAddress& address = &to == ends_.there.get() ? ends_.to_there : ends_.to_here;
    std::memcpy(made.data(), address.data(), address.size());
    const std::uint16_t id = to.id();
    std::memcpy(made.data() + kIdAt, &id, sizeof id);
    return made;
  }
  bool offer(Endpoint& from, std::uint32_t number, std::size_t length = 100) const {
    const Endpoint& to = &from == ends_.here.get() ? *ends_.there : *ends_.here;
    const Bytes bytes = frame(to, number, length);
    const Frame offered{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
    return from.send({&offered, 1}) == 1;
  }
  static std::uint64_t in_5_s() { return Clock::steady().now_ns() + 5'000'000'000; }
  // Waits for the next packet of ours and leaves it out. Nothing: none came in time.
  static std::optional<Packet> hold(Endpoint& endpoint) {
    for (const std::uint64_t end = in_5_s(); Clock::steady().now_ns() < end;) {
      Packet packet;
      if (endpoint.receive({&packet, 1}) == 0) continue;
      if (ours(packet)) return packet;
      endpoint.give_back({&packet, 1});
    }
    return std::nullopt;
  }
  static std::optional<std::uint32_t> take(Endpoint& endpoint) {
    const auto packet = hold(endpoint);
    if (!packet) return std::nullopt;
    const std::uint32_t number = number_in(*packet);
    endpoint.give_back({&*packet, 1});
    return number;
  }
  static bool ours(const Packet& packet) {
    return packet.length >= 60 && packet.data[12] == std::byte{0x88} && packet.data[13] == std::byte{0xb5};
  }
  static std::uint32_t number_in(const Packet& packet) { return number_of({packet.data, packet.length}); }
  // As numbered_frame() made it; addresses may have been written over on the way.
  void expect_whole(const Packet& packet, std::uint32_t number, const Endpoint& receiver) const {
    const Bytes whole = frame(receiver, number, packet.length);
    EXPECT_EQ(0, std::memcmp(packet.data + 12, whole.data() + 12, packet.length - 12)) << number;
  }
  static bool readable(int descriptor, int milliseconds) {
    pollfd entry{descriptor, POLLIN, 0};
    return ::poll(&entry, 1, milliseconds) == 1;
  }
  // Sleeps until there is a packet.
  static std::optional<std::uint32_t> sleep_and_take(Endpoint& endpoint) {
    for (const std::uint64_t end = in_5_s(); Clock::steady().now_ns() < end;) {
      Packet packet;
      if (endpoint.receive({&packet, 1}) == 1) {
        const auto number = ours(packet) ? std::optional(number_in(packet)) : std::nullopt;
        endpoint.give_back({&packet, 1});
        if (number) return number;
      } else if (endpoint.arm()) {
        (void)readable(endpoint.descriptor(), 5000);
        endpoint.disarm();
      }
    }
    return std::nullopt;
  }
  static void drain(Endpoint& endpoint) {
    Packet packets[16];
    while (const std::size_t count = endpoint.receive(packets)) endpoint.give_back({packets, count});
  }

  Ends ends_;
};

TEST_P(EndpointConformance, SaysWhatItIs) {
  EXPECT_GE(ends_.here->max_frame(), kStandardFrame);
  EXPECT_NE(ends_.here->address(), ends_.there->address());
  EXPECT_EQ(ends_.here->mac().capabilities().max_frame, ends_.here->max_frame());
  EXPECT_GE(ends_.here->descriptor(), 0);
}

TEST_P(EndpointConformance, CarriesFramesOfEveryLengthBothWays) {
  std::uint32_t number = 0;
  for (const std::size_t length : {std::size_t{60}, std::size_t{127}, std::size_t{1513}, std::size_t{1514}}) {
    ASSERT_TRUE(offer(*ends_.here, ++number, length));
    auto came = hold(*ends_.there);
    ASSERT_TRUE(came);
    EXPECT_EQ(came->length, length);
    expect_whole(*came, number, *ends_.there);
    ends_.there->give_back({&*came, 1});
    ASSERT_TRUE(offer(*ends_.there, ++number, length));
    EXPECT_EQ(take(*ends_.here), number);
  }
}

TEST_P(EndpointConformance, TakesABatchAndKeepsItsOrder) {
  std::vector<Bytes> bytes;
  std::vector<Frame> frames;
  for (std::uint32_t i = 0; i < 40; ++i) bytes.push_back(frame(*ends_.there, i, 200));
  for (const Bytes& one : bytes) frames.push_back({one.data(), static_cast<std::uint32_t>(one.size())});
  std::size_t sent = 0;
  for (const std::uint64_t end = in_5_s(); sent < frames.size() && Clock::steady().now_ns() < end;)
    sent += ends_.here->send(std::span(frames).subspan(sent));
  ASSERT_EQ(sent, frames.size());
  for (std::uint32_t i = 0; i < 40; ++i) ASSERT_EQ(take(*ends_.there), i);
  EXPECT_EQ(ends_.here->counters().sent, 40U);
  EXPECT_GE(ends_.there->counters().received, 40U);
}

TEST_P(EndpointConformance, TakesPacketsBackInAnyOrderAndLeavesTheOthersAlone) {
  std::vector<Packet> held;
  for (std::uint32_t i = 0; i < 16; ++i) {
    ASSERT_TRUE(offer(*ends_.here, i, 300));
    const auto packet = hold(*ends_.there);
    ASSERT_TRUE(packet);
    held.push_back(*packet);
  }
  EXPECT_EQ(ends_.there->counters().held, 16U);
  for (std::uint32_t i = 1; i < 16; i += 2) ends_.there->give_back({&held[i], 1});
  for (std::uint32_t i = 100; i < 116; ++i) {  // the others stay
    ASSERT_TRUE(offer(*ends_.here, i, 300));
    ASSERT_EQ(take(*ends_.there), i);
  }
  for (std::uint32_t i = 0; i < 16; i += 2) expect_whole(held[i], i, *ends_.there);
  for (std::uint32_t i = 14; i != 0; i -= 2) ends_.there->give_back({&held[i], 1});
  ends_.there->give_back({held.data(), 1});
  EXPECT_EQ(ends_.there->counters().held, 0U);
  ASSERT_TRUE(offer(*ends_.here, 200));
  EXPECT_EQ(take(*ends_.there), 200U);
}

TEST_P(EndpointConformance, TakesAPacketBackOnce) {
  for (std::uint32_t i = 0; i < 3 * kLimit; ++i) {
    ASSERT_TRUE(offer(*ends_.here, i));
    const auto packet = hold(*ends_.there);
    ASSERT_TRUE(packet);
    ASSERT_EQ(number_in(*packet), i);
    const Packet twice[] = {*packet, *packet};
    ends_.there->give_back(twice);
    ends_.there->give_back({&twice[0], 1});
    Packet impossible;
    impossible.buffer = UINT32_MAX / 2;
    ends_.there->give_back({&impossible, 1});
  }
  EXPECT_EQ(ends_.there->counters().held, 0U);
}

TEST_P(EndpointConformance, HandsOutNoMoreThanItsLimitAndGoesOnAfterwards) {
  std::vector<Packet> held;
  for (std::uint32_t i = 0; i < 4 * kLimit; ++i) {
    (void)offer(*ends_.here, i);
    Packet packet;
    if (ends_.there->receive({&packet, 1}) == 1) held.push_back(packet);
  }
  EXPECT_LE(held.size(), kLimit);
  const std::size_t seen = std::min<std::size_t>(held.size(), 8);
  for (std::size_t i = 0; i < seen; ++i) expect_whole(held[i], number_in(held[i]), *ends_.there);
  ends_.there->give_back(held);
  std::optional<std::uint32_t> got;
  for (const std::uint64_t end = in_5_s(); got != 1'000'000U && Clock::steady().now_ns() < end;) {
    (void)offer(*ends_.here, 1'000'000);
    got = take(*ends_.there);
  }
  EXPECT_EQ(got, 1'000'000U);
}

TEST_P(EndpointConformance, DoesNotSleepOnWhatIsThere) {
  ASSERT_TRUE(offer(*ends_.here, 1));
  ASSERT_TRUE(offer(*ends_.here, 2));
  EXPECT_EQ(take(*ends_.there), 1U);
  bool slept = false;  // the second may still be on its way
  for (const std::uint64_t end = in_5_s(); ends_.there->arm() && Clock::steady().now_ns() < end;) {
    ends_.there->disarm();
    slept = true;
  }
  EXPECT_FALSE(ends_.there->arm()) << slept;
  EXPECT_EQ(take(*ends_.there), 2U);
}

TEST_P(EndpointConformance, WakesASleeper) {
  std::thread echo([&] {
    for (std::uint32_t i = 0; i < 200; ++i) {
      if (sleep_and_take(*ends_.there) != i) return;
      while (!offer(*ends_.there, i)) std::this_thread::yield();
    }
  });
  for (std::uint32_t i = 0; i < 200; ++i) {
    while (!offer(*ends_.here, i)) std::this_thread::yield();
    const auto back = sleep_and_take(*ends_.here);
    EXPECT_EQ(back, i);
    if (back != i) break;
  }
  echo.join();
}

TEST_P(EndpointConformance, WakesASleeperWhenItsDeadlinePasses) {
  drain(*ends_.here);
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t due = Clock::steady().now_ns() + 2'000'000;
    ends_.here->set_next_due(due);
    for (const std::uint64_t end = in_5_s(); ends_.here->arm() && Clock::steady().now_ns() < end;) {
      ASSERT_TRUE(readable(ends_.here->descriptor(), 5000));
      ends_.here->disarm();
      drain(*ends_.here);
    }
    EXPECT_GE(Clock::steady().now_ns(), due);
  }
  ends_.here->set_next_due(UINT64_MAX);
  ASSERT_TRUE(ends_.here->arm());
  if (ends_.here->mac().fd() >= 0) {
    EXPECT_FALSE(readable(ends_.here->descriptor(), 0)) << "a deadline that was taken back";
  }
  ends_.here->disarm();
}

TEST_P(EndpointConformance, CanBeWokenByAnybody) {
  std::atomic<int> published{0};
  for (int round = 1; round <= 100; ++round) {
    std::thread waker([&] {
      published.store(round, std::memory_order_release);
      ends_.here->wake();
    });
    while (published.load(std::memory_order_acquire) != round) {
      if (!ends_.here->arm()) {
        drain(*ends_.here);
        continue;
      }
      if (published.load(std::memory_order_acquire) != round) {
        ASSERT_TRUE(readable(ends_.here->descriptor(), 5000));
      }
      ends_.here->disarm();
    }
    waker.join();
  }
}

TEST_P(EndpointConformance, CanBeWatchedByEpoll) {
  drain(*ends_.there);
  const Fd set(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event entry{.events = EPOLLIN, .data = {.u32 = 7}};
  ASSERT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, ends_.there->descriptor(), &entry), 0);
  std::optional<std::uint32_t> got;
  ASSERT_TRUE(ends_.there->arm());
  ASSERT_TRUE(offer(*ends_.here, 5));
  epoll_event came{};
  ASSERT_EQ(::epoll_wait(set.get(), &came, 1, 5000), 1);
  EXPECT_EQ(came.data.u32, 7U);
  ends_.there->disarm();
  EXPECT_EQ(take(*ends_.there), 5U);
}

TEST_P(EndpointConformance, HasTwoSidesThatRunAtTheSameTime) {
  constexpr std::uint32_t kFrames = 2000;
  const auto sender = [this](Endpoint& from) {
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      while (!offer(from, i, 60 + i % 1000)) std::this_thread::yield();
      if (i % 16 == 0) std::this_thread::yield();
    }
    for (int i = 0; i < 200; ++i) {  // the last may be lost where nothing holds the sender back
      (void)offer(from, kFrames);
      std::this_thread::yield();
    }
  };
  const auto receiver = [](Endpoint& endpoint, std::vector<std::uint32_t>& numbers) {
    while (const auto number = take(endpoint)) {
      if (*number == kFrames) return;
      numbers.push_back(*number);
    }
  };
  std::vector<std::uint32_t> here, there;
  std::thread threads[] = {std::thread([&] { sender(*ends_.here); }), std::thread([&] { sender(*ends_.there); }),
                           std::thread([&] { receiver(*ends_.here, here); }),
                           std::thread([&] { receiver(*ends_.there, there); })};
  for (std::thread& thread : threads) thread.join();
  for (const auto* numbers : {&here, &there}) {
    EXPECT_FALSE(numbers->empty());
    EXPECT_TRUE(std::is_sorted(numbers->begin(), numbers->end()));
    EXPECT_EQ(std::set(numbers->begin(), numbers->end()).size(), numbers->size());
  }
}

INSTANTIATE_TEST_SUITE_P(, EndpointConformance, testing::ValuesIn(kEndpoints),
                         [](const auto& endpoint) { return std::string(endpoint.param.name); });

}  // namespace
}  // namespace viaduct::nic
