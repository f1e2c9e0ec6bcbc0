#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/talking.hpp"

namespace viaduct::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class HandBack : public testing::Test {
 protected:
  void SetUp() override { SKIP_IF_SANITIZED(); }
};

// With the answers checked by the talker: not a byte is lost or doubled on the way.
TEST_F(HandBack, ReturnsALiveConnectionToTcp) {
  Pair pair;
  pair.talk_until_on_the_ring();
  const std::string target = pair.client.number() + ":" + std::to_string(pair.client.first());
  const Outcome asked = run_command({"handback", "--wait", "0", target});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr(target));
  EXPECT_THAT(asked.out, HasSubstr("asked: each direction returns to TCP with its next send"));
  pair.client.talk(5);
  for (const std::string& side : {pair.client.number(), pair.server.number()}) {
    const json seen = sockets_of(side);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0]["out"]["path"], "tcp");
    EXPECT_EQ(seen[0]["in"]["path"], "tcp");
    EXPECT_EQ(seen[0]["why"], "handed back");
  }
  const json before = sockets_of(pair.client.number());
  pair.client.talk(100);
  EXPECT_EQ(sockets_of(pair.client.number()), before);  // nothing goes over the ring any more
  EXPECT_THAT(run_command({"handback", target}).out, HasSubstr("was on TCP again before"));
}

TEST_F(HandBack, TakesAllConnectionsOfAProcess) {
  Pair pair;
  pair.talk_until_on_the_ring();
  EXPECT_EQ(run_command({"handback", "--wait", "0", pair.server.number()}).code, 0);
  pair.client.talk(5);
  EXPECT_EQ(sockets_of(pair.server.number())[0]["why"], "handed back");
}

TEST_F(HandBack, SaysThatAConnectionIsNotOnARing) {
  Talker server(Under::run, {"serve"});
  Talker client(Under::nothing, {"call", std::to_string(server.first())});
  client.talk(1);
  const int fd = sockets_of(server.number())[0]["fd"];
  const Outcome one = run_command({"handback", server.number() + ":" + std::to_string(fd)});
  EXPECT_EQ(one.code, 1);
  EXPECT_THAT(one.err, HasSubstr("is not on a ring: too few operations"));
  const Outcome all = run_command({"handback", server.number()});
  EXPECT_EQ(all.code, 1);
  EXPECT_THAT(all.err, HasSubstr("has no connection on a ring"));
  const Outcome none = run_command({"handback", server.number() + ":999"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("no TCP socket at descriptor 999"));
}

TEST(HandBackErrors, ATargetIsAProcessAndPerhapsADescriptor) {
  for (const char* target : {"redis", "12:", ":3", "12:x", "-4", "0"}) {
    const Outcome outcome = run_command({"handback", "--", target});
    EXPECT_EQ(outcome.code, 2) << target;
    EXPECT_THAT(outcome.err, HasSubstr("neither PID nor PID:FD"));
  }
  EXPECT_EQ(run_command({"handback"}).code, 2);
}

TEST(HandBackErrors, AProcessThatPublishesNothingIsAFailure) {
  const Outcome outcome = run_command({"handback", std::to_string(::getpid())});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("does not run under `viaduct run`"));
}

}  // namespace
}  // namespace viaduct::cli
