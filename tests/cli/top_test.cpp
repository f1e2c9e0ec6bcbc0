#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/counting_process.hpp"
#include "cli/run_command.hpp"

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
  EXPECT_THAT(outcome.err, HasSubstr("publishes no counters"));
}

}  // namespace
}  // namespace viaduct::cli
