// Meeting at a name: who is there, who is not, who may.
#include "base/meeting.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/child.hpp"

namespace viaduct::meeting {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using viaduct::testing::Child;

std::string fresh_name(const char* what) {
  return std::string("viaduct/test/") + what + "/" + std::to_string(::getpid());
}

Deadline soon() {
  return Deadline::after_ns(Clock::steady(), 20'000'000'000);
}

TEST(Meeting, TwoMeetAndKnowEachOther) {
  const std::string name = fresh_name("two");
  const auto listener = listen_at(name, 4);
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_EQ(accept_at(listener->get()).error().code(), EAGAIN) << "nobody is waiting";
  Child other([&] {
    const auto socket = connect_at(name);
    CHILD_EXPECT(socket.ok());
    const auto peer = check_peer(socket->get(), Peers::own_user);
    CHILD_EXPECT(peer.ok() && *peer == ::getppid());
    char byte;
    CHILD_EXPECT((::fcntl(socket->get(), F_GETFL) & O_NONBLOCK) != 0);
    CHILD_EXPECT(wait_for(socket->get(), POLLIN, soon()).ok());
    return ::recv(socket->get(), &byte, 1, 0) == 1 ? 0 : 1;
  });
  ASSERT_TRUE(wait_for(listener->get(), POLLIN, soon()));
  const auto socket = accept_at(listener->get());
  ASSERT_TRUE(socket) << socket.error().message();
  EXPECT_NE(::fcntl(socket->get(), F_GETFD) & FD_CLOEXEC, 0);
  const auto peer = check_peer(socket->get(), Peers::own_user);
  ASSERT_TRUE(peer) << peer.error().message();
  EXPECT_EQ(*peer, other.pid());
  ASSERT_EQ(::send(socket->get(), "x", 1, 0), 1);
  EXPECT_EQ(other.wait(), 0);
}

TEST(Meeting, ErrorsSayWhatIsWrong) {
  const std::string name = fresh_name("errors");
  EXPECT_EQ(connect_at(name).error().code(), ECONNREFUSED);
  {
    const auto first = listen_at(name, 4);
    ASSERT_TRUE(first);
    const auto second = listen_at(name, 4);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), EADDRINUSE);
    EXPECT_THAT(second.error().message(), HasSubstr(name));
  }
  EXPECT_EQ(connect_at(name).error().code(), ECONNREFUSED) << "nothing is left behind";
  EXPECT_EQ(listen_at("", 4).error().code(), EINVAL);
  EXPECT_TRUE(listen_at(fresh_name("") + std::string(kLongestName - fresh_name("").size(), 'n'), 4));
  EXPECT_EQ(listen_at(std::string(kLongestName + 1, 'n'), 4).error().code(), ENAMETOOLONG);
  EXPECT_EQ(connect_at(std::string(kLongestName + 1, 'n')).error().code(), ENAMETOOLONG);
}

TEST(Meeting, AFullQueueIsNoEnd) {
  const std::string name = fresh_name("full");
  const auto listener = listen_at(name, 0);
  ASSERT_TRUE(listener);
  std::vector<Fd> waiting;
  for (;;) {
    auto socket = connect_at(name);
    if (!socket) {
      EXPECT_EQ(socket.error().code(), EAGAIN);
      break;
    }
    waiting.push_back(std::move(*socket));
    ASSERT_LT(waiting.size(), 100u);
  }
  ASSERT_TRUE(accept_at(listener->get()));
  EXPECT_TRUE(connect_at(name)) << "there is room again";
}

TEST(Meeting, LongNamesFitAndStayApart) {
  EXPECT_EQ(fit_name("short"), "short");
  const std::string longest(kLongestName, 'n');
  EXPECT_EQ(fit_name(longest), longest);
  const std::string one = fit_name(longest + "a"), other = fit_name(longest + "b");
  EXPECT_EQ(one.size(), kLongestName);
  EXPECT_NE(one, other);
  EXPECT_THAT(one, StartsWith(longest.substr(0, kLongestName - 17) + "#"));
}

TEST(Meeting, OtherUsersAreRefusedByName) {
  const auto refused = check_user(::geteuid() + 1, Peers::own_user);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), EACCES);
  EXPECT_THAT(refused.error().message(), HasSubstr("refused: the peer is user " + std::to_string(::geteuid() + 1)));
  EXPECT_TRUE(check_user(::geteuid(), Peers::own_user));
  EXPECT_FALSE(any_user_may(Peers::own_user));
}

// The setting is read once in a process.
TEST(Meeting, TheSettingAllowsThem) {
  for (const bool any : {false, true}) {
    Child other([&] {
      ::setenv("VIADUCT_PEERS", any ? "any" : "user", 1);
      CHILD_EXPECT(any_user_may(Peers::by_setting) == any);
      CHILD_EXPECT(check_user(::geteuid() + 1, Peers::by_setting).ok() == any);
      CHILD_EXPECT(!check_user(::geteuid() + 1, Peers::own_user).ok());
      return 0;
    });
    EXPECT_EQ(other.wait(), 0);
  }
}

TEST(Meeting, WaitingEndsByTheDeadline) {
  const auto pair = make_socket_pair(SOCK_STREAM);
  ASSERT_TRUE(pair);
  const auto late = wait_for(pair->first.get(), POLLIN, Deadline::after_ns(Clock::steady(), 1'000'000));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ETIMEDOUT);
  EXPECT_TRUE(wait_for(pair->first.get(), POLLOUT, Deadline::at_ns(0)));
}

}  // namespace
}  // namespace viaduct::meeting
