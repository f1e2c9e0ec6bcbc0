#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "base/own_network.hpp"
#include "cli/talking.hpp"

namespace viaduct::cli {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Ls : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF_SANITIZED(); }
};

TEST_F(Ls, ShowsAConnectionOnTheRingFromBothSides) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const json client = sockets_of(pair.client.number()), server = sockets_of(pair.server.number());
  ASSERT_EQ(client.size(), 1u);
  ASSERT_EQ(server.size(), 1u);
  EXPECT_EQ(client[0]["process"], "talker");
  EXPECT_EQ(client[0]["pid"], pair.client.pid());
  EXPECT_EQ(client[0]["fd"], pair.client.first());
  EXPECT_EQ(client[0]["peer"], "127.0.0.1:" + std::to_string(pair.server.first()));
  EXPECT_EQ(client[0]["peer"], server[0]["local"]);
  EXPECT_EQ(client[0]["local"], server[0]["peer"]);
  EXPECT_EQ(client[0]["state"], "ESTAB");
  EXPECT_EQ(client[0]["peer_pid"], pair.server.pid());
  EXPECT_EQ(server[0]["peer_pid"], pair.client.pid());
  for (const json& side : {client[0], server[0]}) {
    EXPECT_EQ(side["attached"], true);
    EXPECT_EQ(side["out"]["path"], "ring");
    EXPECT_EQ(side["in"]["path"], "ring");
    EXPECT_EQ(side["why"], "");
  }
  EXPECT_EQ(client[0]["out"], server[0]["in"]);
}

TEST_F(Ls, CountsWhatGoesOverTheRing) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const json before = sockets_of(pair.client.number())[0];
  pair.client.talk(10);
  const json after = sockets_of(pair.client.number())[0];
  for (const char* direction : {"out", "in"}) {
    EXPECT_EQ(after[direction]["bytes"], before[direction]["bytes"].get<int>() + 40);
    EXPECT_EQ(after[direction]["messages"], before[direction]["messages"].get<int>() + 10);
    EXPECT_GE(after[direction]["wakes"], before[direction]["wakes"]);
  }
}

