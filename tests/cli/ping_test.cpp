#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/fd.hpp"
#include "base/two_hosts.hpp"
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
  EXPECT_EQ(result["taken"], "shared memory") << "it is this host";
  const auto& udp = result["paths"][0];
  EXPECT_EQ(udp["path"], "udp");
  EXPECT_GT(udp["round_trip_us"]["polling"]["least"], 0.0);
  EXPECT_LE(udp["round_trip_us"]["polling"]["least"], udp["round_trip_us"]["polling"]["p99"]);
  EXPECT_GT(udp["put_bytes_per_second"], 0.0);
  EXPECT_GT(udp["get_bytes_per_second"], 0.0);
  EXPECT_EQ(result["paths"][1]["there"], false);
  EXPECT_NE(result["paths"][1]["why"], "");
  const Outcome text = run_command({"ping", "127.0.0.1:" + port, "--count", "5", "--seconds", "0.02"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("bulk from its memory"));
  EXPECT_EQ(answerer.end(SIGINT), 0);
}

TEST(Ping, SaysWhyNot) {
  const Outcome nobody = run_command({"ping", "127.0.0.1:9", "--timeout", "0.2"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("no answer by 127.0.0.1:9 within 0.2 s (UDP, from 127.0.0.1, MTU"));
  EXPECT_THAT(nobody.err, HasSubstr("nobody has that UDP port"));
  EXPECT_EQ(nobody.out, "");
  EXPECT_EQ(run_command({"ping"}).code, 2);
  EXPECT_EQ(run_command({"ping", "--answer", "localhost"}).code, 2);
  const std::string port = port_of_this_test();
  Answerer answerer(port);
  const Outcome second = run_command({"ping", "--answer", "--port", port});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr("another process offers the name 'viaduct-ping'"));
}

// Runs in processes that are forked, since nobody leaves the namespaces again.
class PingBetweenHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.missing().empty()) GTEST_SKIP() << hosts_.missing();
    hosts_.enter(TwoHosts::left);
  }
  void TearDown() override { hosts_.leave(); }
  Outcome ping(const Variables& settings = {}) {
    hosts_.enter(TwoHosts::right);
    return run_command({"ping", "10.77.0.1:" + port_, "--count", "20", "--seconds", "0.05", "--timeout", "2", "--json"},
                       settings);
  }

  TwoHosts hosts_;
  const std::string port_ = port_of_this_test();
};

TEST_F(PingBetweenHosts, MeasuresEveryPath) {
  Answerer answerer(port_);
  const Outcome outcome = ping();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["taken"], "udp");
  EXPECT_EQ(result["interface"], "hostr");
  EXPECT_EQ(result["mtu"], 1500);
  for (const auto& path : result["paths"]) {
    ASSERT_EQ(path["there"], true) << path;
    EXPECT_GT(path["round_trip_us"]["sleeping"]["p50"], 0.0) << path;
    EXPECT_GT(path["put_bytes_per_second"], 0.0) << path;
    EXPECT_EQ(path["frames_lost"], 0) << path;
  }
  EXPECT_EQ(result["paths"][1]["path"], "packet");
}

TEST_F(PingBetweenHosts, SaysWhoTakesDatagramsAway) {
  Answerer answerer(port_);
  if (!hosts_.lose(TwoHosts::left, 999)) GTEST_SKIP() << "no nft here, which loses datagrams";
  const Outcome outcome = ping();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("a firewall takes UDP to or from that port away"));
  hosts_.run_in(TwoHosts::left, "ip link set hostl down");
  const Outcome down = ping();
  EXPECT_EQ(down.code, 1);
  EXPECT_THAT(down.err, HasSubstr("10.77.0.1"));
}

TEST_F(PingBetweenHosts, SaysThatKeysDiffer) {
  Answerer answerer(port_);
  const std::string key = ::testing::TempDir() + "ping-key." + port_;
  std::ofstream(key) << "a key that only one side has";
  ::chmod(key.c_str(), 0600);
  const Outcome outcome = ping({{"VIADUCT_KEY_FILE", key}});
  ::unlink(key.c_str());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("key"));
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
