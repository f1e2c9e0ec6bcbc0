// Messages that are too long for the ring, into receives that the sender cannot reach: those of several segments are
// not shown to it. The receiver fetches them. What arrives is what was sent, whatever lies around them, and where
// neither can reach the other's memory too.
#include <algorithm>

#include "via/port/remote_port.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::size_t kLong = std::size_t{256} << 10;
constexpr std::size_t kMost = std::size_t{2} << 20;
const ViOptions kOptions{.max_transfer = kMost};

struct Pair {
  explicit Pair(const ViOptions& options = kOptions)
      : program(4 * kMost), a(program.make_vi(options)), b(program.make_vi(options)) {
    connect_here(program, a, b);
  }
  // Both ends belong to this thread: the one asked is the one that may have something to do.
  void exchange(VIP_VI_HANDLE from, VIP_VI_HANDLE to, VIP_DESCRIPTOR*& sent, VIP_DESCRIPTOR*& received) {
    sent = received = nullptr;
    while (sent == nullptr || received == nullptr) {
      if (sent == nullptr) (void)VipSendDone(from, &sent);
      if (received == nullptr) (void)VipRecvDone(to, &received);
    }
  }
  VIP_RETURN post_receive(VIP_VI_HANDLE vi, std::size_t index, std::size_t offset) {
    return program.post_receive(vi, program.prepare(index, {{offset, 64}, {offset + 64, kMost - 64}}));
  }
  Program program;
  VIP_VI_HANDLE a, b;
};

std::uint64_t by_reference() {
  return counter("via.sends_by_reference").get();
}

class ViplReferenceLevels : public ::testing::TestWithParam<VIP_RELIABILITY_LEVEL> {};

TEST_P(ViplReferenceLevels, ArrivesWhole) {
  const HangGuard guard;
  Pair pair({.level = GetParam(), .max_transfer = kMost});
  unsigned seed = 0;
  for (const std::size_t length : {kLong - 1, kLong, kLong + 1, kLong + 4097, kMost - 3, kMost}) {
    fill(pair.program.data(), length, ++seed);
    std::memset(pair.program.data(2 * kMost), 0, kMost + 64);
    ASSERT_EQ(pair.post_receive(pair.b, 0, 2 * kMost), VIP_SUCCESS);
    const std::uint64_t before = by_reference();
    ASSERT_EQ(pair.program.post_send(pair.a, pair.program.prepare(1, {{0, static_cast<std::uint32_t>(length)}},
                                                                  VIP_CONTROL_IMMEDIATE, 77)),
              VIP_SUCCESS);
    VIP_DESCRIPTOR *sent, *received;
    pair.exchange(pair.a, pair.b, sent, received);
    EXPECT_EQ(by_reference() - before, length >= kLong && GetParam() != VIP_SERVICE_UNRELIABLE ? 1u : 0u);
    EXPECT_EQ(sent->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND);
    EXPECT_EQ(received->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE);
    EXPECT_EQ(received->CS.ImmediateData, 77u);
    EXPECT_EQ(received->CS.Length, length);
    EXPECT_TRUE(filled(pair.program.data(2 * kMost), length, seed)) << length;
    EXPECT_EQ(pair.program.data(2 * kMost)[length], std::byte{0}) << "nothing behind it";
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ViplReferenceLevels,
                         ::testing::Values(VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                           VIP_SERVICE_RELIABLE_RECEPTION));

TEST(ViplReference, IntoSeveralSegmentsAndOutOfSeveral) {
  const HangGuard guard;
  Pair pair;
  fill(pair.program.data(), kMost, 3);
  const std::uint32_t part = kMost / 4;
  ASSERT_EQ(pair.program.post_receive(
                pair.b,
                pair.program.prepare(0, {{2 * kMost, 100}, {2 * kMost + 100, part}, {2 * kMost + 100 + part, kMost}})),
            VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.a, 1, 0, kMost), VIP_SUCCESS);
  VIP_DESCRIPTOR *sent, *received;
  pair.exchange(pair.a, pair.b, sent, received);
  EXPECT_TRUE(filled(pair.program.data(2 * kMost), kMost, 3));

  std::memset(pair.program.data(2 * kMost), 0, kMost);
  ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.a, pair.program.prepare(1, {{0, part}, {part, kMost - part}})), VIP_SUCCESS);
  pair.exchange(pair.a, pair.b, sent, received);
  EXPECT_TRUE(filled(pair.program.data(2 * kMost), kMost, 3));
}