TEST_F(Ls, OneLargeCallIsAcceleratedOnItsWay) {
  Talker server(Under::run, {"swallow"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  EXPECT_EQ(client.tell("large"), "ok\n");
  const json seen = sockets_of(client.number());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["out"]["path"], "ring");
  EXPECT_GE(seen[0]["out"]["bytes"].get<int>(), 8 << 20) << "of 32 MB";
}

// Of a process so far, in nanoseconds.
std::uint64_t processor_time(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/schedstat");
  std::uint64_t time = 0;
  file >> time;
  return time;
}

TEST_F(Ls, AnIdlePairUsesNoProcessorTime) {
  Pair pair;
  pair.talk_until_on_the_ring();
  ::usleep(200'000);  // whoever spins has given up by then
  const std::uint64_t server = processor_time(pair.server.pid()), client = processor_time(pair.client.pid());
  if (server == 0) GTEST_SKIP() << "no /proc/PID/schedstat here";
  ::usleep(500'000);
  EXPECT_EQ(processor_time(pair.server.pid()), server);
  EXPECT_EQ(processor_time(pair.client.pid()), client);
  pair.client.talk(10);
}

// With a judge that finds TCP cheaper whenever it looks.
TEST_F(Ls, SaysThatAConnectionRestsOnTcpAndWhatItCosts) {
  const Variables finds_tcp_cheaper{{"VIADUCT_SOCKETS_JUDGE", "always"}};
  Talker server(Under::run, {"serve"}, finds_tcp_cheaper);
  Talker client(Under::run, {"call", std::to_string(server.first())}, finds_tcp_cheaper);
  json rests, again;
  const auto path = [](const json& side) { return side["out"]["path"].get<std::string>(); };
  for (int batch = 0; batch < 300 && again.empty(); ++batch) {
    client.talk(3);
    const json seen = sockets_of(client.number())[0];
    if (path(seen) == "tcp" && !seen["tcp_cost_ns"].is_null()) rests = seen;
    if (!rests.empty() && path(seen) == "ring") again = seen;
  }
  ASSERT_FALSE(rests.empty());
  EXPECT_EQ(rests["attached"], true);
  EXPECT_GT(rests["ring_cost_ns"], 0);
  EXPECT_GT(rests["tcp_cost_ns"], 0);
  EXPECT_THAT(
      rests["why"].get<std::string>(),
      ContainsRegex("^most messages wake somebody, and cost more than over TCP \\([0-9.]+ us of processor time for "
                    "each, against [0-9.]+\\); tried again later$"));
  ASSERT_FALSE(again.empty()) << "it was not tried again";
  client.talk(100);
  EXPECT_GT(sockets_of(client.number())[0]["out"]["messages"], rests["out"]["messages"]) << "over the ring";
}

TEST_F(Ls, PrintsATable) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const Outcome outcome = run_command({"ls", pair.client.number()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, ContainsRegex("^PROCESS +PID +FD +LOCAL +PEER +STATE +OUT +IN +BYTES"));
  EXPECT_THAT(outcome.out, ContainsRegex("talker +" + pair.client.number() + " +[0-9]+ +127.0.0.1:[0-9]+ +127.0.0.1:" +
                                         std::to_string(pair.server.first()) + " +ESTAB +ring +ring"));
  EXPECT_THAT(run_command({"ls"}).out, HasSubstr(pair.server.number()));
}

TEST_F(Ls, IntoAPipeEverySocketIsOneWholeLine) {
  Talker server(Under::nothing, {"serve"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  client.talk(200);
  const std::string why = sockets_of(client.number())[0]["why"];
  EXPECT_GT(why.size(), 24u) << "too short to show anything";
  EXPECT_THAT(run_command({"ls", client.number()}).out, HasSubstr(why + "\n"));
}

TEST_F(Ls, SumsUp) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const std::string out = run_command({"ls", pair.client.number()}).out;
  EXPECT_THAT(out, HasSubstr("\n1 of 1 connected sockets is on rings\n"));
  Talker server(Under::nothing, {"serve"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  client.talk(1);
  const std::string why = sockets_of(client.number())[0]["why"];
  const Arguments both{"ls", "--all", pair.server.number(), pair.client.number(), client.number()};
  EXPECT_THAT(run_command(both).out, HasSubstr("\n2 of 3 connected sockets are on rings; 1: " + why + "\n"));
  Arguments in_json = both;
  in_json.push_back("--json");
  EXPECT_EQ(json::parse(run_command(in_json).out)["summary"],
            json({{"connected", 3}, {"on_rings", 2}, {"reasons", {{{"why", why}, {"sockets", 1}}}}}));
}

TEST_F(Ls, ShowsThoseThatItCanReadBesideThoseThatItCannot) {
  Pair pair;
  pair.client.talk(1);
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  (void)wait_for_exit(gone);
  const std::string own = std::to_string(::getpid());
  const Outcome outcome = run_command({"ls", pair.client.number(), std::to_string(gone), own});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr(" " + pair.client.number() + " "));
  EXPECT_THAT(outcome.err, HasSubstr("there is no process " + std::to_string(gone)));
  EXPECT_THAT(outcome.err, HasSubstr("process " + own + " does not run under `viaduct run`"));
  EXPECT_EQ(lines_in(outcome.err), 2u);
}

TEST_F(Ls, FiltersByPortStateAndPath) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const auto seen = [&](Arguments filter) {
    filter.insert(filter.begin(), {"ls", "--json", pair.server.number(), pair.client.number()});
    const Outcome outcome = run_command(filter);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out).at("sockets").size() : 0;
  };
  const std::string port = std::to_string(pair.server.first());
  EXPECT_EQ(seen({}), 2u);
  EXPECT_EQ(seen({"-a"}), 3u);
  EXPECT_EQ(seen({"--port", port}), 3u);  // the listener too
  EXPECT_EQ(seen({"--port", "1"}), 0u);
  EXPECT_EQ(seen({"--state", "listening"}), 1u);
  EXPECT_EQ(seen({"--state", "ESTAB"}), 2u);
  EXPECT_EQ(seen({"--state", "estab", "--port", port}), 2u);
  EXPECT_EQ(seen({"--path", "ring"}), 2u);
  EXPECT_EQ(seen({"--path", "tcp"}), 0u);
  EXPECT_THAT(run_command({"ls", "--port", "1", pair.client.number()}).out, HasSubstr("that is asked for"));
}

TEST_F(Ls, WatchesUntilTheProcessEnds) {
  Talker server(Under::run, {"serve"});
  auto output = make_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(output->second.get(), STDOUT_FILENO);
    become_command({"ls", "--watch", "--json", "--all", "--interval", "0.05", server.number()});
  }
  output->second.reset();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> lines(::fdopen(output->first.release(), "r"), &std::fclose);
  char line[4096];
  for (int reading = 0; reading < 2; ++reading) {
    ASSERT_NE(std::fgets(line, sizeof line, lines.get()), nullptr);
    EXPECT_EQ(json::parse(line)["sockets"].size(), 1u);
  }
  server.end();
  while (std::fgets(line, sizeof line, lines.get()) != nullptr) {
  }
  EXPECT_EQ(wait_for_exit(pid), 0);
}

TEST_F(Ls, SaysThatAConnectionIsYoung) {
  Pair pair;
  pair.client.talk(1);
  const json seen = sockets_of(pair.client.number());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["attached"], false);
  EXPECT_EQ(seen[0]["peer_pid"], nullptr);
  EXPECT_EQ(seen[0]["out"], json::parse(R"({"path": "tcp", "bytes": 0, "messages": 0, "wakes": 0})"));
  EXPECT_THAT(seen[0]["why"], HasSubstr("too few operations"));
}

TEST_F(Ls, SaysThatThePeerIsNotAccelerated) {
  Talker server(Under::nothing, {"serve"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  client.talk(200);
  const json seen = sockets_of(client.number());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["attached"], false);
  EXPECT_THAT(seen[0]["why"], HasSubstr("the other side has not come"));
}

bool become_nobody() {
  constexpr unsigned kNobody = 65534;
  return ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

std::size_t descriptors_of(const std::string& pid) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/" + pid + "/fd")) ++count;
  return count;
}

bool maps_a_stream(const std::string& pid) {
  std::ifstream maps("/proc/" + pid + "/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:viaduct-stream") != std::string::npos) return true;
  return false;
}

// Both sides say the same, and have nothing more than before they had looked for each other.
void talk_and_expect_refusal(const std::string& server, Talker& client, const std::string& client_pid,
                             const std::string& why) {
  client.talk(1);
  const std::size_t before[] = {descriptors_of(server), descriptors_of(client_pid)};
  client.talk(200);
  std::size_t side = 0;
  for (const std::string& pid : {server, client_pid}) {
    const json seen = sockets_of(pid);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0]["attached"], false);
    EXPECT_EQ(seen[0]["out"]["path"], "tcp");
    EXPECT_EQ(seen[0]["in"]["path"], "tcp");
    EXPECT_THAT(seen[0]["why"].get<std::string>(), HasSubstr(why));
    EXPECT_EQ(descriptors_of(pid), before[side++]);
    EXPECT_FALSE(maps_a_stream(pid));
  }
}

