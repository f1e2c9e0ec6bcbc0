// Messages with and without tags: every way to send and to receive them, and what goes wrong.
#include <thread>

#include "fabric/side.hpp"

namespace viaduct::fabric::testing {
namespace {

class FabricMessages : public ::testing::Test {
 protected:
  HangGuard guard_;
  Side left_, right_;
  fi_addr_t to_right_ = left_.know(right_), to_left_ = right_.know(left_);
  int context_[8] = {};
};

TEST_F(FabricMessages, OfAllSizesArrive) {
  for (const std::size_t size : {0, 1, 64, 4096, 32768, 32769, 1 << 20, 9 << 20}) {
    const std::vector<char> bytes = pattern(size, 1);
    std::vector<char> got(size + 8);
    FI_OK(fi_recv(right_.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, &context_[0]));
    FI_OK(fi_send(left_.ep, bytes.data(), size, nullptr, to_right_, &context_[1]));
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    const fi_cq_tagged_entry received = right_.next(&left_, &source);
    EXPECT_EQ(received.op_context, &context_[0]);
    EXPECT_EQ(received.len, size);
    EXPECT_EQ(received.flags, std::uint64_t{FI_RECV | FI_MSG});
    EXPECT_EQ(source, to_left_);
    EXPECT_EQ(std::memcmp(got.data(), bytes.data(), size), 0) << size;
    EXPECT_EQ(left_.next(&right_).op_context, &context_[1]);
  }
  EXPECT_EQ(fi_cntr_read(left_.sends), 8u);
  EXPECT_EQ(fi_cntr_read(right_.receives), 8u);
}

TEST_F(FabricMessages, TagsChooseTheReceive) {
  char one[8] = {}, two[8] = {}, any[8] = {};
  FI_OK(fi_trecv(right_.ep, one, 8, nullptr, FI_ADDR_UNSPEC, 0x11, 0, &context_[1]));
  FI_OK(fi_trecv(right_.ep, two, 8, nullptr, FI_ADDR_UNSPEC, 0x22, 0, &context_[2]));
  FI_OK(fi_trecv(right_.ep, any, 8, nullptr, FI_ADDR_UNSPEC, 0x30, 0x0f, &context_[3]));
  FI_OK(fi_tsend(left_.ep, "second", 7, nullptr, to_right_, 0x22, nullptr));
  FI_OK(fi_tsend(left_.ep, "third", 6, nullptr, to_right_, 0x3b, nullptr));
  FI_OK(fi_tsend(left_.ep, "first", 6, nullptr, to_right_, 0x11, nullptr));
  fi_cq_tagged_entry got = right_.next(&left_);
  EXPECT_EQ(got.op_context, &context_[2]);
  EXPECT_EQ(got.tag, 0x22u);
  got = right_.next(&left_);
  EXPECT_EQ(got.op_context, &context_[3]);
  EXPECT_EQ(got.tag, 0x3bu);
  EXPECT_EQ(right_.next(&left_).op_context, &context_[1]);
  EXPECT_STREQ(one, "first");
  EXPECT_STREQ(two, "second");
  EXPECT_STREQ(any, "third");
}

TEST_F(FabricMessages, WithAndWithoutTagsDoNotMix) {
  char tagged[8] = {}, plain[8] = {};
  FI_OK(fi_trecv(right_.ep, tagged, 8, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL, &context_[1]));
  FI_OK(fi_send(left_.ep, "plain", 6, nullptr, to_right_, nullptr));
  FI_OK(fi_recv(right_.ep, plain, 8, nullptr, FI_ADDR_UNSPEC, &context_[2]));
  EXPECT_EQ(right_.next(&left_).op_context, &context_[2]);
  EXPECT_STREQ(plain, "plain");
  FI_OK(fi_tsend(left_.ep, "tag", 4, nullptr, to_right_, 5, nullptr));
  EXPECT_EQ(right_.next(&left_).op_context, &context_[1]);
}

TEST_F(FabricMessages, ADirectedReceiveTakesFromThatPeerOnly) {
  Side third;
  const fi_addr_t from_third = third.know(right_), third_there = right_.know(third);
  char a[8] = {}, b[8] = {};
  FI_OK(fi_trecv(right_.ep, a, 8, nullptr, third_there, 1, 0, &context_[1]));
  FI_OK(fi_trecv(right_.ep, b, 8, nullptr, to_left_, 1, 0, &context_[2]));
  FI_OK(fi_tsend(left_.ep, "left", 5, nullptr, to_right_, 1, nullptr));
  EXPECT_EQ(right_.next(&left_).op_context, &context_[2]);
  FI_OK(fi_tsend(third.ep, "third", 6, nullptr, from_third, 1, nullptr));
  EXPECT_EQ(right_.next(&third).op_context, &context_[1]);
  EXPECT_STREQ(a, "third");
  EXPECT_STREQ(b, "left");
}

TEST_F(FabricMessages, PiecesAndDataTravel) {
  char first[] = "ab", second[] = "cdef", got[2][3] = {};
  const iovec out[] = {{first, 2}, {second, 4}};
  const iovec in[] = {{got[0], 3}, {got[1], 3}};
  FI_OK(fi_trecvv(right_.ep, in, nullptr, 2, FI_ADDR_UNSPEC, 9, 0, nullptr));
  fi_msg_tagged message{};
  message.msg_iov = out;
  message.iov_count = 2;
  message.addr = to_right_;
  message.tag = 9;
  message.data = 0xfeedfacecafebeefULL;
  FI_OK(fi_tsendmsg(left_.ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION));
  const fi_cq_tagged_entry entry = right_.next(&left_);
  EXPECT_EQ(entry.data, 0xfeedfacecafebeefULL);
  EXPECT_NE(entry.flags & FI_REMOTE_CQ_DATA, 0u);
  EXPECT_EQ(std::string(got[0], 3) + std::string(got[1], 3), "abcdef");
}

TEST_F(FabricMessages, InjectedBytesAreTheProgramsAtOnce) {
  char bytes[64] = "hello";
  for (int i = 0; i < 10; ++i) {
    bytes[6] = static_cast<char>(i);
    FI_OK(fi_tinjectdata(left_.ep, bytes, sizeof bytes, 40 + i, to_right_, 3));
  }
  std::memset(bytes, 0, sizeof bytes);
  for (int i = 0; i < 10; ++i) {
    char got[64];
    FI_OK(fi_trecv(right_.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, 3, 0, nullptr));
    EXPECT_EQ(right_.next(&left_).data, 40u + i);
    EXPECT_EQ(got[6], i);
    EXPECT_STREQ(got, "hello");
  }
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_read(left_.cq, &entry, 1), -FI_EAGAIN) << "nobody asked for completions";
  std::vector<char> too_long(4097);
  EXPECT_EQ(fi_inject(left_.ep, too_long.data(), too_long.size(), to_right_), -FI_EMSGSIZE);
}

TEST_F(FabricMessages, TooLongOnesAreCutAndSaySo) {
  for (const std::size_t size : {100, 100'000}) {
    const std::vector<char> bytes = pattern(size, 2);
    char got[10];
    FI_OK(fi_trecv(right_.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, 1, 0, &context_[0]));
    FI_OK(fi_tsend(left_.ep, bytes.data(), size, nullptr, to_right_, 1, nullptr));
    const fi_cq_err_entry error = right_.next_error(&left_);
    EXPECT_EQ(error.err, FI_ETRUNC);
    EXPECT_EQ(error.op_context, &context_[0]);
    EXPECT_EQ(error.olen, size - sizeof got);
    EXPECT_EQ(std::memcmp(got, bytes.data(), sizeof got), 0);
    (void)left_.next(&right_);
  }
}

TEST_F(FabricMessages, ACancelledReceiveTakesNothing) {
  char got[8] = {}, other[8] = {};
  FI_OK(fi_trecv(right_.ep, got, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &context_[1]));
  FI_OK(fi_cancel(&right_.ep->fid, &context_[1]));
  const fi_cq_err_entry error = right_.next_error();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &context_[1]);
  EXPECT_EQ(fi_cancel(&right_.ep->fid, &context_[1]), -FI_ENOENT);
  FI_OK(fi_trecv(right_.ep, other, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &context_[2]));
  FI_OK(fi_tsend(left_.ep, "x", 2, nullptr, to_right_, 1, nullptr));
  EXPECT_EQ(right_.next(&left_).op_context, &context_[2]);
  EXPECT_STREQ(other, "x");
  EXPECT_STREQ(got, "");
}

TEST_F(FabricMessages, PeekedMessagesStayAndClaimedOnesAreReserved) {
  fi_context context{};
  fi_msg_tagged look{};
  look.addr = FI_ADDR_UNSPEC;
  look.tag = 7;
  look.context = &context;
  FI_OK(fi_trecvmsg(right_.ep, &look, FI_PEEK | FI_COMPLETION));
  EXPECT_EQ(right_.next_error().err, FI_ENOMSG);

  FI_OK(fi_tsend(left_.ep, "seven", 6, nullptr, to_right_, 7, nullptr));
  FI_OK(fi_tsend(left_.ep, "eight", 6, nullptr, to_right_, 7, nullptr));
  (void)left_.next(&right_);
  (void)left_.next(&right_);
  fi_cq_tagged_entry seen{};
  fi_cq_err_entry not_yet{};
  do {  // it may still be on its way
    FI_OK(fi_trecvmsg(right_.ep, &look, FI_PEEK | FI_COMPLETION));
  } while (fi_cq_readerr(right_.cq, &not_yet, 0) == 1);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(fi_cq_read(right_.cq, &seen, 1), 1);
    EXPECT_EQ(seen.len, 6u);
    EXPECT_EQ(seen.tag, 7u);
    if (i == 0) FI_OK(fi_trecvmsg(right_.ep, &look, FI_PEEK | FI_COMPLETION));
  }
  FI_OK(fi_trecvmsg(right_.ep, &look, FI_PEEK | FI_CLAIM | FI_COMPLETION));
  (void)right_.next(&left_);
  char first[8] = {}, second[8] = {};
  FI_OK(fi_trecv(right_.ep, second, 8, nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr));
  (void)right_.next(&left_);
  EXPECT_STREQ(second, "eight") << "the first one is claimed";
  const iovec into{first, sizeof first};
  look.msg_iov = &into;
  look.iov_count = 1;
  FI_OK(fi_trecvmsg(right_.ep, &look, FI_CLAIM | FI_COMPLETION));
  EXPECT_EQ(right_.next(&left_).len, 6u);
  EXPECT_STREQ(first, "seven");
}

