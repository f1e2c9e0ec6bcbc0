// Engines: connecting, refusing, giving up in time, sharing a session, memory, sleeping.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "net/engine_pair.hpp"

namespace viaduct::net {
namespace {

using Kind = FlowEvent::Kind;

void join(Program& client, Program& server, std::uint64_t user, const std::string& name = "echo") {
  client.connect(user, name);
  ASSERT_TRUE(
      run({&client, &server}, [&] { return client.has(user, Kind::accepted) || client.has(user, Kind::failed); }));
  ASSERT_TRUE(client.has(user, Kind::accepted)) << client.find(user, Kind::failed)->text;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Engine, CarriesMessagesBothWays) {
  Program client, server;
  server.echoes = true;
  server.offer("echo");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  EXPECT_EQ(text_of(client.find(1, Kind::accepted)->bytes), "answer to echo");
  ASSERT_EQ(server.incoming.size(), 1U);
  EXPECT_EQ(server.incoming[0].name, "echo");
  EXPECT_EQ(text_of(server.incoming[0].request), "request of 1");
  for (std::size_t i = 0; i < 100; ++i) {
    ASSERT_EQ(client.say(1, "message " + std::to_string(i)), Sent::yes);
    ASSERT_TRUE(run({&client, &server}, [&] { return client.heard[1].size() == i + 1; }));
  }
  EXPECT_EQ(client.heard[1][99], "message 99");
  ASSERT_TRUE(run({&client, &server}, [&] { return client.engine->delivered(client.flows[1]) == 100; }));
  EXPECT_EQ(client.engine->path(client.flows[1]).carrier, "udp");
  EXPECT_EQ(client.engine->path(client.flows[1]).interface, "lo");
}

TEST(Engine, ReadsAndWritesThePeersMemory) {
  Program client, server;
  server.offer("memory");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1, "memory"));
  std::vector<std::byte> out(700'000), back(700'000);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7 + i / 4096);
  ASSERT_EQ(client.engine->put(client.flows[1], out.data(), TaggedMemory::kTag, 100, out.size(), 11), Sent::yes);
  ASSERT_EQ(client.engine->get(client.flows[1], back.data(), TaggedMemory::kTag, 100, back.size(), 12), Sent::yes);
  ASSERT_EQ(client.engine->get(client.flows[1], back.data(), 6, 100, 10, 13), Sent::yes);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.events[1].size() == 4; }));
  std::map<std::uint64_t, TransferStatus> ends;
  for (const FlowEvent& event : client.events[1]) ends[event.cookie] = event.status;
  EXPECT_EQ(ends[11], TransferStatus::done);
  EXPECT_EQ(ends[12], TransferStatus::done);
  EXPECT_EQ(ends[13], TransferStatus::no_such_tag);
  EXPECT_EQ(server.memory.last_user, 1000U) << "memory is asked with the word of the flow at its own side";
  EXPECT_EQ(std::memcmp(server.memory.bytes.data() + 100, out.data(), out.size()), 0);
}

TEST(Engine, TellsWhenSoMuchIsDelivered) {
  Program client, server;
  server.offer("echo");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  for (std::size_t i = 0; i < 10; ++i) ASSERT_EQ(client.say(1, "message"), Sent::yes);
  client.engine->tell_when_delivered(client.flows[1], 10);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(1, Kind::delivered); }));
  EXPECT_EQ(client.engine->delivered(client.flows[1]), 10U);
  client.events[1].clear();
  client.engine->tell_when_delivered(client.flows[1], 3);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(1, Kind::delivered); })) << "it is already";
}

// Neither stands in the way of what is said afterwards, however far they had come.
TEST(Engine, TransfersAreGivenUp) {
  Program client, server;
  server.offer("memory");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1, "memory"));
  const FlowId flow = client.flows[1];
  for (int turns = 0; turns < 40; ++turns) {
    std::vector<std::byte> out(900'000), in(900'000);
    ASSERT_EQ(client.engine->put(flow, out.data(), TaggedMemory::kTag, 0, out.size(), 1), Sent::yes);
    ASSERT_EQ(client.engine->get(flow, in.data(), TaggedMemory::kTag, 0, in.size(), 2), Sent::yes);
    for (int turn = 0; turn < turns; ++turn) {
      client.turn();
      server.turn();
    }
    client.engine->give_up_transfers(flow);
    const std::vector<std::byte> before = in;
    client.events[1].clear();
    server.heard.clear();
    ASSERT_EQ(client.say(1, "afterwards"), Sent::yes);
    ASSERT_TRUE(run({&client, &server}, [&] { return server.heard.size() == 1; })) << turns;
    EXPECT_FALSE(client.has(1, Kind::transferred)) << turns;
    EXPECT_EQ(in, before) << turns;
  }
}

