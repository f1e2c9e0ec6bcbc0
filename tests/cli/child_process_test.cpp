#include "cli/child_process.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

namespace viaduct::cli {
namespace {

using namespace std::chrono_literals;

bool no_children_left() {
  return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
}

TEST(ChildProcess, Answers) {
  const auto answer = ask_child([] { return std::string("forty-two"); }, 10s);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(*answer, "forty-two");
  EXPECT_EQ(try_in_child([] { return EPERM; }, 10s), EPERM);
  EXPECT_TRUE(no_children_left());
}

TEST(ChildProcess, ACrashIsAnError) {
  const auto answer = ask_child(
      []() -> std::string {
        ::raise(SIGKILL);
        return "unreachable";
      },
      10s);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ECHILD);
  EXPECT_TRUE(no_children_left());
}

TEST(ChildProcess, AnExceptionIsAnError) {
  EXPECT_EQ(try_in_child([]() -> int { throw std::runtime_error("no"); }, 10s), ECHILD);
  EXPECT_TRUE(no_children_left());
}

TEST(ChildProcess, AHangIsEndedAtTheLimit) {
  const auto answer = ask_child(
      []() -> std::string {
        for (;;) ::pause();
      },
      20ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ETIMEDOUT);
  EXPECT_TRUE(no_children_left());
}

}  // namespace
}  // namespace viaduct::cli