TEST_F(FabricMessages, ABufferForSeveralMessagesIsGivenBackWhenItIsFull) {
  const std::size_t least = 32;
  FI_OK(fi_setopt(&right_.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  std::vector<char> buffer(100);
  const iovec into{buffer.data(), buffer.size()};
  fi_msg message{};
  message.msg_iov = &into;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.context = &context_[0];
  FI_OK(fi_recvmsg(right_.ep, &message, FI_MULTI_RECV | FI_COMPLETION));
  std::size_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const std::vector<char> bytes = pattern(20, i);
    FI_OK(fi_send(left_.ep, bytes.data(), bytes.size(), nullptr, to_right_, nullptr));
    const fi_cq_tagged_entry entry = right_.next(&left_);
    EXPECT_EQ(entry.op_context, &context_[0]);
    EXPECT_EQ(entry.buf, buffer.data() + at);
    EXPECT_EQ(std::memcmp(entry.buf, bytes.data(), bytes.size()), 0);
    EXPECT_EQ((entry.flags & FI_MULTI_RECV) != 0, i == 3) << i;
    at += entry.len;
    (void)left_.next(&right_);
  }
}

TEST_F(FabricMessages, OrderIsKeptBetweenTwo) {
  constexpr int kMany = 500;
  std::vector<std::vector<char>> sent;
  for (int i = 0; i < kMany; ++i) sent.push_back(pattern(i % 7 == 0 ? 40'000 : 10, i));
  for (int i = 0; i < kMany; ++i)
    FI_OK(fi_tsend(left_.ep, sent[i].data(), sent[i].size(), nullptr, to_right_, 1, nullptr));
  for (int i = 0; i < kMany; ++i) {
    std::vector<char> got(40'000);
    FI_OK(fi_trecv(right_.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr));
    const fi_cq_tagged_entry entry = right_.next(&left_);
    ASSERT_EQ(entry.len, sent[i].size()) << i;
    ASSERT_EQ(std::memcmp(got.data(), sent[i].data(), entry.len), 0) << i;
  }
}

TEST_F(FabricMessages, DeliveryCompleteMeansReceived) {
  fi_msg message{};
  char bytes[] = "x", got[4] = {};
  const iovec out{bytes, 2};
  message.msg_iov = &out;
  message.iov_count = 1;
  message.addr = to_right_;
  FI_OK(fi_sendmsg(left_.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  fi_cq_tagged_entry entry;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(fi_cq_read(left_.cq, &entry, 1), -FI_EAGAIN);
    EXPECT_EQ(fi_cq_read(right_.cq, &entry, 1), -FI_EAGAIN);
  }
  FI_OK(fi_recv(right_.ep, got, 4, nullptr, FI_ADDR_UNSPEC, nullptr));
  (void)right_.next(&left_);
  (void)left_.next(&right_);
}

TEST_F(FabricMessages, ToOneself) {
  const fi_addr_t self = left_.know(left_);
  char got[8] = {};
  FI_OK(fi_tsend(left_.ep, "me", 3, nullptr, self, 4, &context_[0]));
  FI_OK(fi_trecv(left_.ep, got, 8, nullptr, self, 4, 0, &context_[1]));
  (void)left_.next();
  (void)left_.next();
  EXPECT_STREQ(got, "me");
}

TEST(FabricEndpoint, SelectiveCompletionTellsWhatWasAskedFor) {
  HangGuard guard;
  Side left({.bind_flags = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION}), right;
  const fi_addr_t to = left.know(right);
  FI_OK(fi_send(left.ep, "a", 2, nullptr, to, nullptr));
  char bytes[] = "b";
  const iovec out{bytes, 2};
  int told = 0;
  fi_msg message{};
  message.msg_iov = &out;
  message.iov_count = 1;
  message.addr = to;
  message.context = &told;
  FI_OK(fi_sendmsg(left.ep, &message, FI_COMPLETION));
  EXPECT_EQ(left.next(&right).op_context, &told);
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_read(left.cq, &entry, 1), -FI_EAGAIN);
  EXPECT_EQ(fi_cntr_read(left.sends), 2u);
}

TEST(FabricEndpoint, AQueueIsSleptOn) {
  HangGuard guard;
  Side left, right({.wait = FI_WAIT_UNSPEC});
  const fi_addr_t to = left.know(right);
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_sread(right.cq, &entry, 1, nullptr, 20), -FI_EAGAIN);
  char got[4];
  FI_OK(fi_recv(right.ep, got, 4, nullptr, FI_ADDR_UNSPEC, nullptr));
  std::thread sender([&] {
    ::usleep(50'000);
    FI_OK(fi_send(left.ep, "x", 2, nullptr, to, nullptr));
    while (fi_cq_read(left.cq, &entry, 0) == -FI_EAGAIN) continue;
  });
  fi_cq_tagged_entry received;
  EXPECT_EQ(fi_cq_sread(right.cq, &received, 1, nullptr, -1), 1);
  sender.join();
  std::thread signaller([&] {
    ::usleep(50'000);
    FI_OK(fi_cq_signal(right.cq));
  });
  EXPECT_EQ(fi_cq_sread(right.cq, &received, 1, nullptr, -1), -FI_EAGAIN);
  signaller.join();
}

TEST(FabricEndpoint, TwoProcessesTalk) {
  HangGuard guard;
  Side server;
  const std::vector<char> name = server.name();
  Child client([&] {
    Side mine;
    const fi_addr_t to = mine.know(name);
    std::vector<char> bytes = pattern(300'000, 3), back(300'000);
    const std::vector<char> own = mine.name();
    CHILD_EXPECT(fi_send(mine.ep, own.data(), own.size(), nullptr, to, nullptr) == 0);
    CHILD_EXPECT(fi_trecv(mine.ep, back.data(), back.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, &back) == 0);
    CHILD_EXPECT(fi_tsend(mine.ep, bytes.data(), bytes.size(), nullptr, to, 1, nullptr) == 0);
    while (mine.next().op_context != &back) continue;
    return back == bytes ? 0 : 1;
  });
  char peer[64];
  std::vector<char> got(300'000);
  FI_OK(fi_recv(server.ep, peer, sizeof peer, nullptr, FI_ADDR_UNSPEC, nullptr));
  const std::size_t length = server.next().len;
  const fi_addr_t to = server.know({peer, peer + length});
  FI_OK(fi_trecv(server.ep, got.data(), got.size(), nullptr, to, 1, 0, nullptr));
  (void)server.next();
  FI_OK(fi_tsend(server.ep, got.data(), got.size(), nullptr, to, 2, nullptr));
  (void)server.next();
  EXPECT_EQ(client.wait(), 0);
}

TEST(FabricEndpoint, AKilledPeerEndsWhatIsSentToIt) {
  HangGuard guard;
  Side left;
  const auto names = make_pipe();
  Child victim([&] {
    Side mine;
    const std::vector<char> name = mine.name();
    CHILD_EXPECT(::write(names->second.get(), name.data(), name.size()) == static_cast<ssize_t>(name.size()));
    for (;;) (void)fi_cq_read(mine.cq, nullptr, 0);
  });
  std::vector<char> name(sizeof(sockaddr_in));
  ASSERT_EQ(::read(names->first.get(), name.data(), name.size()), static_cast<ssize_t>(name.size()));
  const fi_addr_t to = left.know(name);
  std::vector<char> bytes(1 << 20);
  FI_OK(fi_send(left.ep, "x", 2, nullptr, to, nullptr));
  (void)left.next();
  FI_OK(fi_send(left.ep, bytes.data(), bytes.size(), nullptr, to, &bytes));  // nobody receives it
  victim.kill();
  const fi_cq_err_entry error = left.next_error();
  EXPECT_EQ(error.op_context, &bytes);
  EXPECT_TRUE(error.err == FI_ECONNABORTED || error.err == FI_EHOSTUNREACH) << fi_strerror(error.err);
}

TEST(FabricInfo, HintsThatCannotBeMetFindNothing) {
  use_own_provider();
  const auto fits = [](auto change) {
    fi_info* const hints = fi_allocinfo();
    fi_info* found = nullptr;
    change(*hints);
    const int said = fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &found);
    fi_freeinfo(hints);
    if (found != nullptr) fi_freeinfo(found);
    return said == 0;
  };
  EXPECT_TRUE(fits([](fi_info&) {}));
  EXPECT_TRUE(fits([](fi_info& hints) { hints.ep_attr->type = FI_EP_RDM; }));
  EXPECT_FALSE(fits([](fi_info& hints) { hints.ep_attr->type = FI_EP_MSG; }));
  EXPECT_FALSE(fits([](fi_info& hints) { hints.ep_attr->type = FI_EP_DGRAM; }));
  EXPECT_FALSE(fits([](fi_info& hints) { hints.caps = FI_MULTICAST; }));
  EXPECT_FALSE(fits([](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_STRICT; }));
  EXPECT_FALSE(fits([](fi_info& hints) { hints.tx_attr->inject_size = 1 << 20; }));
  EXPECT_FALSE(fits([](fi_info& hints) { hints.domain_attr->data_progress = FI_PROGRESS_AUTO; }));
  EXPECT_TRUE(fits([](fi_info& hints) { hints.domain_attr->threading = FI_THREAD_DOMAIN; }));
  EXPECT_TRUE(fits([](fi_info& hints) { hints.mode = FI_CONTEXT | FI_CONTEXT2; }));
}

}  // namespace
}  // namespace viaduct::fabric::testing