// Which side listens at the meeting place depends on their ports.
constexpr int kPairs = 4;

TEST_F(Ls, BothSidesSayThatThePeerBelongsToAnotherUser) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Variables user{{"VIADUCT_PEERS", "user"}}, any{{"VIADUCT_PEERS", "any"}};
  for (const auto& [of_server, of_client] : {std::pair{user, user}, std::pair{any, user}, std::pair{user, any}})
    for (int i = 0; i < kPairs; ++i) {
      Talker server(Under::run, {"serve"}, of_server);
      Talker client(Under::run, {"call", std::to_string(server.first())}, of_client, &become_nobody);
      if (!client.started()) GTEST_SKIP() << "nobody may not run " << VIADUCT_COMMAND;
      talk_and_expect_refusal(server.number(), client, client.number(),
                              "another user (to share memory: `viaduct run --peers any`, on both sides)");
    }
}

bool enter_own_processes() {
  if (::unshare(CLONE_NEWPID) != 0) return false;
  const pid_t first = ::fork();
  if (first > 0) {
    ::close_range(3, ~0U, 0);  // the pipes of its input end with the test's end of them
    ::_exit(wait_for_exit(first));
  }
  return first == 0;
}

std::string child_of(const Talker& talker) {
  std::string child;
  std::ifstream("/proc/" + talker.number() + "/task/" + talker.number() + "/children") >> child;
  return child;
}

TEST_F(Ls, BothSidesSayThatTheirProcessesDoNotSeeEachOther) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can make a PID namespace";
  for (const bool server_is_in_there : {true, false})
    for (int i = 0; i < kPairs; ++i) {
      Talker server(Under::run, {"serve"}, {}, server_is_in_there ? &enter_own_processes : nullptr);
      if (!server.started()) GTEST_SKIP() << "no PID namespaces here";
      Talker client(Under::run, {"call", std::to_string(server.first())}, {},
                    server_is_in_there ? nullptr : &enter_own_processes);
      const std::string server_pid = server_is_in_there ? child_of(server) : server.number();
      const std::string client_pid = server_is_in_there ? client.number() : child_of(client);
      if (server_pid.empty() || client_pid.empty()) GTEST_SKIP() << "no /proc/PID/task/TID/children here";
      talk_and_expect_refusal(server_pid, client, client_pid, "in another PID namespace");
    }
}

