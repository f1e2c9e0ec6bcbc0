// Engines whose program does not call: the keeper works for them, and only then. Fork and exit.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/child.hpp"
#include "net/engine_pair.hpp"

namespace viaduct::net {
namespace {

using Kind = FlowEvent::Kind;
using testing::Child;

void join(Program& client, Program& server, std::uint64_t user, const std::string& name = "echo") {
  client.connect(user, name);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.has(user, Kind::accepted); }));
}

std::uint64_t processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

void compute(std::uint64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));  // anywhere but in an engine
}

TEST(Keeper, ServesPeersWhileTheProgramDoesNot) {
  Program client, server;
  server.offer("echo");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  // Nobody calls the server any more.
  std::vector<std::byte> out(300'000, std::byte{7}), in(300'000);
  ASSERT_EQ(client.engine->put(client.flows[1], out.data(), TaggedMemory::kTag, 0, out.size(), 1), Sent::yes);
  ASSERT_EQ(client.engine->get(client.flows[1], in.data(), TaggedMemory::kTag, 0, in.size(), 2), Sent::yes);
  ASSERT_EQ(client.say(1, "while you were away"), Sent::yes);
  ASSERT_TRUE(run(
      {&client}, [&] { return client.events[1].size() == 3 && client.engine->delivered(client.flows[1]) == 3; },
      5 * kSecond));
  for (const FlowEvent& event : client.events[1]) EXPECT_EQ(event.status, TransferStatus::done);
  EXPECT_EQ(in, out);
  // And it is as if it had never been away.
  ASSERT_TRUE(run({&client, &server}, [&] { return server.heard.size() == 1; }));
  server.echoes = true;
  for (std::size_t i = 1; i <= 50; ++i) {
    ASSERT_EQ(client.say(1, "again"), Sent::yes);
    ASSERT_TRUE(run({&client, &server}, [&] { return client.heard[1].size() == i; }));
    if (i % 10 == 0) compute(20 * kMillisecond);  // away and back, again and again
  }
}

TEST(Keeper, DeliversWhatWasTakenBeforeTheProgramWentAway) {
  Program client, server;
  server.offer("echo");
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  std::vector<std::byte> out(900'000, std::byte{9});
  ASSERT_EQ(client.engine->put(client.flows[1], out.data(), TaggedMemory::kTag, 0, out.size(), 1), Sent::yes);
  ASSERT_EQ(client.say(1, "behind it"), Sent::yes);
  client.engine->flush();
  ASSERT_TRUE(run(
      {&server}, [&] { return server.heard.size() == 1; }, 5 * kSecond))
      << "the client never calls again";
  EXPECT_EQ(std::memcmp(server.memory.bytes.data(), out.data(), out.size()), 0);
}

TEST(Keeper, AnswersHellosWhileTheProgramDoesNot) {
  Program client, server, other;
  server.offer("here");
  other.offer("there");
  compute(20 * kMillisecond);
  client.connect(1, "nobody");
  ASSERT_TRUE(run({&client}, [&] { return client.has(1, Kind::failed); }));
  EXPECT_EQ(client.find(1, Kind::failed)->reason, Reason::not_offered);
  // Of those who share the port each gets half of the hellos, and neither program calls for the first while.
  for (std::uint64_t user = 10; user < 20; ++user) {
    const std::uint64_t began = Clock::steady().now_ns();
    client.connect(user, "there", 10 * kSecond);
    (void)run(
        {&client}, [&] { return client.engine->path(client.flows[user]).mtu != 0; }, 3 * kSecond);
    EXPECT_LT(Clock::steady().now_ns() - began, kSecond);
    client.engine->close(client.flows[user], false);
  }
}

TEST(Keeper, IdleFlowsCostNothing) {
  constexpr std::uint64_t kFlows = 300;
  Program client, server;
  server.offer("echo");
  for (std::uint64_t user = 1; user <= kFlows; ++user) client.connect(user, "echo");
  ASSERT_TRUE(
      run({&client, &server}, [&] { return client.events.size() == kFlows && server.incoming.size() == kFlows; }));
  compute(300 * kMillisecond);  // the keeper notices that nobody calls
  const std::uint64_t before = processor_time();
  compute(kSecond);
  EXPECT_LT(processor_time() - before, testing::kSanitized ? 20 * kMillisecond : 2 * kMillisecond);
}

// How often that thread of this process has gone to sleep.
std::uint64_t switches_of(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::ifstream command(task.path() / "comm");
    if (!std::getline(command, name) || name != thread) continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line)) {
      if (line.starts_with("voluntary_ctxt_switches:")) return std::stoull(line.substr(24));
    }
  }
  return 0;
}