TEST(Engine, SharesOneSessionBetweenConnectionsToOneProcess) {
  Program client, server;
  server.offer("one");
  server.offer("two");
  // Two at once, of which the second waits for the first one's session; one to another name; one when all is there.
  client.connect(1, "one");
  client.connect(2, "one");
  client.connect(3, "two");
  ASSERT_TRUE(run({&client, &server}, [&] {
    return client.has(1, Kind::accepted) && client.has(2, Kind::accepted) && client.has(3, Kind::accepted);
  }));
  ASSERT_NO_FATAL_FAILURE(join(client, server, 4, "two"));
  for (const std::uint64_t user : {1, 2, 3, 4}) ASSERT_EQ(client.say(user, std::to_string(user)), Sent::yes);
  ASSERT_TRUE(run({&client, &server}, [&] { return server.heard.size() == 4; }));
  for (const Incoming& each : server.incoming) EXPECT_EQ(each.peer, server.incoming[0].peer);
  EXPECT_EQ(client.engine->sessions(), 1U);
  EXPECT_EQ(server.engine->sessions(), 1U);
}

TEST(Engine, ANameThatMovedIsFoundAgain) {
  Program client, before, after;
  before.offer("kept");
  before.offer("moving");
  ASSERT_NO_FATAL_FAILURE(join(client, before, 1, "moving"));
  before.engine->withdraw("moving");
  after.offer("moving");
  client.connect(2, "moving");
  ASSERT_TRUE(run({&client, &before, &after}, [&] { return client.has(2, Kind::accepted); }));
  EXPECT_EQ(after.incoming.size(), 1U);
}

TEST(Engine, TellsWhoRefusesAndWhy) {
  Program client, server;
  server.accepts = false;
  server.offer("picky");
  client.connect(1, "picky");
  ASSERT_TRUE(run({&client, &server}, [&] { return server.incoming.size() == 1; }));
  server.engine->refuse(server.incoming[0].flow, Reason::not_wanted, std::as_bytes(std::span("no", 2)));
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(1, Kind::refused); }));
  EXPECT_EQ(client.find(1, Kind::refused)->reason, Reason::not_wanted);
  EXPECT_EQ(text_of(client.find(1, Kind::refused)->bytes), "no");
}

TEST(Engine, FailsWhereNobodyHasTheName) {
  Program client, server;
  server.offer("somebody");
  client.connect(1, "nobody");
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(1, Kind::failed); }));
  EXPECT_EQ(client.find(1, Kind::failed)->reason, Reason::not_offered);
  EXPECT_NE(client.find(1, Kind::failed)->text.find("nobody there goes by the name 'nobody'"), std::string::npos)
      << client.find(1, Kind::failed)->text;
}

TEST(Engine, GivesUpInTimeAndSaysWhatWasTried) {
  Program client;
  client.connect(1, "echo", kSecond / 5, "127.0.0.1:9");
  client.connect(2, "echo", kSecond / 2, "127.0.0.1:9");  // waits for the same hello, and longer
  ASSERT_TRUE(run({&client}, [&] { return client.has(1, Kind::failed); }));
  EXPECT_FALSE(client.has(2, Kind::failed));
  const std::string text = client.find(1, Kind::failed)->text;
  for (const char* part : {"127.0.0.1:9", "'echo'", "0.2 s", "udp", "by lo", "MTU", "firewall"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
  }
  ASSERT_TRUE(run({&client}, [&] { return client.has(2, Kind::failed); }));
}

TEST(Engine, GivesUpOnAProgramThatNeverAnswers) {
  Program client, server;
  server.accepts = false;
  server.offer("slow");
  client.connect(1, "slow", kSecond / 5);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(1, Kind::failed); }));
  EXPECT_NE(client.find(1, Kind::failed)->text.find("did not take the connection"), std::string::npos);
  client.engine->close(client.flows[1]);
  // What it gave up is gone on the other side too, by when the next one has come.
  client.connect(2, "slow");
  ASSERT_TRUE(run({&client, &server}, [&] { return server.incoming.size() == 2; }));
  EXPECT_FALSE(server.engine->accept(server.incoming[0].flow, 9, {}, {}));
  EXPECT_TRUE(server.engine->accept(server.incoming[1].flow, 9, {}, {}));
}

