// Peers on other hosts in `viaduct ls` and `viaduct top`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/host_list.hpp"
#include "cli/run_command.hpp"
#include "net/engine_pair.hpp"

namespace viaduct::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    server_.offer("echo");
    server_.echoes = true;
    client_.connect(1, "echo");
    ASSERT_TRUE(net::run({&client_, &server_}, [&] { return client_.has(1, net::FlowEvent::Kind::accepted); }));
    for (std::size_t i = 1; i <= 100; ++i) {
      ASSERT_EQ(client_.say(1, "counted"), net::Sent::yes);
      ASSERT_TRUE(net::run({&client_, &server_}, [&] { return client_.heard[1].size() == i; }));
    }
  }
  static json ours(const std::string& text, const char* list) {
    const json all = json::parse(text);
    for (const json& each : all[list]) {
      if (each["pid"] == ::getpid() && (!each.contains("peers") || each["hellos_sent"] != 0)) return each;
    }
    return nullptr;
  }
  net::Program client_, server_;
};

TEST_F(Hosts, AreListedWithWhatWentThere) {
  const Outcome listed = run_command({"ls", "--json", std::to_string(::getpid())});
  ASSERT_EQ(listed.code, 0) << listed.err;
  const json engine = ours(listed.out, "hosts");
  ASSERT_EQ(engine["peers"].size(), 1U) << listed.out;
  const json& peer = engine["peers"][0];
  EXPECT_EQ(peer["peer"], client_.engine->path(client_.flows[1]).peer);
  EXPECT_EQ(peer["interface"], "lo");
  EXPECT_EQ(peer["sealed"], false);
  EXPECT_GE(peer["frames_sent"], 100);
  EXPECT_GE(peer["bytes_received"], 100 * 40);
  EXPECT_EQ(peer["frame_size"], client_.engine->path(client_.flows[1]).frame_size);
  const std::uint64_t half = peer["round_trip_ns"]["p50"], nearly_all = peer["round_trip_ns"]["p99"];
  EXPECT_GT(half, 0U);
  EXPECT_GE(nearly_all, half);
  EXPECT_EQ(engine["drops"]["garbage"], 0);

  const std::string table = run_command({"ls", std::to_string(::getpid())}).out;
  for (const char* part : {"PEER", "udp lo", "RTT US", "LOST/NEEDLESS"}) EXPECT_THAT(table, HasSubstr(part));
}

TEST_F(Hosts, AreCountedTogether) {
  const Outcome counted = run_command({"top", "--once", "--json", std::to_string(::getpid())});
  ASSERT_EQ(counted.code, 0) << counted.err;
  const json process = ours(counted.out, "processes");
  std::map<std::string, std::uint64_t> values;
  for (const json& counter : process["counters"]) values[counter["name"]] = counter["value"];
  EXPECT_EQ(values["net.peers"], 2U) << "each of the two engines sees the other";
  EXPECT_GE(values["net.frames_sent"], 200U);
}

}  // namespace
}  // namespace viaduct::cli