TEST(Keeper, StaysOutOfTheWayOfAProgramThatCallsOrSleeps) {
  Program client, server;
  server.offer("echo");
  server.echoes = true;
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  std::size_t said = 0;
  const auto talk = [&](std::uint64_t ns) {
    for (const std::uint64_t end = Clock::steady().now_ns() + ns; Clock::steady().now_ns() < end;) {
      ASSERT_EQ(client.say(1, "ping"), Sent::yes);
      ++said;
      ASSERT_TRUE(run({&client, &server}, [&] { return client.heard[1].size() == said; }));
    }
  };
  ASSERT_NO_FATAL_FAILURE(talk(300 * kMillisecond));
  const std::uint64_t before = switches_of("viaduct-keeper");
  ASSERT_GT(before, 0U);
  const std::size_t said_before = said;
  ASSERT_NO_FATAL_FAILURE(talk(kSecond));
  // Two engines, looked at every 40 ms.
  EXPECT_LT(switches_of("viaduct-keeper") - before, 100U) << said - said_before << " round trips";
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kMayHaveThreads = false;  // a child of a process with threads, under that sanitizer
#else
constexpr bool kMayHaveThreads = true;
#endif

TEST(Keeper, AChildHasNoFlows) {
  Program client, server;
  server.offer("echo");
  server.echoes = true;
  ASSERT_NO_FATAL_FAILURE(join(client, server, 1));
  compute(30 * kMillisecond);  // by the keeper's hand: it may be anywhere when the child is made
  for (int i = 0; i < 20; ++i) {
    Child child([&] {
      Failure why;
      if (client.say(1, "from the child") != Sent::closed) return 1;
      if (client.engine->connect("127.0.0.1", "echo", {}, why) != 0 || why.message.empty()) return 2;
      if (client.engine->progress() || client.engine->descriptor() >= 0) return 3;
      std::span<const std::byte> message;
      if (client.engine->peek(client.flows[1], message)) return 4;
      client.engine = nullptr;
      if (!kMayHaveThreads) return 0;
      // It may have engines of its own.
      Program own;
      own.connect(1, "echo");
      if (!run(
              {&own}, [&] { return own.has(1, Kind::accepted) || own.has(1, Kind::failed); }, 5 * kSecond))
        return 5;
      return own.has(1, Kind::accepted) ? 0 : 6;
    });
    if (kMayHaveThreads) {
      ASSERT_TRUE(run({&server}, [&] { return server.incoming.size() == 2 + static_cast<std::size_t>(i); }));
    }
    ASSERT_EQ(child.wait(), 0);
  }
  ASSERT_EQ(client.say(1, "from the parent"), Sent::yes);
  ASSERT_TRUE(run({&client, &server}, [&] { return client.heard[1].size() == 1; }));
  EXPECT_EQ(client.heard[1][0], "from the parent");
}

TEST(Keeper, ExitDeliversTheTail) {
  if (!kMayHaveThreads) GTEST_SKIP() << "the child needs a thread";
  Program server;
  server.offer("echo");
  const int pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    auto* const client = new Program;  // of which nobody takes leave
    client->connect(1, "echo");
    if (!run({client}, [&] { return client->has(1, Kind::accepted); })) ::_exit(1);
    for (int i = 0; i < 20; ++i) {
      if (client->say(1, std::string(3000, static_cast<char>('a' + i))) != Sent::yes) ::_exit(2);
    }
    std::exit(0);
  }
  ASSERT_TRUE(run(
      {&server}, [&] { return server.has(1000, Kind::closed); }, 10 * kSecond));
  EXPECT_EQ(server.heard[1000].size(), 20U);
  EXPECT_EQ(server.find(1000, Kind::closed)->reason, Reason::peer_ended);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace viaduct::net
