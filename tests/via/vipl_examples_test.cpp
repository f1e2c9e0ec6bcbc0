// The examples do what their heads say.
#include <gmock/gmock.h>

#include <csignal>

#include "via/example_program.hpp"

namespace viaduct {
namespace {

using testing::HangGuard;
using ::testing::MatchesRegex;

using Program = testing::ExampleProgram;

std::string own_name(const char* what) {
  return what + std::to_string(::getpid());
}

TEST(Examples, PingPong) {
  HangGuard guard;
  for (const char* const bytes : {"4", "0", "65536"}) {
    Program server({EXAMPLE_PINGPONG, "server", own_name("pingpong")});
    Program client({EXAMPLE_PINGPONG, "client", own_name("pingpong"), bytes, "200"});
    EXPECT_THAT(client.hear_after_waiting(), MatchesRegex(std::string(bytes) + " bytes: [0-9]+\\.[0-9]+ us one way"));
    EXPECT_EQ(client.finish(), 0);
    EXPECT_EQ(server.finish(), 0) << "it ends when its client has gone";
  }
}

TEST(Examples, ClientsSayThatTheyWaitForTheirServer) {
  HangGuard guard;
  const std::string name = own_name("late");
  const std::string waits = "nobody serves '" + name + "' here: waiting for it, 20 seconds at most";
  {
    Program client({EXAMPLE_PINGPONG, "client", name, "4", "200"});
    EXPECT_EQ(client.hear(), waits);
    Program server({EXAMPLE_PINGPONG, "server", name});
    EXPECT_THAT(client.hear(), MatchesRegex("4 bytes: .* us one way")) << "what was posted before is still there";
    EXPECT_EQ(client.finish(), 0);
    EXPECT_EQ(server.finish(), 0);
  }
  Program client({EXAMPLE_RDMA_KV, "client", name});
  EXPECT_EQ(client.hear(), waits);
  Program server({EXAMPLE_RDMA_KV, "server", name, "a=1"});
  client.say("a\n");
  EXPECT_EQ(client.hear(), "a=1");
  EXPECT_EQ(client.finish(), 0);
}

TEST(Examples, PingPongSaysThatItsServerWasKilled) {
  HangGuard guard;
  Program server({EXAMPLE_PINGPONG, "server", own_name("killed")});
  Program client({EXAMPLE_PINGPONG, "client", own_name("killed"), "4", "2000000000"});
  ::usleep(100'000);
  server.signal(SIGKILL);
  EXPECT_THAT(client.hear_after_waiting(), MatchesRegex("the server has gone, after [0-9]+ rounds of 2000000000"));
  EXPECT_EQ(client.finish(), 1);
}

TEST(Examples, AStoppedServerIsReadAllTheSame) {
  HangGuard guard;
  Program server({EXAMPLE_RDMA_KV, "server", own_name("kv"), "stone=arch", "river=Gard", "height=49 m"});
  ASSERT_EQ(server.hear(), "serving");
  Program client({EXAMPLE_RDMA_KV, "client", own_name("kv")});
  client.say("river\n");
  EXPECT_EQ(client.hear(), "river=Gard");
  server.signal(SIGSTOP);
  client.say("stone\nheight\ncolour\n");
  EXPECT_EQ(client.hear(), "stone=arch") << "nobody is there to answer: it was read";
  EXPECT_EQ(client.hear(), "height=49 m");
  EXPECT_EQ(client.hear(), "colour is not there");
  server.signal(SIGCONT);
  EXPECT_EQ(client.finish(), 0);
}

TEST(Examples, TheTableServesManyClientsInTurn) {
  HangGuard guard;
  Program server({EXAMPLE_RDMA_KV, "server", own_name("kvs"), "a=1"});
  ASSERT_EQ(server.hear(), "serving");
  for (int i = 0; i < 70; ++i) {  // more than it serves at once
    Program client({EXAMPLE_RDMA_KV, "client", own_name("kvs")});
    client.say("a\n");
    ASSERT_EQ(client.hear(), "a=1") << i;
    ASSERT_EQ(client.finish(), 0);
  }
}

TEST(Examples, SayHowTheyAreUsed) {
  Program pingpong({EXAMPLE_PINGPONG, "nonsense"}), kv({EXAMPLE_RDMA_KV});
  EXPECT_EQ(pingpong.finish(), 2);
  EXPECT_EQ(kv.finish(), 2);
}

}  // namespace
}  // namespace viaduct
