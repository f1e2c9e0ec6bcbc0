#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/fd.hpp"
#include "cli/run_command.hpp"

namespace viaduct::cli {
namespace {

using testing::HasSubstr;

// Tests run side by side: each process has a port of its own.
std::string port_of_this_test() {
  return std::to_string(40'000 + ::getpid() % 7'000);
}

// `viaduct ping --answer`, from when it says that it answers until the end of the scope.
class Answerer {
 public:
  explicit Answerer(const std::string& port) {
    auto out = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out->second.get(), STDOUT_FILENO);
      become_command({"ping", "--answer", "--port", port});
    }
    out->second.reset();
    char said[200] = {};
    (void)!::read(out->first.get(), said, sizeof said - 1);
    said_ = said;
  }
  ~Answerer() { end(SIGKILL); }
  int end(int signal) {
    if (pid_ <= 0) return 0;
    ::kill(pid_, signal);
    return wait_for_exit(std::exchange(pid_, -1));
  }
  const std::string& said() const { return said_; }

 private:
  pid_t pid_ = -1;
  std::string said_;
};

TEST(Ping, MeasuresTheWay) {
  const std::string port = port_of_this_test();
  Answerer answerer(port);
  EXPECT_THAT(answerer.said(), HasSubstr("answering at UDP port " + port));
  const Outcome outcome = run_command({"ping", "127.0.0.1:" + port, "--count", "20", "--seconds", "0.05", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["asked"], "127.0.0.1:" + port);
  EXPECT_EQ(result["from"], "127.0.0.1");
  EXPECT_GT(result["round_trip_us"]["polling"]["least"], 0.0);
  EXPECT_LE(result["round_trip_us"]["polling"]["least"], result["round_trip_us"]["polling"]["p99"]);
  EXPECT_GT(result["put_bytes_per_second"], 0.0);
  EXPECT_GT(result["get_bytes_per_second"], 0.0);
  const Outcome text = run_command({"ping", "127.0.0.1:" + port, "--count", "5", "--seconds", "0.02"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("bulk from its memory"));
  EXPECT_EQ(answerer.end(SIGINT), 0);
}

TEST(Ping, SaysWhyNot) {
  const Outcome nobody = run_command({"ping", "127.0.0.1:9", "--timeout", "0.2"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("no answer by 127.0.0.1:9 within 0.2 s (UDP, from 127.0.0.1, MTU"));
  EXPECT_EQ(nobody.out, "");
  EXPECT_EQ(run_command({"ping"}).code, 2);
  EXPECT_EQ(run_command({"ping", "--answer", "localhost"}).code, 2);
  const std::string port = port_of_this_test();
  Answerer answerer(port);
  const Outcome second = run_command({"ping", "--answer", "--port", port});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr("another process offers the name 'viaduct-ping'"));
}

// Killed in the middle of its work: the one that asks hears of it, within its timeout.
TEST(Ping, EndsWhenTheOtherSideIsKilled) {
  const std::string port = port_of_this_test();
  Answerer answerer(port);
  const pid_t asking = ::fork();
  if (asking == 0) {
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(nothing, STDERR_FILENO);
    become_command({"ping", "127.0.0.1:" + port, "--count", "1000000", "--timeout", "0.5"});
  }
  answerer.end(SIGKILL);
  EXPECT_EQ(wait_for_exit(asking), 1);
}

}  // namespace
}  // namespace viaduct::cli
