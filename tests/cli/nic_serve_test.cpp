// viaduct nic run --serve: two of them on a way of UDP, and an endpoint of each in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include <viaduct/nic_serve.hpp>

#include <cstring>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "cli/run_command.hpp"

namespace viaduct::cli {
namespace {

using testing::HasSubstr;

// Until it says that it serves, and until the end of the scope.
class Serving {
 public:
  explicit Serving(const Arguments& arguments) {
    auto out = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out->second.get(), STDOUT_FILENO);
      become_command(arguments);
    }
    out_ = std::move(out->first);
    out->second.reset();
    read_until("Ctrl-C ends it");
  }
  ~Serving() { end(SIGKILL); }
  int end(int signal) {
    if (pid_ <= 0) return 0;
    ::kill(pid_, signal);
    read_until("received");
    return wait_for_exit(std::exchange(pid_, -1));
  }
  const std::string& said() const { return said_; }

 private:
  void read_until(std::string_view words) {
    char text[400];
    while (said_.find(words) == std::string::npos) {
      const ssize_t got = ::read(out_.get(), text, sizeof text);
      if (got <= 0) return;
      said_.append(text, static_cast<std::size_t>(got));
    }
  }
  pid_t pid_ = -1;
  Fd out_;
  std::string said_;
};

std::optional<std::string> receive(nic::Endpoint& endpoint) {
  for (const std::uint64_t end = Clock::steady().now_ns() + 5'000'000'000; Clock::steady().now_ns() < end;) {
    nic::Packet packet;
    if (endpoint.receive({&packet, 1}) == 1) {
      std::string text(reinterpret_cast<const char*>(packet.data) + 16, packet.length - 16);
      endpoint.give_back({&packet, 1});
      return text;
    }
    if (!endpoint.arm()) continue;
    pollfd entry{endpoint.descriptor(), POLLIN, 0};
    (void)::poll(&entry, 1, 1000);
    endpoint.disarm();
  }
  return std::nullopt;
}

TEST(NicServe, GivesEndpointsToOtherProcesses) {
  const int port = 41'000 + 2 * (::getpid() % 3'000);
  const std::string left = "127.0.0.1:" + std::to_string(port), right = "127.0.0.1:" + std::to_string(port + 1);
  const std::string name = "cli-" + std::to_string(::getpid());
  Serving here({"nic", "run", "--serve", name + "-left", "--mac", "udp:" + left + "," + right, "--queues", "2",
                "--processors", "0", "--spin-us", "0"});
  Serving there({"nic", "run", "--serve", name + "-right", "--mac", "udp:" + right + "," + left, "--spin-us", "0"});
  EXPECT_THAT(here.said(), HasSubstr("no privilege needed"));
  EXPECT_THAT(here.said(), HasSubstr("queue 1: processor 0"));
  EXPECT_THAT(there.said(), HasSubstr("serving endpoints of"));

  nic::Failure why;
  auto from = nic::open_served_endpoint(name + "-left", {.endpoint = {.id = 3}, .bind = nic::Binding::no}, why);
  ASSERT_NE(from, nullptr) << why.message;
  auto to = nic::open_served_endpoint(name + "-right", {.endpoint = {.id = 4}, .bind = nic::Binding::no}, why);
  ASSERT_NE(to, nullptr) << why.message;
  EXPECT_EQ(from->core(), 0);
  EXPECT_EQ(to->core(), -1);
  for (int i = 0; i < 20; ++i) {
    std::string frame(60, '.');
    const std::uint16_t id = 4;
    std::memcpy(frame.data() + 12, "\x88\xb5", 2);
    std::memcpy(frame.data() + 14, &id, 2);
    frame[16] = static_cast<char>('a' + i);
    const nic::Frame offered{reinterpret_cast<const std::byte*>(frame.data()), 60};
    ASSERT_EQ(from->send({&offered, 1}), 1U);
    ASSERT_EQ(receive(*to), frame.substr(16));
  }
  EXPECT_EQ(here.end(SIGINT), 0);
  EXPECT_THAT(here.said(), HasSubstr("1 endpoints were opened, 0 refused"));
}

TEST(NicServe, WhatCannotBeSaysWhatCan) {
  const std::string mac = "udp:127.0.0.1:0,127.0.0.1:9";
  EXPECT_THAT(run_command({"nic", "run", "--mac", mac}).err, HasSubstr("--serve NAME"));
  EXPECT_THAT(run_command({"nic", "run", "--mac", mac, "--serve", "x", "--host", "tap0"}).err, HasSubstr("either"));
  EXPECT_THAT(run_command({"nic", "run", "--mac", mac, "--serve", "x", "--partition", "inline"}).err,
              HasSubstr("release, parallel or dynamic"));
  const Outcome list =
      run_command({"nic", "run", "--mac", mac, "--serve", "x", "--partition", "parallel", "--processors", "0"});
  EXPECT_EQ(list.code, 2);
  EXPECT_THAT(list.err, HasSubstr("2 for the firmware"));
  EXPECT_EQ(run_command({"nic", "run", "--mac", mac, "--host", "tap0", "--queues", "2"}).code, 2);
  EXPECT_EQ(run_command({"nic", "run", "--mac", mac, "--serve", "x", "--delivery", "by-hand"}).code, 2);
}

}  // namespace
}  // namespace viaduct::cli