// Long and short ones mixed, both ways at once, all posted before anybody looks.
TEST(ViplReference, KeepsTheOrderAmongShortOnesInBothDirections) {
  const HangGuard guard;
  Pair pair;
  constexpr std::uint32_t kCount = 12;
  const auto length = [](std::uint32_t i) -> std::uint32_t { return i % 3 == 1 ? 40 + i : kLong + 64 * i; };
  fill(pair.program.data(), kMost, 9);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(pair.post_receive(pair.b, i, kMost), VIP_SUCCESS);
    ASSERT_EQ(pair.post_receive(pair.a, kCount + i, 2 * kMost), VIP_SUCCESS);
  }
  for (std::uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(pair.program.post_send(pair.a, 2 * kCount + i, 0, length(i)), VIP_SUCCESS);
    ASSERT_EQ(pair.program.post_send(pair.b, 3 * kCount + i, 0, length(i)), VIP_SUCCESS);
  }
  std::uint32_t next[4] = {};
  const std::uint64_t before = by_reference();
  while (next[0] + next[1] + next[2] + next[3] != 4 * kCount)
    for (int side = 0; side < 4; ++side) {
      const VIP_VI_HANDLE vi = side % 2 == 0 ? pair.a : pair.b;
      VIP_DESCRIPTOR* done = nullptr;
      (void)(side < 2 ? VipRecvDone : VipSendDone)(vi, &done);
      if (done == nullptr) continue;
      const std::uint32_t first = side == 1 ? 0 : side == 0 ? kCount : side == 2 ? 2 * kCount : 3 * kCount;
      ASSERT_EQ(done, pair.program.descriptor(first + next[side])) << "out of order";
      ASSERT_EQ(done->CS.Length, length(next[side]));
      ASSERT_EQ(done->CS.Status & VIP_STATUS_ERROR_MASK, 0u);
      ++next[side];
    }
  EXPECT_GT(by_reference(), before);
}

TEST(ViplReference, BetweenProcesses) {
  const HangGuard guard;
  for (const bool reachable : {true, false}) {
    const std::string name = own_name(reachable ? "reference" : "unreachable");
    constexpr std::uint32_t kMessages = 20;
    Child child([&] {
      if (!reachable) copy::PeerMemory::forbid_cma();
      Program program(2 * kMost);
      const VIP_VI_HANDLE vi = program.make_vi(kOptions);
      for (std::uint32_t i = 0; i < 4; ++i) (void)program.post_receive(vi, i, 0, kMost);
      if (program.request(name, vi) != VIP_SUCCESS) return 1;
      for (unsigned i = 0; i < kMessages; ++i) {
        VIP_DESCRIPTOR* got = nullptr;
        const VIP_RETURN result = i % 2 == 0 ? VipRecvWait(vi, kSoon, &got) : (got = received(vi), VIP_SUCCESS);
        if (result != VIP_SUCCESS || !filled(program.data(), got->CS.Length, i)) return 2;
        if (program.post_receive(vi, got) != VIP_SUCCESS) return 3;
        if (program.post_send(vi, 10, kMost, 4) != VIP_SUCCESS) return 4;
        (void)sent(vi);
      }
      return 0;
    });
    Program program(2 * kMost);
    const VIP_VI_HANDLE vi = program.make_vi(kOptions);
    ASSERT_EQ(program.post_receive(vi, 0, kMost, 64), VIP_SUCCESS);
    ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
    for (unsigned i = 0; i < kMessages; ++i) {
      const auto length = static_cast<std::uint32_t>(kLong + i * 77777);
      fill(program.data(), length, i);
      ASSERT_EQ(program.post_send(vi, 1, 0, length), VIP_SUCCESS);
      VIP_DESCRIPTOR* done = nullptr;
      ASSERT_EQ(VipSendWait(vi, kSoon, &done), VIP_SUCCESS) << i;
      ASSERT_EQ(VipRecvWait(vi, kSoon, &done), VIP_SUCCESS) << i;
      ASSERT_EQ(program.post_receive(vi, done), VIP_SUCCESS);
    }
    EXPECT_EQ(child.wait(), 0);
  }
}