TEST_F(Ls, ConnectionsAreUpgradedWhenTheSettingSaysSo) {
  const Variables at_once{{"VIADUCT_SOCKETS_AFTER", "1"}}, late{{"VIADUCT_SOCKETS_AFTER", "2000"}};
  for (int i = 0; i < kPairs; ++i) {
    Talker server(Under::run, {"serve"}, at_once);
    Talker client(Under::run, {"call", std::to_string(server.first())}, at_once);
    client.talk(3);
    const json seen = sockets_of(client.number());
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0]["out"]["path"], "ring") << seen;
    EXPECT_EQ(seen[0]["in"]["path"], "ring") << seen;
  }
  Talker server(Under::run, {"serve"}, late);
  Talker client(Under::run, {"call", std::to_string(server.first())}, late);
  client.talk(200);
  EXPECT_THAT(sockets_of(client.number())[0]["why"].get<std::string>(), HasSubstr("too few operations"));
}

TEST_F(Ls, AnotherUserIsLetInWhereBothSaySo) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Variables any{{"VIADUCT_PEERS", "any"}};
  Talker server(Under::run, {"serve"}, any);
  Talker client(Under::run, {"call", std::to_string(server.first())}, any, &become_nobody);
  if (!client.started()) GTEST_SKIP() << "nobody may not run " << VIADUCT_COMMAND;
  client.talk(200);
  const json seen = sockets_of(server.number());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["attached"], true) << seen;
}

TEST_F(Ls, APeerInAnotherNetworkNamespaceIsServedByTcp) {
  OwnNetwork here;
  here.add_veth("left", "right");
  here.run("ip address add 10.9.0.1/24 dev left");
  std::unique_ptr<Talker> server;
  {
    OwnNetwork there;
    server = std::make_unique<Talker>(Under::run, Arguments{"serve", "0.0.0.0"});
  }
  const std::string enter = "nsenter --net --target " + server->number() + " ip ";
  here.run("ip link set right netns " + server->number());
  here.run(enter + "address add 10.9.0.2/24 dev right");
  if (!here.run(enter + "link set right up")) GTEST_SKIP() << here.missing();
  Talker client(Under::run, {"call", std::to_string(server->first()), "10.9.0.2"});
  client.talk(200);
  for (const Talker* side : {server.get(), &client}) {
    const json seen = sockets_of(side->number());
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0]["attached"], false);
    EXPECT_EQ(seen[0]["out"]["path"], "tcp");
    EXPECT_EQ(seen[0]["why"], "the peer is another host");
  }
}

TEST_F(Ls, SaysThatItIsSwitchedOff) {
  Talker server(Under::run, {"serve"}, {{"VIADUCT_SOCKETS", "off"}});
  Talker client(Under::nothing, {"call", std::to_string(server.first())});
  client.talk(1);
  const json seen = sockets_of(server.number());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0]["why"], HasSubstr("VIADUCT_SOCKETS"));
}

TEST_F(Ls, ShowsListenersOnlyWhenAskedFor) {
  Talker server(Under::run, {"serve"});
  EXPECT_EQ(sockets_of(server.number()), json::array());
  const json all = sockets_of(server.number(), true);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["state"], "LISTEN");
  EXPECT_EQ(all[0]["local"], "127.0.0.1:" + std::to_string(server.first()));
  EXPECT_EQ(all[0]["peer"], "");
  EXPECT_EQ(all[0]["why"], "listening");
}

TEST_F(Ls, FollowsASocketToItsDuplicate) {
  Pair pair;
  pair.client.talk(1);
  const int copy = Talker::number_in(pair.client.tell("dup"));
  ASSERT_NE(copy, pair.client.first());
  const json seen = sockets_of(pair.client.number());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["fd"], copy);
}

TEST_F(Ls, ForgetsASocketThatIsClosed) {
  Talker server(Under::run, {"serve"});
  {
    Talker client(Under::nothing, {"call", std::to_string(server.first())});
    client.talk(1);
    EXPECT_EQ(sockets_of(server.number()).size(), 1u);
  }
  Talker next(Under::nothing, {"call", std::to_string(server.first())});
  next.talk(1);  // the server closed the first before it answered this one
  EXPECT_EQ(sockets_of(server.number()).size(), 1u);
}

