// Many threads on one adapter: everybody polls, waits and posts at once.
#include <algorithm>
#include <thread>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

// Pairs of threads that play ping-pong over VIs of one adapter, some polling, some waiting.
TEST(ViplThreads, PairsOverOneAdapter) {
  HangGuard guard;
  constexpr int kPairs = 3;
  const int rounds = kSanitized ? 200 : 1000;
  Program program;
  std::vector<std::thread> threads;
  std::atomic<int> faults{0};
  for (int pair = 0; pair < kPairs; ++pair) {
    const VIP_VI_HANDLE ends[2] = {program.make_vi(), program.make_vi()};
    connect_here(program, ends[0], ends[1]);
    for (int side = 0; side < 2; ++side) {
      const std::size_t index = static_cast<std::size_t>(pair * 2 + side) * 2;
      ASSERT_EQ(program.post_receive(ends[side], index, index * 64, 64), VIP_SUCCESS);
      threads.emplace_back([&, pair, side, index, vi = ends[side]] {
        const auto finish = [&](bool receive) {
          VIP_DESCRIPTOR* descriptor = nullptr;
          VIP_RETURN result = VIP_NOT_DONE;
          if (pair == 0 && side == 0) {  // polling; yields because there are more threads than processors
            while ((result = receive ? VipRecvDone(vi, &descriptor) : VipSendDone(vi, &descriptor)) == VIP_NOT_DONE)
              std::this_thread::yield();
          } else {
            result = receive ? VipRecvWait(vi, VIP_INFINITE, &descriptor) : VipSendWait(vi, VIP_INFINITE, &descriptor);
          }
          if (result != VIP_SUCCESS) ++faults;
          return descriptor;
        };
        for (int i = 0; i < rounds; ++i) {
          if (side == 1) (void)program.post_receive(vi, finish(true));
          (void)program.post_send(vi, index + 1, index * 64, 16);
          (void)finish(false);
          if (side == 0) (void)program.post_receive(vi, finish(true));
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(faults, 0);
}

// One thread waits for the completion queue, others send; nobody else looks.
TEST(ViplThreads, OneWaitsOthersSend) {
  HangGuard guard;
  constexpr int kSenders = 4;
  const int each = kSanitized ? 100 : 500;
  Program program;
  const VIP_CQ_HANDLE cq = program.make_cq(16);
  std::vector<VIP_VI_HANDLE> from, to;
  for (int i = 0; i < kSenders; ++i) {
    from.push_back(program.make_vi());
    to.push_back(program.make_vi({.receive_cq = cq}));
    connect_here(program, from.back(), to.back());
    for (std::size_t j = 0; j < 8; ++j)
      ASSERT_EQ(program.post_receive(to.back(), static_cast<std::size_t>(i) * 8 + j, 4096, 16), VIP_SUCCESS);
  }
  std::atomic<int> received_count{0};
  std::vector<std::atomic<int>> credits(kSenders);
  for (auto& credit : credits) credit = 8;
  std::thread waiting([&] {
    for (int i = 0; i < kSenders * each; ++i) {
      VIP_VI_HANDLE vi = nullptr;
      VIP_BOOLEAN receive = -1;
      ASSERT_EQ(VipCQWait(cq, VIP_INFINITE, &vi, &receive), VIP_SUCCESS);
      VIP_DESCRIPTOR* descriptor = nullptr;
      ASSERT_EQ(VipRecvDone(vi, &descriptor), VIP_SUCCESS);
      ASSERT_EQ(program.post_receive(vi, descriptor), VIP_SUCCESS);
      ++received_count;
      ++credits[static_cast<std::size_t>(std::find(to.begin(), to.end(), vi) - to.begin())];
    }
  });
  std::vector<std::thread> senders;
  for (std::size_t s = 0; s < kSenders; ++s)
    senders.emplace_back([&, s] {
      for (int i = 0; i < each; ++i) {
        while (credits[s] == 0) std::this_thread::yield();
        --credits[s];
        ASSERT_EQ(program.post_send(from[s], 40 + s, s * 64, 16), VIP_SUCCESS);
        VIP_DESCRIPTOR* descriptor = nullptr;
        ASSERT_EQ(VipSendWait(from[s], kSoon, &descriptor), VIP_SUCCESS);
      }
    });
  for (std::thread& thread : senders) thread.join();
  waiting.join();
  EXPECT_EQ(received_count, kSenders * each);
}

// A wait is ended by what another thread does, not only by the peer.
TEST(ViplThreads, AWaitEndsWhenAnotherThreadDisconnects) {
  HangGuard guard;
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  ASSERT_EQ(program.post_receive(a, 0, 0, 8), VIP_SUCCESS);
  std::thread waiting([&] {
    VIP_DESCRIPTOR* descriptor = nullptr;
    EXPECT_EQ(VipRecvWait(a, VIP_INFINITE, &descriptor), VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(descriptor, program.descriptor(0));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(VipDisconnect(a), VIP_SUCCESS);
  waiting.join();
}

TEST(ViplThreads, ConnectingAndDisconnectingBesideTraffic) {
  HangGuard guard;
  const int rounds = kSanitized ? 20 : 100;
  Program program;
  const VIP_CQ_HANDLE cq = program.make_cq();
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi({.receive_cq = cq});
  connect_here(program, a, b);
  std::atomic<bool> over{false};
  ASSERT_EQ(program.post_receive(b, 0, 0, 8), VIP_SUCCESS);
  std::thread waiting([&] {
    VIP_VI_HANDLE vi = nullptr;
    VIP_BOOLEAN receive = -1;
    while (!over) {
      if (VipCQWait(cq, 50, &vi, &receive) != VIP_SUCCESS) continue;
      VIP_DESCRIPTOR* descriptor = nullptr;
      while (VipRecvDone(vi, &descriptor) == VIP_SUCCESS)
        if (vi == b) (void)program.post_receive(b, descriptor);
    }
  });
  const VIP_VI_HANDLE c = program.make_vi({.receive_cq = cq}), d = program.make_vi({.receive_cq = cq});
  for (int i = 0; i < rounds; ++i) {
    connect_here(program, c, d);
    EXPECT_EQ(VipDisconnect(c), VIP_SUCCESS);
    EXPECT_EQ(VipDisconnect(d), VIP_SUCCESS);
  }
  over = true;
  waiting.join();
}

}  // namespace
}  // namespace viaduct::vipl::testing
