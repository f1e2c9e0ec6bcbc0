// Messages with descriptors: what arrives, what hostile senders attach, and that nothing leaks.
#include "base/socket_message.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/child.hpp"

namespace viaduct {
namespace {

using testing::Child;
using testing::open_descriptors;
using Step = MessageReader::Step;

const std::byte kBytes[] = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};

FdPair socket_pair(int type = SOCK_STREAM) {
  auto pair = make_socket_pair(type);
  EXPECT_TRUE(pair);
  return std::move(*pair);
}

bool closes_on_exec(int fd) {
  return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
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

TEST(SocketMessage, AMessageCutShortIsAnErrorAndLeaksNothing) {
  const FdPair sockets = socket_pair(SOCK_SEQPACKET);
  const int before = open_descriptors();
  const int sent[] = {0};
  ASSERT_TRUE(send_with_fds(sockets.first.get(), kBytes, sent));
  const auto message = receive_with_fds(sockets.second.get(), 2, 1);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), EMSGSIZE);
  EXPECT_EQ(open_descriptors(), before);
}

class ReadingMessages : public ::testing::Test {
 protected:
  void send(std::size_t from, std::size_t count, std::size_t descriptors = 0) {
    const std::vector<int> passed(descriptors, 0);
    ASSERT_TRUE(send_with_fds(sockets_.first.get(), std::span(text_).subspan(from, count), passed));
  }
  Step read() { return reader_.read(sockets_.second.get(), into_); }

  FdPair sockets_ = socket_pair();
  MessageReader reader_;
  std::array<std::byte, 8> text_{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                 std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
  std::array<std::byte, 8> into_{};
};

TEST_F(ReadingMessages, ComesInPartsAndNeverWaits) {
  EXPECT_EQ(read(), Step::pending);
  send(0, 3);
  EXPECT_EQ(read(), Step::pending);
  EXPECT_EQ(read(), Step::pending);
  send(3, 5);
  EXPECT_EQ(read(), Step::whole);
  EXPECT_EQ(into_, text_);
}

TEST_F(ReadingMessages, OneAfterTheOtherFromOneWrite) {
  std::array<std::byte, 20> both{};
  std::memcpy(both.data() + 8, text_.data(), 8);
  ASSERT_TRUE(send_with_fds(sockets_.first.get(), both, {}));
  ASSERT_EQ(read(), Step::whole);
  EXPECT_EQ(into_[0], std::byte{0});
  ASSERT_EQ(read(), Step::whole);
  EXPECT_EQ(into_, text_);
  EXPECT_EQ(read(), Step::pending) << "the rest is half a message";
}

TEST_F(ReadingMessages, ADescriptorMayComeWithAnyPart) {
  const int before = open_descriptors();
  send(0, 3, 1);
  EXPECT_EQ(read(), Step::pending);
  send(3, 5);
  ASSERT_EQ(read(), Step::whole);
  {
    const Fd fd = reader_.take_fd();
    EXPECT_TRUE(fd);
    EXPECT_TRUE(closes_on_exec(fd.get()));
  }
  EXPECT_FALSE(reader_.take_fd()) << "it is taken once";
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ReadingMessages, SurplusDescriptorsAreClosed) {
  const int before = open_descriptors();
  send(0, 2, 5);
  send(2, 2, kMostPassedFds);
  send(4, 4);
  ASSERT_EQ(read(), Step::whole);
  EXPECT_EQ(open_descriptors(), before + 1);
  send(0, 8);
  ASSERT_EQ(read(), Step::whole);
  EXPECT_FALSE(reader_.take_fd()) << "it belonged to the message before";
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ReadingMessages, MoreDescriptorsThanFitAreNoticedAndClosed) {
  const int before = open_descriptors();
  const std::vector<int> passed(200, 0);
  iovec io{text_.data(), text_.size()};
  std::vector<char> control(CMSG_SPACE(200 * sizeof(int)));
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(200 * sizeof(int));
  std::memcpy(CMSG_DATA(part), passed.data(), 200 * sizeof(int));
  ASSERT_EQ(::sendmsg(sockets_.first.get(), &message, 0), 8);
  {
    Attached with;
    ASSERT_EQ(receive_part(sockets_.second.get(), into_, 0, with), 8);
    EXPECT_TRUE(with.fds_dropped);
    EXPECT_GE(with.fds.size(), kMostPassedFds);
    EXPECT_LT(with.fds.size(), 2 * kMostPassedFds);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ReadingMessages, APeerThatGoesInTheMiddleIsSeen) {
  const int before = open_descriptors();
  {
    MessageReader reader;
    send(0, 3, 1);
    EXPECT_EQ(reader.read(sockets_.second.get(), into_), Step::pending);
    sockets_.first.reset();
    EXPECT_EQ(reader.read(sockets_.second.get(), into_), Step::closed);
  }
  EXPECT_EQ(open_descriptors(), before - 1) << "what came with the part is closed";
}

TEST_F(ReadingMessages, WhatIsNoSocketFails) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  EXPECT_EQ(reader_.read(pipe->first.get(), into_), Step::failed);
  EXPECT_EQ(errno, ENOTSOCK);
}

TEST_F(ReadingMessages, TheKernelSaysWhoSent) {
  send(0, 8);
  ASSERT_EQ(read(), Step::whole);
  EXPECT_FALSE(reader_.sender()) << "nobody asked for it";
  const int on = 1;
  ASSERT_EQ(::setsockopt(sockets_.second.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
  const int passed[] = {0};
  ASSERT_EQ(send_part(sockets_.first.get(), text_, passed, 0, Credentials::ours), 8);
  ASSERT_EQ(read(), Step::whole);
  ASSERT_TRUE(reader_.sender());
  EXPECT_EQ(reader_.sender()->pid, ::getpid());
  EXPECT_EQ(reader_.sender()->uid, ::geteuid());
  EXPECT_TRUE(reader_.take_fd()) << "both come with one message";
}

}  // namespace
}  // namespace viaduct
