// Several processes on one host: a soak, deaths in every state, fork, many endpoints, threads.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "mx/api_pair.hpp"
#include "mx/soak.hpp"

namespace viaduct::mx::testing {
namespace {

using viaduct::testing::Child;
using viaduct::testing::HangGuard;

std::uint32_t free_numbers() {
  return 1'000 + static_cast<std::uint32_t>(::getpid()) % 600 * 100;
}

TEST(MxProcesses, ASoakOfRandomMessages) {
  HangGuard guard;
  const SoakPlan plan = soak_plan(4, 250);
  const std::uint32_t first = free_numbers(), board = loopback_board();
  const std::uint64_t nic = loopback_nic();
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < plan.ranks; ++rank)
    ranks.push_back(
        std::make_unique<Child>([&, rank] { return soak_rank(plan, rank, board, first, [&](int) { return nic; }); }));
  for (auto& rank : ranks) EXPECT_EQ(rank->wait(), 0) << "seed " << plan.seed;
}

// What a survivor has under way with a process that is killed ends in bounded time, and says so.
class MxDeath : public Mx {
 protected:
  // The victim connects and does `what`, then sits there.
  template <class What>
  std::unique_ptr<Child> victim(What what) {
    const std::uint32_t number = number_of(a), board = loopback_board();
    const std::uint64_t nic = loopback_nic();
    return std::make_unique<Child>([=] {
      (void)mx_init();
      mx_set_error_handler(MX_ERRORS_RETURN);
      mx_endpoint_t own;
      CHILD_EXPECT(mx_open_endpoint(board, MX_ANY_ENDPOINT, 0, nullptr, 0, &own) == MX_SUCCESS);
      mx_endpoint_addr_t there;
      CHILD_EXPECT(mx_connect(own, nic, number, 0, 30000, &there) == MX_SUCCESS);
      Buffer hello(10, 1);
      mx_request_t request = send(own, there, hello, 1);
      what(own, there);
      mx_status_t status;
      std::uint32_t result;
      (void)mx_wait(own, &request, MX_INFINITE, &status, &result);
      Buffer in(10);
      request = receive(own, in, 99);
      (void)mx_wait(own, &request, MX_INFINITE, &status, &result);
      return 0;
    });
  }
  mx_endpoint_addr_t meet() {
    Buffer in(10);
    return wait(a, receive(a, in, 1)).source;
  }
  HangGuard guard_;
};

TEST_F(MxDeath, SendsToItEnd) {
  a = open_endpoint();
  auto other = victim([](mx_endpoint_t, mx_endpoint_addr_t) {});
  const mx_endpoint_addr_t there = meet();
  Buffer large(5'000'000, 1), small(100, 1), medium(32768, 2);
  std::vector<mx_request_t> sends{send(a, there, large, 5), send_until_matched(a, there, small, 6)};
  for (int i = 0; i < 100; ++i) sends.push_back(send(a, there, medium, 7));  // more than there is room for
  other->kill();
  EXPECT_EQ(wait(a, sends[0]).code, MX_STATUS_ENDPOINT_UNREACHABLE);
  EXPECT_EQ(wait(a, sends[1]).code, MX_STATUS_ENDPOINT_UNREACHABLE);
  for (std::size_t i = 2; i < sends.size(); ++i) {
    const mx_status_code_t code = wait(a, sends[i]).code;
    EXPECT_TRUE(code == MX_STATUS_SUCCESS || code == MX_STATUS_ENDPOINT_UNREACHABLE) << code;
  }
}

TEST_F(MxDeath, WhatItHasSentIsReceivedAndTheRestEnds) {
  a = open_endpoint();
  auto other = victim([](mx_endpoint_t own, mx_endpoint_addr_t there) {
    static Buffer small(500, 3), large(500'000, 4);
    (void)send(own, there, small, 5);
    (void)send(own, there, large, 6);
  });
  (void)meet();
  probe(a, 6);
  other->kill();
  (void)other->wait();
  Buffer in(1000), rest(500'000);
  EXPECT_EQ(wait(a, receive(a, in, 5)).code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(in.holds(3, 500));
  // The long one was still there: nobody can get it now, and nobody waits for it in vain.
  mx_request_t receiving = receive(a, rest, 6);
  mx_status_t status;
  std::uint32_t result = 0;
  ASSERT_EQ(mx_wait(a, &receiving, 300, &status, &result), MX_SUCCESS);
  if (result == 0) {
    ASSERT_EQ(mx_cancel(a, &receiving, &result), MX_SUCCESS);
    EXPECT_EQ(result, 1u);
  } else {
    EXPECT_TRUE(status.code == MX_STATUS_ENDPOINT_UNREACHABLE || status.code == MX_STATUS_ABORTED) << status.code;
  }
}

TEST_F(MxDeath, AReceiveInTheMiddleOfItEnds) {
  ::setenv("VIADUCT_COPY_CMA", "off", 1);  // then it has to be pushed
  a = open_endpoint();
  for (int round = 0; round < 5; ++round) {
    auto other = victim([](mx_endpoint_t own, mx_endpoint_addr_t there) {
      static Buffer large(64'000'000, 4);
      (void)send(own, there, large, 6);
    });
    (void)meet();
    probe(a, 6);
    Buffer in(64'000'000);
    mx_request_t receiving = receive(a, in, 6);
    mx_status_t status;
    std::uint32_t result = 0;
    for (int i = 0; i < 1 + round * 200 && result == 0; ++i)
      ASSERT_EQ(mx_test(a, &receiving, &status, &result), MX_SUCCESS);
    other->kill();
    if (result == 0) status = wait(a, receiving);
    EXPECT_TRUE(status.code == MX_STATUS_ENDPOINT_UNREACHABLE || status.code == MX_STATUS_SUCCESS ||
                status.code == MX_STATUS_ABORTED)
        << status.code;
  }
  ::unsetenv("VIADUCT_COPY_CMA");
}

TEST_F(MxDeath, OneThatIsOpenedAgainIsFoundAgain) {
  a = open_endpoint();
  const std::uint32_t number = free_numbers() + 50, board = loopback_board();
  const auto echo = [=] {
    (void)mx_init();
    mx_endpoint_t own;
    CHILD_EXPECT(mx_open_endpoint(board, number, 0, nullptr, 0, &own) == MX_SUCCESS);
    Buffer bytes(10);
    const mx_status_t status = wait(own, receive(own, bytes, 1), 30000);
    (void)wait(own, send(own, status.source, bytes, 2));
    mx_request_t never = receive(own, bytes, 99);
    mx_status_t nothing;
    std::uint32_t result;
    (void)mx_wait(own, &never, MX_INFINITE, &nothing, &result);
    return 0;
  };
  std::uint32_t last_session = 0;
  for (int round = 0; round < 5; ++round) {
    Child other(echo);
    mx_endpoint_addr_t there;
    Buffer out(10, 7), in(10);
    mx_status_t sent{};
    do {  // the first may still go to the one before
      ASSERT_EQ(mx_connect(a, loopback_nic(), number, 0, 20000, &there), MX_SUCCESS);
      sent = wait(a, send_until_matched(a, there, out, 1));
    } while (sent.code != MX_STATUS_SUCCESS);
    EXPECT_EQ(wait(a, receive(a, in, 2)).code, MX_STATUS_SUCCESS);
    EXPECT_TRUE(in.holds(7, 10));
    std::uint32_t session = 0;
    EXPECT_EQ(mx_decompose_endpoint_addr2(there, nullptr, nullptr, &session), MX_SUCCESS);
    EXPECT_NE(session, last_session);
    last_session = session;
    other.kill();
    (void)other.wait();
  }
}

TEST_F(MxDeath, AForkedChildHasNoEndpoints) {
  open_both();
  Child child([&] {
    mx_status_t status;
    std::uint32_t result = 0;
    Buffer in(10);
    mx_segment_t segment{in.bytes.data(), 10};
    mx_request_t request;
    CHILD_EXPECT(mx_irecv(b, &segment, 1, 1, MX_MATCH_MASK_NONE, nullptr, &request) == MX_BAD_ENDPOINT);
    CHILD_EXPECT(mx_isend(a, &segment, 1, to_b, 1, nullptr, &request) == MX_BAD_ENDPOINT);
    CHILD_EXPECT(mx_iprobe(b, 1, MX_MATCH_MASK_NONE, &status, &result) == MX_BAD_ENDPOINT);
    mx_endpoint_t own;  // but it may have its own
    CHILD_EXPECT(mx_open_endpoint(loopback_board(), MX_ANY_ENDPOINT, 0, nullptr, 0, &own) == MX_SUCCESS);
    CHILD_EXPECT(mx_close_endpoint(own) == MX_SUCCESS);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  Buffer out(100000, 1), in(100000);
  const mx_request_t sending = send(a, to_b, out, 1);
  EXPECT_EQ(wait(b, receive(b, in, 1)).code, MX_STATUS_SUCCESS);
  EXPECT_EQ(wait(a, sending).code, MX_STATUS_SUCCESS);
  EXPECT_TRUE(in.holds(1, 100000));
}

TEST_F(Mx, TwoHundredAndFiftySixEndpoints) {
  constexpr std::size_t kMany = viaduct::testing::kSanitized ? 64 : 256;
  std::vector<mx_endpoint_t> all;
  for (std::size_t i = 0; i < kMany; ++i) all.push_back(open_endpoint());
  Buffer out(50, 2), in(50);
  for (std::size_t i = 0; i < kMany; ++i) {
    mx_endpoint_addr_t next;
    ASSERT_EQ(mx_connect(all[i], loopback_nic(), number_of(all[(i + 1) % kMany]), 0, 20000, &next), MX_SUCCESS);
    wait(all[i], send(all[i], next, out, i));
    EXPECT_EQ(wait(all[(i + 1) % kMany], receive(all[(i + 1) % kMany], in, i)).code, MX_STATUS_SUCCESS);
  }
}

TEST_F(Mx, SeveralThreadsUseOneEndpoint) {
  constexpr int kThreads = 4, kRounds = viaduct::testing::rounds(400);
  HangGuard guard;
  open_both();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Buffer out(1000u << (3 * t), static_cast<std::uint8_t>(t));
      for (int i = 0; i < kRounds; ++i) EXPECT_EQ(wait(a, send(a, to_b, out, t)).code, MX_STATUS_SUCCESS);
    });
    threads.emplace_back([&, t] {
      const std::size_t size = 1000u << (3 * t);
      for (int i = 0; i < kRounds; ++i) {
        Buffer in(size, 77);
        EXPECT_EQ(wait(b, receive(b, in, t)).code, MX_STATUS_SUCCESS);
        ASSERT_TRUE(in.holds(static_cast<std::uint8_t>(t), size));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Each message wakes the one that waits for it, whoever looks at the channel.
TEST_F(Mx, ThreadsWaitForTheirOwn) {
  constexpr int kThreads = 6, kRounds = viaduct::testing::rounds(200);
  HangGuard guard;
  open_both();
  std::vector<std::thread> waiters;
  for (int t = 0; t < kThreads; ++t)
    waiters.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        Buffer in(8);
        EXPECT_EQ(wait(b, receive(b, in, t), 30000).code, MX_STATUS_SUCCESS);
      }
    });
  Buffer out(8, 1);
  for (int i = 0; i < kRounds; ++i) {
    for (int t = 0; t < kThreads; ++t) wait(a, send_until_matched(a, to_b, out, (t + i) % kThreads), 30000);
    if (i % 16 == 0) ::usleep(2000);  // so that they sleep
  }
  for (std::thread& thread : waiters) thread.join();
}

TEST_F(Mx, SendersWaitWhereNobodyReceives) {
  mx_param_t parameter{};
  parameter.key = MX_PARAM_UNEXP_QUEUE_MAX;
  parameter.val.unexp_queue_max = 200'000;
  open_both({parameter});
  constexpr int kMany = 400;
  Buffer out(10'000, 1), in(10'000), other(10, 2), small(10);
  std::vector<mx_request_t> sends;
  for (int i = 0; i < kMany; ++i) sends.push_back(send(a, to_b, out, 1));
  for (int i = 0; i < 2000; ++i) mx_progress(b), mx_progress(a);
  std::uint32_t buffered = 0, all = 0;
  for (mx_request_t& one : sends) {
    EXPECT_EQ(mx_ibuffered(a, &one, &buffered), MX_SUCCESS);
    all += buffered;
  }
  EXPECT_LT(all, 150u) << "it kept more than it was to";
  EXPECT_GT(all, 15u);
  for (int i = 0; i < kMany; ++i) EXPECT_EQ(wait(b, receive(b, in, 1)).code, MX_STATUS_SUCCESS);
  for (const mx_request_t one : sends) EXPECT_EQ(wait(a, one).code, MX_STATUS_SUCCESS);
  wait(a, send(a, to_b, other, 2));
  EXPECT_EQ(wait(b, receive(b, small, 2)).code, MX_STATUS_SUCCESS);
}

}  // namespace
}  // namespace viaduct::mx::testing