TEST_F(Ls, AChildHasARegistryOfItsOwn) {
  Talker server(Under::run, {"serve-fork"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  client.talk(20);
  const std::string child = std::to_string(Talker::number_in(server.line()));
  const json seen = sockets_of(child);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["peer"], sockets_of(client.number())[0]["local"]);
  EXPECT_EQ(sockets_of(server.number()), json::array());
}

TEST_F(Ls, AChildShowsTheConnectionsThatItInherits) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const std::string child = std::to_string(Talker::number_in(pair.client.tell("fork")));
  pair.client.talk(1);
  const json parents = sockets_of(pair.client.number()), childs = sockets_of(child);
  ASSERT_EQ(childs.size(), 1u);
  EXPECT_EQ(childs[0]["attached"], true);
  EXPECT_EQ(childs[0]["out"], parents[0]["out"]);
  EXPECT_EQ(childs[0]["local"], parents[0]["local"]);
  EXPECT_EQ(pair.client.end(), 0);
}

TEST_F(Ls, AProcessThatOnlyListensIsNamed) {
  Talker server(Under::run, {"serve"});
  const Outcome outcome = run_command({"ls", server.number()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, StartsWith("process " + server.number() + " has no TCP connection"));
  EXPECT_THAT(run_command({"ls", server.number(), server.number()}).out,
              StartsWith("none of these processes has a TCP"));
}

TEST_F(Ls, AProcessWithoutSocketsPublishesNothing) {
  Talker idle(Under::run, {"idle"});
  const Outcome outcome = run_command({"ls", idle.number()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("process " + idle.number() + " runs under `viaduct run`, and has had no TCP"));
  EXPECT_EQ(lines_in(outcome.err), 1u);
  EXPECT_THAT(run_command({"ls", "--all"}).out, Not(HasSubstr(" " + idle.number() + " ")));
}

TEST(LsErrors, AProcessThatIsNotThereIsAFailure) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  (void)wait_for_exit(child);
  const Outcome outcome = run_command({"ls", std::to_string(child)});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no process " + std::to_string(child)));
}

class SomebodyElsesProcess : public testing::TestWithParam<const char*> {};

TEST_P(SomebodyElsesProcess, IsAFailureThatSaysWhatToDo) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string own = std::to_string(::getpid()), asked = GetParam();
  auto said = make_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(said->second.get(), STDERR_FILENO);
    if (!become_nobody()) ::_exit(126);
    become_command({asked, own});
  }
  said->second.reset();
  const int code = wait_for_exit(child);
  if (code == 126 || code == 127) GTEST_SKIP() << "nobody may not run " << VIADUCT_COMMAND;
  EXPECT_EQ(code, 1);
  char text[512] = "";
  EXPECT_GT(::read(said->first.get(), text, sizeof text - 1), 0);
  EXPECT_THAT(std::string(text), HasSubstr("process " + own + " belongs to somebody else: run viaduct " + asked));
}

INSTANTIATE_TEST_SUITE_P(LsErrors, SomebodyElsesProcess, testing::Values("ls", "handback"));

// Somebody else's programs may well be there.
TEST(LsErrors, AUserIsToldThatHeSeesHisOwnOnly) {
  for (const char* asked : {"ls", "top"}) {
    auto said = make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(said->second.get(), STDOUT_FILENO);
      if (::getuid() == 0 && !become_nobody()) ::_exit(126);
      become_command(asked == std::string("ls") ? Arguments{"ls", "--port", "1"} : Arguments{"top", "--once"});
    }
    said->second.reset();
    const int code = wait_for_exit(child);
    if (code == 126 || code == 127) GTEST_SKIP() << "nobody may not run " << VIADUCT_COMMAND;
    EXPECT_EQ(code, 0);
    char text[4096] = "";
    EXPECT_GT(::read(said->first.get(), text, sizeof text - 1), 0);
    if (std::string(text).starts_with("no program")) {
      EXPECT_THAT(std::string(text), HasSubstr("; only programs of this user are seen, root sees all\n"));
    }
  }
}

TEST(LsErrors, AStateThatThereIsNotNamesTheNearest) {
  const Outcome outcome = run_command({"ls", "--state", "LISTN"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ls: --state: there is no state 'LISTN'; did you mean 'LISTEN'?"));
  EXPECT_EQ(run_command({"ls", "--port", "65536"}).code, 2);
  EXPECT_EQ(run_command({"ls", "--path", "udp"}).code, 2);
  EXPECT_EQ(run_command({"ls", "--interval", "2"}).code, 2) << "without --watch it would do nothing";
}

TEST(LsErrors, AProcessNumberIsANumber) {
  const Outcome outcome = run_command({"ls", "redis"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("'redis' is not a number"));
}

}  // namespace
}  // namespace viaduct::cli