// Asleep in a completion queue, or told by a notify function: whoever has a part to move is woken for it.
TEST(ViplReference, WakesThoseWhoSleep) {
  const HangGuard guard;
  constexpr std::uint32_t kMessages = 10;
  const std::string name = own_name("reference.asleep");
  Child child([&] {
    Program program(2 * kMost);
    const VIP_CQ_HANDLE cq = program.make_cq();
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kMost, .receive_cq = cq});
    for (std::uint32_t i = 0; i < 4; ++i)
      (void)program.post_receive(vi, program.prepare(i, {{0, 64}, {64, kMost - 64}}));
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    for (unsigned i = 0; i < kMessages; ++i) {
      VIP_VI_HANDLE which;
      VIP_BOOLEAN receive;
      CHILD_EXPECT(VipCQWait(cq, kSoon, &which, &receive) == VIP_SUCCESS);
      VIP_DESCRIPTOR* const got = received(vi);
      CHILD_EXPECT(got->CS.Length == kMost && filled(program.data(), kMost, i));
      CHILD_EXPECT(program.post_receive(vi, got) == VIP_SUCCESS);
    }
    Baton().take();  // until killed
    return 0;
  });
  Program program(2 * kMost);
  const VIP_CQ_HANDLE cq = program.make_cq();
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kMost, .send_cq = cq});
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  Baton told;
  for (unsigned i = 0; i < kMessages; ++i) {
    fill(program.data(), kMost, i);
    ASSERT_EQ(program.post_send(vi, 1, 0, kMost), VIP_SUCCESS);
    if (i % 2 == 0) {
      VIP_VI_HANDLE which;
      VIP_BOOLEAN receive;
      ASSERT_EQ(VipCQWait(cq, kSoon, &which, &receive), VIP_SUCCESS);
      ASSERT_EQ(sent(vi), program.descriptor(1));
    } else {
      const auto tell = [](VIP_PVOID baton, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR*) {
        static_cast<Baton*>(baton)->give();
      };
      ASSERT_EQ(VipSendNotify(vi, &told, tell), VIP_SUCCESS);
      ASSERT_TRUE(told.take());
      VIP_VI_HANDLE which;
      VIP_BOOLEAN receive;
      (void)VipCQDone(cq, &which, &receive);
    }
  }
}

// Memory that was registered for no RDMA at all is lent too, and VipDeregisterMem waits for whoever copies.
TEST(ViplReference, DeregisteringWaitsForThePeersPart) {
  const HangGuard guard;
  const std::string name = own_name("reference.deregister");
  Child child([&] {
    Program program(kMost);
    ErrorLog errors;
    errors.listen(program.nic);
    const VIP_VI_HANDLE vi = program.make_vi(kOptions);
    fill(program.data(), kMost, 1);
    while (program.request(name, vi) == VIP_SUCCESS) {
      VIP_DESCRIPTOR* done = nullptr;
      (void)program.post_send(vi, 0, 0, kMost);
      while (VipSendDone(vi, &done) == VIP_NOT_DONE) continue;
      (void)VipDisconnect(vi);
      while (VipSendDone(vi, &done), done != nullptr) continue;
    }
    return 0;
  });
  Program program(kMost);
  ErrorLog errors;
  errors.listen(program.nic);
  const VIP_VI_HANDLE vi = program.make_vi(kOptions);
  for (int round = 0; round < viaduct::testing::rounds(200); ++round) {
    VIP_MEM_ATTRIBUTES attributes{program.tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE handle = 0;
    ASSERT_EQ(VipRegisterMem(program.nic, program.data(), kMost, &attributes, &handle), VIP_SUCCESS);
    VIP_DESCRIPTOR* const receive = program.prepare(0, {{0, 64}, {64, kMost - 64}});
    for (int i = 0; i < 2; ++i) receive->DS[i].Local.Handle = handle;
    ASSERT_EQ(program.post_receive(vi, receive), VIP_SUCCESS);
    ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    while (VipRecvDone(vi, &done) == VIP_NOT_DONE && program.data()[0] == std::byte{0}) continue;
    for (int wait = 0; wait < 50 * (round % 40); ++wait) std::atomic_signal_fence(std::memory_order_seq_cst);
    ASSERT_EQ(VipDeregisterMem(program.nic, program.data(), handle), VIP_SUCCESS);
    std::memset(program.data(), 0, kMost);
    while (done == nullptr && VipRecvDone(vi, &done) == VIP_NOT_DONE) continue;
    ASSERT_EQ(std::count(program.data(), program.data() + kMost, std::byte{0}), static_cast<std::ptrdiff_t>(kMost));
    ASSERT_EQ(VipDisconnect(vi), VIP_SUCCESS);
  }
  child.kill();
}

}  // namespace
}  // namespace viaduct::vipl::testing
