// Several endpoints of one adapter: who gets which frame, who waits for whom, and what a bad user can spoil.
#include <gmock/gmock.h>
#include <poll.h>
#include <viaduct/nic_endpoint.hpp>

#include <random>
#include <thread>

#include "nic/live_adapter.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

constexpr std::uint16_t kIdAt = 40;
constexpr std::uint64_t kPatienceNs = 5'000'000'000;

Bytes frame_for(std::uint16_t id, std::uint32_t number, std::size_t length = 100) {
  Bytes frame = numbered_frame(number, length);
  std::memcpy(frame.data() + kIdAt, &id, sizeof id);
  return frame;
}

std::size_t send(Endpoint& endpoint, const Bytes& bytes) {
  const Frame frame{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
  return endpoint.send({&frame, 1});
}

bool send_in_time(Endpoint& endpoint, const Bytes& bytes) {
  for (const std::uint64_t end = Clock::steady().now_ns() + kPatienceNs; Clock::steady().now_ns() < end;) {
    if (send(endpoint, bytes) == 1) return true;
    std::this_thread::yield();
  }
  return false;
}

std::optional<Packet> receive(Endpoint& endpoint, std::uint64_t patience_ns = kPatienceNs) {
  const std::uint64_t end = Clock::steady().now_ns() + patience_ns;
  do {
    Packet packet;
    if (endpoint.receive({&packet, 1}) == 1) return packet;
    std::this_thread::yield();
  } while (Clock::steady().now_ns() < end);
  return std::nullopt;
}

std::optional<std::uint32_t> take(Endpoint& endpoint, std::uint64_t patience_ns = kPatienceNs) {
  const auto packet = receive(endpoint, patience_ns);
  if (!packet) return std::nullopt;
  const std::uint32_t number = number_of({packet->data, packet->length});
  endpoint.give_back({&*packet, 1});
  return number;
}

// Sends no further ahead of the receiver than a queue has room for.
class Window {
 public:
  void await(std::uint32_t number) const {
    while (number > seen_.load(std::memory_order_relaxed) + 100) std::this_thread::yield();
  }
  void see(std::uint32_t number) { seen_.store(number, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> seen_{0};
};

Config endpoints(Partition partition = Partition::inlined) {
  Config config = inlined();
  config.partition = partition;
  config.endpoint_at = EndpointPlace{0x88b5, kIdAt};
  config.spin_us = 0;
  return config;
}

std::unique_ptr<Endpoint> open(Adapter& adapter, const EndpointOptions& options) {
  Failure why;
  auto endpoint = adapter.open_endpoint(options, why);
  EXPECT_NE(endpoint, nullptr) << why.message;
  return endpoint;
}

TEST(AdapterEndpoints, AreNotForAnAdapterThatDoesNotKnowWhereFramesNameThem) {
  Pair pair(inlined());
  Failure why;
  EXPECT_EQ(pair.left->open_endpoint({.id = 1}, why), nullptr);
  EXPECT_EQ(why.code.value(), EOPNOTSUPP);
  EXPECT_THAT(why.message, testing::HasSubstr("endpoint_at"));
}

TEST(AdapterEndpoints, HaveAnIdOfTheirOwn) {
  Pair pair(endpoints());
  auto five = open(*pair.left, {.id = 5});
  auto first = open(*pair.left, {});
  EXPECT_EQ(five->id(), 5);
  EXPECT_EQ(first->id(), 1);
  Failure why;
  EXPECT_EQ(pair.left->open_endpoint({.id = 5}, why), nullptr);
  EXPECT_EQ(why.code.value(), EADDRINUSE);
  five.reset();
  EXPECT_EQ(open(*pair.left, {.id = 5})->id(), 5);
  EXPECT_EQ(open(*pair.left, {.id = 65535})->id(), 65535);
}

TEST(AdapterEndpoints, RefuseWhatCannotBe) {
  Pair pair(endpoints());
  Failure why;
  for (const EndpointOptions& bad :
       {EndpointOptions{.hold_limit = 0}, EndpointOptions{.hold_limit = 5000}, EndpointOptions{.send_ring = 48},
        EndpointOptions{.send_ring = 0}, EndpointOptions{.queue = 1}, EndpointOptions{.core = 900}}) {
    EXPECT_EQ(pair.left->open_endpoint(bad, why), nullptr);
    EXPECT_EQ(why.code.value(), EINVAL);
  }
}

TEST(AdapterEndpoints, AreAsManyAs256) {
  Pair pair(endpoints());
  std::vector<std::unique_ptr<Endpoint>> all;
  for (int i = 0; i < 256; ++i) all.push_back(open(*pair.right, {.hold_limit = 2, .send_ring = 2}));
  Failure why;
  EXPECT_EQ(pair.right->open_endpoint({}, why), nullptr);
  EXPECT_EQ(why.code.value(), ENOSPC);
  auto sender = open(*pair.left, {});
  for (std::uint16_t id = 1; id <= 256; ++id) {
    ASSERT_EQ(send(*sender, frame_for(id, id)), 1U);
    ASSERT_EQ(take(*all[id - 1U]), id);
  }
}

TEST(AdapterEndpoints, GetTheirFramesAndTheHostTheOthers) {
  Pair pair(endpoints());
  auto sender = open(*pair.left, {});
  auto one = open(*pair.right, {.id = 1000}), two = open(*pair.right, {.id = 1001});
  ASSERT_EQ(send(*sender, frame_for(1001, 1)), 1U);
  ASSERT_EQ(send(*sender, frame_for(1000, 2)), 1U);
  ASSERT_EQ(send(*sender, frame_for(1002, 3)), 1U);  // nobody's
  Bytes other = frame_for(1000, 4);
  other[13] = std::byte{0xdd};  // another EtherType
  ASSERT_EQ(send(*sender, other), 1U);
  EXPECT_EQ(take(*two), 1U);
  EXPECT_EQ(take(*one), 2U);
  pair.turn();
  const auto to_host = receive_all(pair.right->host());
  ASSERT_EQ(to_host.size(), 1U);
  EXPECT_EQ(number_of(to_host[0]), 4U);
  EXPECT_EQ(take(*one, 1'000'000), std::nullopt);
  EXPECT_EQ(pair.right->statistics().totals.filtered_frames, 1U);
  EXPECT_EQ(pair.right->statistics().totals.packets_received, 3U);
  EXPECT_EQ(pair.left->statistics().totals.packets_sent, 4U);
}

TEST(AdapterEndpoints, ThatListenHearWhatIsForAll) {
  Pair pair(endpoints());
  auto sender = open(*pair.left, {});
  auto one = open(*pair.right, {.listens = true}), two = open(*pair.right, {.listens = true}),
       deaf = open(*pair.right, {});
  ASSERT_EQ(send(*sender, frame_for(0, 9)), 1U);
  EXPECT_EQ(take(*one), 9U);
  EXPECT_EQ(take(*two), 9U);
  EXPECT_EQ(take(*deaf, 1'000'000), std::nullopt);
}

TEST(AdapterEndpoints, ASlowOneLosesItsOwnFramesOnly) {
  for (const Partition partition : {Partition::inlined, Partition::release}) {
    Pair pair(endpoints(partition));
    auto sender = open(*pair.left, {});
    auto slow = open(*pair.right, {.id = 2, .hold_limit = 8}), quick = open(*pair.right, {.id = 3, .hold_limit = 8});
    for (std::uint32_t i = 0; i < 300; ++i) {
      ASSERT_TRUE(send_in_time(*sender, frame_for(2, i)));
      ASSERT_TRUE(send_in_time(*sender, frame_for(3, i)));
      ASSERT_EQ(take(*quick), i);
    }
    EXPECT_EQ(slow->counters().over_limit, 292U);
    EXPECT_EQ(quick->counters().over_limit, 0U);
    for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(take(*slow), i);
    ASSERT_TRUE(send_in_time(*sender, frame_for(2, 5000)));
    EXPECT_EQ(take(*slow), 5000U);
  }
}

TEST(AdapterEndpoints, SendFromManyThreadsThroughOneAdapter) {
  for (const Partition partition : {Partition::inlined, Partition::parallel}) {
    Pair pair(endpoints(partition));
    constexpr std::uint32_t kFrames = 500;
    std::vector<std::unique_ptr<Endpoint>> from, to;
    for (std::uint16_t id = 1; id <= 4; ++id) {
      from.push_back(open(*pair.left, {.id = id, .send_ring = 16}));
      to.push_back(open(*pair.right, {.id = id, .hold_limit = 1024}));
    }
    std::vector<std::thread> threads;
    std::atomic<int> reading{4};
    for (std::uint16_t at = 0; at < 4; ++at) {
      threads.emplace_back([&, at] {
        for (std::uint32_t i = 0; i < kFrames; ++i)
          EXPECT_TRUE(send_in_time(*from[at], frame_for(static_cast<std::uint16_t>(at + 1), i)));
      });
      threads.emplace_back([&, at] {
        std::uint32_t got = 0;
        while (got < kFrames && take(*to[at]) == got) ++got;
        EXPECT_EQ(got, kFrames) << at;
        --reading;
      });
    }
    // What the wire had no room for leaves in a later turn.
    for (Packet packet; partition == Partition::inlined && reading != 0;) (void)from[0]->receive({&packet, 1});
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(AdapterEndpoints, ComeAndGoWhileFramesArrive) {
  Config config = endpoints(Partition::release);
  config.queues = 2;
  config.delivery = Delivery::multiqueue;
  Pair pair(config);
  auto sender = open(*pair.left, {});
  auto stays = open(*pair.right, {.id = 2, .hold_limit = 1024});
  std::atomic<bool> over{false};
  Window window;
  std::thread traffic([&] {
    for (std::uint32_t i = 0; i < 3000; ++i) {
      window.await(i);
      EXPECT_TRUE(send_in_time(*sender, frame_for(1, i)));
      EXPECT_TRUE(send_in_time(*sender, frame_for(2, i)));
    }
    over = true;
  });
  std::thread reader([&] {
    for (std::uint32_t i = 0; i < 3000; ++i) {
      const auto got = take(*stays);
      EXPECT_EQ(got, i);
      window.see(got == i ? i : UINT32_MAX - 200);
      if (got != i) return;
    }
  });
  int rounds = 0;
  while (!over) {
    auto comes = open(*pair.right, {.id = 1, .hold_limit = 4});
    (void)take(*comes, 100'000);
    ++rounds;
  }
  traffic.join();
  reader.join();
  EXPECT_GT(rounds, 0);
}

// Which processor moves an endpoint's frames follows from the table, and may change while they arrive.
TEST(AdapterEndpoints, AreSteeredToQueuesAndKeepTheirOrderWhenMoved) {
  Config config = endpoints(Partition::release);
  config.queues = 4;
  config.delivery = Delivery::multiqueue;
  config.queue_core = {0, 1, 0, 1};
  Pair pair(config);
  auto sender = open(*pair.left, {});
  auto endpoint = open(*pair.right, {.id = 6, .hold_limit = 1024});
  EXPECT_EQ(endpoint->core(), 0);
  const auto next = [&](std::uint32_t number) {
    EXPECT_TRUE(send_in_time(*sender, frame_for(6, number)));
    const auto packet = receive(*endpoint);
    if (!packet) return 99U;
    endpoint->give_back({&*packet, 1});
    return packet->queue;
  };
  EXPECT_EQ(next(0), 2U);
  ASSERT_TRUE(pair.right->host().command(Command::steer, 6 | 1 << 8));
  for (int i = 0; i < 1000 && endpoint->core() != 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(endpoint->core(), 1);
  EXPECT_EQ(next(1), 1U);
  ASSERT_TRUE(pair.right->host().command(Command::steer, 6 | 4 << 8));  // there is no such queue
  std::thread mover([&] {
    for (std::uint32_t i = 0; i < 200; ++i) {
      (void)pair.right->host().command(Command::steer, 6 | (i % 4) << 8);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  Window window;
  std::thread traffic([&] {
    for (std::uint32_t i = 2; i < 4000; ++i) {
      window.await(i);
      EXPECT_TRUE(send_in_time(*sender, frame_for(6, i)));
    }
  });
  for (std::uint32_t i = 2; i < 4000; ++i) {
    const auto got = take(*endpoint);
    EXPECT_EQ(got, i);
    window.see(got == i ? i : UINT32_MAX - 200);
    if (got != i) break;
  }
  mover.join();
  traffic.join();
  EXPECT_EQ(pair.right->statistics().totals.bad_commands, 1U);
}

TEST(AdapterEndpoints, MayBeWokenByTheLastFrameOfAMessageOnly) {
  constexpr std::uint16_t kFlags = 50;
  Pair pair(endpoints(Partition::release));
  auto sender = open(*pair.left, {});
  auto endpoint = open(*pair.right, {.id = 6, .hold_limit = 32, .message_end = {.offset = kFlags, .mask = 2}});
  const auto send_part = [&](std::uint32_t number, bool last) {
    Bytes frame = frame_for(6, number);
    frame[kFlags] = last ? std::byte{3} : std::byte{1};
    ASSERT_TRUE(send_in_time(*sender, frame));
  };
  const auto readable = [&](int milliseconds) {
    pollfd entry{endpoint->descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, milliseconds) == 1;
  };
  const auto arrived = [&](std::uint64_t packets) {
    for (const std::uint64_t end = Clock::steady().now_ns() + kPatienceNs;
         pair.right->statistics().totals.packets_received < packets && Clock::steady().now_ns() < end;)
      std::this_thread::yield();
  };
  ASSERT_TRUE(endpoint->arm());
  for (std::uint32_t i = 0; i < 3; ++i) send_part(i, false);
  arrived(3);
  EXPECT_FALSE(readable(20));
  send_part(3, true);
  EXPECT_TRUE(readable(5000));
  endpoint->disarm();
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(take(*endpoint), i);
  ASSERT_TRUE(endpoint->arm());  // a message longer than the buffers reach
  for (std::uint32_t i = 4; i < 20; ++i) send_part(i, false);
  EXPECT_TRUE(readable(5000));
  endpoint->disarm();
  for (std::uint32_t i = 4; i < 20; ++i) EXPECT_EQ(take(*endpoint), i);
}

TEST(AdapterEndpoints, ARequestedQueueChangesTheTable) {
  Config config = endpoints();
  config.queues = 3;
  config.queue_core = {0, 1, 1};
  Pair pair(config);
  EXPECT_EQ(open(*pair.left, {.id = 3, .queue = 1})->core(), 1);
  EXPECT_EQ(open(*pair.left, {.id = 4, .core = 0})->core(), 0);
}

TEST(AdapterEndpoints, OneOrAllQueuesMoveTheSameFrames) {
  for (const Delivery delivery : {Delivery::single_queue, Delivery::round_robin}) {
    Config config = endpoints(Partition::release);
    config.queues = 3;
    config.delivery = delivery;
    Pair pair(config);
    auto sender = open(*pair.left, {});
    auto endpoint = open(*pair.right, {.id = 6, .hold_limit = 1024});
    constexpr std::uint32_t kFrames = 1000;
    Window window;
    std::thread traffic([&] {
      for (std::uint32_t i = 0; i < kFrames; ++i) {
        window.await(i);
        EXPECT_TRUE(send_in_time(*sender, frame_for(6, i)));
      }
    });
    std::vector<bool> seen(kFrames);
    std::array<int, 3> by_queue{};
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      const auto packet = receive(*endpoint);
      window.see(packet ? i : UINT32_MAX - 200);
      EXPECT_TRUE(packet) << i;
      if (!packet) break;
      seen[number_of({packet->data, packet->length})] = true;
      ++by_queue[packet->queue];
      endpoint->give_back({&*packet, 1});
    }
    traffic.join();
    EXPECT_EQ(std::ranges::count(seen, true), static_cast<long>(kFrames));
    EXPECT_EQ(by_queue[1] != 0, delivery == Delivery::round_robin);
  }
}

// What a user can write into the memory it shares: everything.
TEST(AdapterEndpoints, ABadUserSpoilsNothingButItsOwn) {
  auto [a, b] = make_wire();
  auto adapter = std::move(LiveAdapter::create(endpoints(), std::move(a))).value();
  Port::Opening opening;
  WakeDescriptor wake = std::move(WakeDescriptor::create()).value();
  opening.bell = wake.bell();
  Port& port = *adapter->open_port({.id = 7, .hold_limit = 8, .send_ring = 8}, opening).value();
  const EndpointView view = port.view();
  auto good = open(*adapter, {.id = 8});
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    const auto any = [&] { return static_cast<std::uint32_t>(random()); };
    const auto near = [&](std::uint32_t value) { return value + any() % 24 - 8; };
    view.memory->free_producer = near(view.memory->free_producer);
    view.memory->send_producer = near(view.memory->send_consumer);
    view.memory->return_producer = any();
    view.memory->send_consumer = any() % 2 != 0 ? any() : view.memory->send_consumer.load();
    view.memory->user_word = any();
    view.memory->wants_room = any() % 2;
    for (std::uint32_t i = 0; i < 8; ++i) {
      view.free[i] = any() % 3 == 0 ? any() : any() % 8;
      view.lengths[i] = any() % 3 == 0 ? any() : any() % 1600;
      view.returned[i] = {any(), any(), 0, 0, 0};
    }
    for (const std::uint16_t id : {std::uint16_t{7}, std::uint16_t{8}}) {
      const Bytes bytes = frame_for(id, static_cast<std::uint32_t>(round));
      const Frame frame{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
      Frame gone[32];
      while (const std::size_t count = b->receive(gone)) {
        for (const Frame& sent : std::span(gone, count)) ASSERT_LE(sent.length, kStandardFrame);
        b->release(count);
      }
      ASSERT_EQ(b->transmit({&frame, 1}), 1U);
    }
    adapter->poll();
    ASSERT_EQ(take(*good), static_cast<std::uint32_t>(round));
  }
  adapter->endpoints()->close(port);
}

}  // namespace
}  // namespace viaduct::nic
