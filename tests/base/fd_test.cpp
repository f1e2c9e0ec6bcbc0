#include "base/fd.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "base/child.hpp"

namespace viaduct {
namespace {

using testing::Child;
using testing::open_descriptors;

const std::byte kBytes[] = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};

FdPair socket_pair(int type = SOCK_STREAM) {
  auto pair = make_socket_pair(type);
  EXPECT_TRUE(pair);
  return std::move(*pair);
}

bool closes_on_exec(int fd) {
  return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

TEST(Fd, ClosesWhatItOwnsOnce) {
  const int before = open_descriptors();
  {
    Fd first(::dup(0));
    Fd second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT: what is left is the question
    ASSERT_TRUE(second);
    second = Fd(::dup(0));
    EXPECT_EQ(open_descriptors(), before + 1);
    Fd& itself = second;
    second = std::move(itself);
    EXPECT_TRUE(second) << "assigning to itself keeps it";
    const int released = second.release();
    EXPECT_EQ(open_descriptors(), before + 1);
    ::close(released);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Fd, PairsAreNotInheritedByOtherPrograms) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  const FdPair sockets = socket_pair();
  for (const Fd* fd : std::initializer_list<const Fd*>{&pipe->first, &pipe->second, &sockets.first, &sockets.second})
    EXPECT_TRUE(closes_on_exec(fd->get()));
  ASSERT_EQ(::write(pipe->second.get(), "x", 1), 1) << "second writes";
  char c = 0;
  ASSERT_EQ(::read(pipe->first.get(), &c, 1), 1) << "first reads";
}

class PassingDescriptors : public ::testing::TestWithParam<int> {
 protected:
  FdPair sockets_ = socket_pair(GetParam());
};

TEST_P(PassingDescriptors, ArriveUsableAndCloseOnExec) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  ASSERT_EQ(::fcntl(pipe->second.get(), F_SETFD, 0), 0);
  const int sent[] = {pipe->second.get()};
  ASSERT_TRUE(send_with_fds(sockets_.first.get(), kBytes, sent));
  auto message = receive_with_fds(sockets_.second.get(), 16, 1);
  ASSERT_TRUE(message) << message.error().message();
  EXPECT_EQ(message->bytes, std::vector<std::byte>(std::begin(kBytes), std::end(kBytes)));
  ASSERT_EQ(message->fds.size(), 1u);
  EXPECT_TRUE(closes_on_exec(message->fds[0].get()));
  ASSERT_EQ(::write(message->fds[0].get(), "x", 1), 1);
  char c = 0;
  EXPECT_EQ(::read(pipe->first.get(), &c, 1), 1);
  EXPECT_EQ(c, 'x');
}

TEST_P(PassingDescriptors, SurplusOnesAreClosed) {
  const std::vector<int> sent(16, 0);
  const int before = open_descriptors();
  ASSERT_TRUE(send_with_fds(sockets_.first.get(), kBytes, sent));
  {
    auto message = receive_with_fds(sockets_.second.get(), 16, 2);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->fds.size(), 2u);
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(PassingDescriptors, MayBeNone) {
  ASSERT_TRUE(send_with_fds(sockets_.first.get(), kBytes, {}));
  auto message = receive_with_fds(sockets_.second.get(), 16, 4);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->bytes.size(), 3u);
  EXPECT_TRUE(message->fds.empty());
}

TEST_P(PassingDescriptors, DroppedForAFullTableIsAnErrorAndLeaksNothing) {
  const int sent[] = {0, 0, 0, 0};
  ASSERT_TRUE(send_with_fds(sockets_.first.get(), kBytes, sent));
  Child child([&] {
    // Room for two of the four: what did arrive must be closed again.
    int lowest_free = ::dup(0);
    ::close(lowest_free);
    CHILD_EXPECT(testing::limit(RLIMIT_NOFILE, static_cast<rlim_t>(lowest_free) + 2));
    const auto message = receive_with_fds(sockets_.second.get(), 16, 4);
    CHILD_EXPECT(!message);
    CHILD_EXPECT(message.error().code() == EMFILE);
    const int free_now = ::dup(0);
    CHILD_EXPECT(free_now == lowest_free);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_P(PassingDescriptors, APeerThatClosedIsAnErrorOnBothSides) {
  sockets_.first.reset();
  const auto message = receive_with_fds(sockets_.second.get(), 16, 1);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), ECONNRESET);
  const auto sent = send_with_fds(sockets_.second.get(), kBytes, {});
  ASSERT_FALSE(sent) << "and no SIGPIPE";
  EXPECT_EQ(sent.error().code(), EPIPE);
}

TEST_P(PassingDescriptors, TooManyOrEmptyMessagesAreRefused) {
  const std::vector<int> many(17, 0);
  EXPECT_FALSE(send_with_fds(sockets_.first.get(), kBytes, many));
  EXPECT_FALSE(send_with_fds(sockets_.first.get(), {}, {}));
  const int bad[] = {-1};
  const auto sent = send_with_fds(sockets_.first.get(), kBytes, bad);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), EBADF);
}

INSTANTIATE_TEST_SUITE_P(Over, PassingDescriptors, ::testing::Values(SOCK_STREAM, SOCK_SEQPACKET),
                         [](const auto& test) { return test.param == SOCK_STREAM ? "Stream" : "Packets"; });

TEST(Fd, AMessageCutShortIsAnErrorAndLeaksNothing) {
  const FdPair sockets = socket_pair(SOCK_SEQPACKET);
  const int before = open_descriptors();
  const int sent[] = {0};
  ASSERT_TRUE(send_with_fds(sockets.first.get(), kBytes, sent));
  const auto message = receive_with_fds(sockets.second.get(), 2, 1);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), EMSGSIZE);
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace viaduct
