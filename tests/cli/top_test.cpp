#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/counting_process.hpp"
#include "cli/run_command.hpp"
#include "cli/talking.hpp"

namespace viaduct::cli {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST(Top, ShowsAProcessThatPublishesCounters) {
  const CountingProcess process("test.x", 42);
  const Outcome all = run_command({"top", "--once"});
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, ContainsRegex(process.number() + " +test-cli +test\\.x +42\n"));
  const Outcome one = run_command({"top", "--once", process.number()});
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, ContainsRegex("test\\.x +42\n"));
}

TEST(Top, PrintsJson) {
  const CountingProcess process("test.x", 42);
  const Outcome outcome = run_command({"top", "--once", "--json", process.number()});
  EXPECT_EQ(outcome.code, 0);
  const json processes = json::parse(outcome.out).at("processes");
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(std::to_string(processes[0].at("pid").get<int>()), process.number());
  EXPECT_EQ(processes[0].at("counters"), json::parse(R"([{"name": "test.x", "value": 42}])"));
}

TEST(Top, SaysThatAProcessCountedNothingYet) {
  const CountingProcess process("test.x", 0);
  EXPECT_THAT(run_command({"top", "--once", process.number()}).out, HasSubstr("nothing counted yet"));
}

TEST(Top, RepeatsWithRatesUntilTheProcessEnds) {
  CountingProcess process("test.x", 42);
  auto output = make_pipe();
  ASSERT_TRUE(output);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(output->second.get(), STDOUT_FILENO);
    become_command({"top", "--json", "--interval", "0.05", process.number()});
  }
  output->second.reset();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> lines(::fdopen(output->first.release(), "r"), &std::fclose);
  char line[4096];
  ASSERT_NE(std::fgets(line, sizeof line, lines.get()), nullptr);
  EXPECT_FALSE(json::parse(line)["processes"][0]["counters"][0].contains("per_second"));
  ASSERT_NE(std::fgets(line, sizeof line, lines.get()), nullptr);
  EXPECT_EQ(json::parse(line)["processes"][0]["counters"][0].at("per_second"), 0);
  process.end();
  while (std::fgets(line, sizeof line, lines.get()) != nullptr) {
  }
  EXPECT_EQ(wait_for_exit(pid), 0);
}

TEST(Top, AProcessThatIsNotThereIsAFailure) {
  CountingProcess process("test.x", 1);
  const std::string number = process.number();
  process.end();
  const Outcome outcome = run_command({"top", "--once", number});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("there is no process " + number));
  EXPECT_EQ(lines_in(outcome.err), 1u);
}

TEST(Top, AProcessThatPublishesNothingIsAFailure) {
  const Outcome outcome = run_command({"top", "--once", std::to_string(::getpid())});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("publishes no counters and no sockets"));
}

// ---- programs under `viaduct run`

class TopSockets : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF_SANITIZED(); }
};

TEST_F(TopSockets, ShowsWhatGoesOverRings) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const Outcome all = run_command({"top", "--once"});
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, ContainsRegex(pair.client.number() + " +talker +1 +0 +[0-9]"));
  const Outcome one = run_command({"top", "--once", pair.server.number()});
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, ContainsRegex(pair.server.number() + " +[0-9]+ +127.0.0.1:" +
                                     std::to_string(pair.server.first()) + " +127.0.0.1:[0-9]+ +ring +ring +[0-9]"));
}

TEST_F(TopSockets, TellsRates) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const json before = sockets_of(pair.client.number())[0];
  auto output = make_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(output->second.get(), STDOUT_FILENO);
    become_command({"top", "--json", "--interval", "0.05", pair.client.number()});
  }
  output->second.reset();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> lines(::fdopen(output->first.release(), "r"), &std::fclose);
  char line[4096];
  const auto next = [&] {
    EXPECT_NE(std::fgets(line, sizeof line, lines.get()), nullptr);
    return json::parse(line)["processes"][0]["sockets"];
  };
  json first = next();
  EXPECT_EQ(first["connected"], 1);
  EXPECT_EQ(first["on_rings"], 1);
  EXPECT_FALSE(first["out"].contains("bytes_per_second"));
  pair.client.talk(50);
  json later = next();
  while (later["out"]["messages"] < before["out"]["messages"].get<int>() + 50) later = next();
  EXPECT_GT(later["out"]["bytes_per_second"], 0);
  EXPECT_GT(later["in"]["messages_per_second"], 0);
  EXPECT_GE(later["in"]["wakes_per_second"], 0);
  EXPECT_EQ(later["connections"][0]["out"]["path"], "ring");
  EXPECT_EQ(later["connections"][0]["out"]["bytes_per_second"], later["out"]["bytes_per_second"]);
  EXPECT_EQ(pair.client.end(), 0);
  while (std::fgets(line, sizeof line, lines.get()) != nullptr) {
  }
  EXPECT_EQ(wait_for_exit(pid), 0);
}

TEST_F(TopSockets, CountsConnectionsThatAreNotOnRings) {
  Talker server(Under::nothing, {"serve"});
  Talker client(Under::run, {"call", std::to_string(server.first())});
  client.talk(1);
  const Outcome outcome = run_command({"top", "--once", client.number()});
  EXPECT_THAT(outcome.out, ContainsRegex(client.number() + " +talker +0 +1 +0/0 +0/0 +0/0\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("127.0.0.1:[0-9]+ +tcp +tcp\n"));
}

TEST_F(TopSockets, ShowsThoseThatItCanReadBesideThoseThatItCannot) {
  Pair pair;
  const std::string own = std::to_string(::getpid());
  const Outcome outcome = run_command({"top", "--once", own, pair.client.number()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, ContainsRegex(pair.client.number() + " +talker"));
  EXPECT_THAT(outcome.err, HasSubstr("process " + own));
}

TEST_F(TopSockets, AProgramWithoutSocketsIsNotTakenForAStranger) {
  Talker idle(Under::run, {"idle"});
  const Outcome outcome = run_command({"top", "--once", idle.number()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("process " + idle.number() + " runs under `viaduct run`"));
}

}  // namespace
}  // namespace viaduct::cli