TEST(Engine, RefusesWhatCannotBeTried) {
  Program client;
  Failure why;
  EXPECT_EQ(client.engine->connect("127.0.0.1:nonsense", "x", {}, why), 0U);
  EXPECT_NE(why.message.find("'nonsense' is no port"), std::string::npos);
  EXPECT_EQ(client.engine->connect("127.0.0.1", "", {}, why), 0U);
  EXPECT_EQ(client.engine->connect("127.0.0.1", "x", {.limits = {.slots = 0}}, why), 0U);
  EXPECT_EQ(client.engine->connect("no-such-host.invalid", "x", {}, why), 0U);
  EXPECT_NE(why.message.find("no-such-host.invalid"), std::string::npos);
  EXPECT_TRUE(Engine::is_this_host("127.0.0.1"));
  EXPECT_FALSE(Engine::is_this_host("192.0.2.1"));
}

TEST(Engine, ClosesInGoodOrder) {
  Program client, server;
  server.offer("echo");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  for (int i = 0; i < 20; ++i) ASSERT_EQ(client.say(1, "last words"), Sent::yes);
  client.engine->close(client.flows[1]);
  EXPECT_EQ(client.say(1, "too late"), Sent::closed);
  ASSERT_TRUE(run({&client, &server}, [&] { return server.has(1000, Kind::closed); }));
  EXPECT_EQ(server.heard[1000].size(), 20U);
  EXPECT_TRUE(server.has(1000, Kind::ended));
  EXPECT_EQ(server.find(1000, Kind::closed)->reason, Reason::done);
}

TEST(Engine, HearsOfAnEngineThatIsGone) {
  Program client;
  auto server = std::make_unique<Program>();
  server->offer("echo");
  client.connect(1, "echo");
  ASSERT_TRUE(run({&client, server.get()}, [&] { return client.has(1, Kind::accepted); }));
  server.reset();
  ASSERT_TRUE(run({&client}, [&] { return client.has(1, Kind::closed); }));
  EXPECT_EQ(client.find(1, Kind::closed)->reason, Reason::peer_ended);
  EXPECT_NE(client.find(1, Kind::closed)->text.find("127.0.0.1"), std::string::npos);
}

TEST(Engine, RunsOverAWireWithFaults) {
  nic::WireOptions wire;
  wire.faults = {.seed = 7, .loss = 0.05, .duplication = 0.05, .reordering = 0.05, .corruption = 0.05};
  auto [here, there] = nic::make_wire(wire);
  Program client(std::move(here)), server(std::move(there));
  server.echoes = true;
  server.offer("echo");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  for (std::size_t i = 0; i < 300; ++i) {
    ASSERT_EQ(client.say(1, "message " + std::to_string(i)), Sent::yes);
    ASSERT_TRUE(run({&client, &server}, [&] { return client.heard[1].size() == i + 1; })) << i;
    ASSERT_EQ(client.heard[1][i], "message " + std::to_string(i));
  }
}

// Threads that use one engine at the same time: each has flows of its own, and any of them moves everybody's frames.
TEST(Engine, ServesManyThreads) {
  constexpr std::uint64_t kThreads = 4;
  constexpr int kRounds = 200;
  Program server, client;
  server.echoes = true;
  server.offer("echo");
  for (std::uint64_t user = 1; user <= kThreads; ++user) ASSERT_NO_FATAL_FAILURE(join(client, server, user));
  std::atomic<bool> stop{false};
  std::thread serving([&] {
    while (!stop) {
      const std::uint64_t seen = server.engine->news();
      if (!server.turn()) server.engine->sleep(seen, 100 * kMillisecond);
    }
  });
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> wrong{0};
  for (std::uint64_t user = 1; user <= kThreads; ++user) {
    threads.emplace_back([&, user, flow = client.flows.at(user)] {
      for (int i = 0; i < kRounds; ++i) {
        std::uint64_t mine = user << 32 | static_cast<std::uint64_t>(i);
        const iovec piece{&mine, sizeof mine};
        if (client.engine->try_send(flow, {&piece, 1}) != Sent::yes) ++wrong;
        client.engine->flush();
        for (;;) {
          const std::uint64_t seen = client.engine->news();
          std::span<const std::byte> message;
          if (client.engine->peek(flow, message)) {
            wrong += message.size() != sizeof mine || std::memcmp(message.data(), &mine, sizeof mine) != 0;
            client.engine->consume(flow);
            break;
          }
          if (!client.engine->progress()) client.engine->sleep(seen, 20 * kSecond);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  serving.join();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace viaduct::net
