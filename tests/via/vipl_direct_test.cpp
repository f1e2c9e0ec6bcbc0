// Messages that the sender puts into the receiver's descriptors itself, because it can map their memory: in order among
// those that go other ways, never into what is not posted any more, and without the receiver doing anything.
#include <algorithm>
#include <thread>

#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 20;
constexpr std::uint32_t kLength = 32768;

std::uint64_t direct() {
  return counter("via.sends_direct").get();
}

bool all_zero(const std::byte* bytes, std::size_t length) {
  return std::count(bytes, bytes + length, std::byte{0}) == static_cast<std::ptrdiff_t>(length);
}

struct Pair {
  explicit Pair(VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY)
      : program(4 * kMost, false, true),
        a(program.make_vi({.level = level, .max_transfer = kMost, .rdma_write = true})),
        b(program.make_vi({.level = level, .max_transfer = kMost, .rdma_write = true})) {
    errors.listen(program.nic);
  }
  ErrorLog errors;  // goes after the program that reports to it
  Program program;
  VIP_VI_HANDLE a, b;
};

class ViplDirectLevels : public ::testing::TestWithParam<VIP_RELIABILITY_LEVEL> {};
INSTANTIATE_TEST_SUITE_P(Levels, ViplDirectLevels,
                         ::testing::Values(VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                           VIP_SERVICE_RELIABLE_RECEPTION));

// Posted before connecting and after; the bytes are there before the receiver has called anything.
TEST_P(ViplDirectLevels, ArrivesWithoutTheReceiver) {
  const HangGuard guard;
  const bool reliable = GetParam() != VIP_SERVICE_UNRELIABLE;
  Pair pair(GetParam());
  std::byte* const target = pair.program.data(2 * kMost);
  unsigned seed = 0;
  const std::uint32_t lengths[] = {8191, 8192, 8193, kLength, 200'000};
  ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
  connect_here(pair.program, pair.a, pair.b);
  for (const std::uint32_t length : lengths) {
    fill(pair.program.data(), length, ++seed);
    std::memset(target, 0, kMost);
    const std::uint64_t before = direct();
    ASSERT_EQ(pair.program.post_send(
                  pair.a, pair.program.prepare(1, {{0, 100}, {100, length - 100}}, VIP_CONTROL_IMMEDIATE, length)),
              VIP_SUCCESS);
    const bool expected = reliable && length >= 8192;
    EXPECT_EQ(direct() - before, expected ? 1u : 0u) << length;
    EXPECT_EQ(filled(target, length, seed), expected) << length;
    VIP_DESCRIPTOR* const got = received(pair.b);
    EXPECT_EQ(got, pair.program.descriptor(0));
    EXPECT_EQ(got->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE);
    EXPECT_EQ(got->CS.ImmediateData, length);
    EXPECT_EQ(got->CS.Length, length);
    EXPECT_TRUE(filled(target, length, seed)) << length;
    EXPECT_TRUE(all_zero(target + length, kMost - length)) << "nothing behind it";
    EXPECT_EQ(sent(pair.a)->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND);
    ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
  }
}

// Nothing posted, or too short: what every other message gets.
TEST_P(ViplDirectLevels, WhereThereIsNoPlace) {
  const HangGuard guard;
  for (const bool posted : {false, true}) {
    Pair pair(GetParam());
    if (posted) {
      ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kLength - 1), VIP_SUCCESS);
    }
    connect_here(pair.program, pair.a, pair.b);
    const std::uint64_t before = direct(), dropped = counter("via.dropped").get();
    ASSERT_EQ(pair.program.post_send(pair.a, 1, 0, kLength), VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    EXPECT_EQ(VipRecvDone(pair.b, &done), VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(direct(), before);
    if (GetParam() == VIP_SERVICE_UNRELIABLE) {
      EXPECT_EQ(counter("via.dropped").get(), dropped + 1);
      EXPECT_EQ(pair.program.state(pair.b), VIP_STATE_CONNECTED);
    } else {
      EXPECT_EQ(pair.program.state(pair.b), VIP_STATE_ERROR);
      EXPECT_TRUE(pair.errors.has(posted ? VIP_ERROR_CONN_LOST : VIP_ERROR_RECVQ_EMPTY));
    }
  }
}

// Descriptors of all kinds, more than are shown at once, and messages of all kinds: each gets the next.
TEST(ViplDirect, KeepsTheOrderAmongAllOtherWays) {
  const HangGuard guard;
  constexpr std::uint32_t kReceives = 300, kEach = 10'000;
  Program ordinary(kMost);
  ErrorLog errors;
  Pair pair(VIP_SERVICE_RELIABLE_RECEPTION);
  for (int connection = 0; connection < 3; ++connection) {
    // Descriptors behind the data; every fifth has a fault of its own, and takes no message.
    const auto descriptor = [&](std::uint32_t i) {
      return reinterpret_cast<VIP_DESCRIPTOR*>(pair.program.data(3 * kMost) + 64 * i);
    };
    std::uint32_t posted = 0;
    const auto post = [&](std::uint32_t i) {
      VIP_DESCRIPTOR* const made = descriptor(i);
      std::memset(made, 0, sizeof *made);
      const bool two = i % 7 == 3;
      made->CS.SegCount = two ? 2 : 1;
      std::byte* const at = pair.program.data(kMost) + i % 100 * kEach;
      made->DS[0].Local = {{.Address = at}, pair.program.handle, two ? 50 : kEach};
      made->DS[1].Local = {{.Address = at + 50}, pair.program.handle, kEach - 50};
      if (i % 5 == 4) made->DS[0].Local.Handle = 0;
      ASSERT_EQ(VipPostRecv(pair.b, made, pair.program.handle), VIP_SUCCESS);
      ++posted;
    };
    while (posted < kReceives / 2) post(posted);
    connect_here(pair.program, pair.a, pair.b);
    const std::uint64_t before = direct();
    std::uint32_t taken = 0;
    for (std::uint32_t message = 0; message < kReceives / 5 * 4; ++message) {
      while (posted < kReceives && posted < taken + kReceives / 2) post(posted);
      const std::uint32_t length = message % 3 == 0 ? 40 : message % 3 == 1 ? kEach : kEach - message;
      fill(pair.program.data(), length, message);
      VIP_DESCRIPTOR* const send =
          message % 11 == 5
              ? pair.program.prepare(1, {{0, 0}}, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, message)
              : pair.program.prepare(1, {{0, length}}, VIP_CONTROL_IMMEDIATE, message);
      ASSERT_EQ(pair.program.post_send(pair.a, send), VIP_SUCCESS);
      for (bool faulty = true; faulty; ++taken) {
        VIP_DESCRIPTOR* done = nullptr;
        VIP_RETURN result;
        while ((result = VipRecvDone(pair.b, &done)) == VIP_NOT_DONE) continue;
        ASSERT_EQ(done, descriptor(taken));
        faulty = taken % 5 == 4;
        ASSERT_EQ(result, faulty ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS) << taken;
        if (faulty) continue;
        ASSERT_EQ(done->CS.ImmediateData, message);
        if (message % 11 != 5) {
          ASSERT_EQ(done->CS.Length, length);
          ASSERT_TRUE(filled(pair.program.data(kMost) + taken % 100 * kEach, length, message)) << taken;
        }
      }
      ASSERT_EQ(sent(pair.a), send);
    }
    EXPECT_GT(direct() - before, kReceives / 5);
    for (const VIP_VI_HANDLE vi : {pair.a, pair.b}) ASSERT_EQ(VipDisconnect(vi), VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    while (VipRecvDone(pair.b, &done), done != nullptr) continue;
  }
}

// What was shown is not touched any more once the program has it back.
TEST(ViplDirect, NothingIsTouchedAfterDisconnectingOrDeregistering) {
  const HangGuard guard;
  for (const bool deregister : {false, true}) {
    Pair pair;
    std::byte* const target = pair.program.data(2 * kMost);
    VIP_MEM_ATTRIBUTES attributes{pair.program.tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE handle = 0;
    ASSERT_EQ(VipRegisterMem(pair.program.nic, target, kMost, &attributes, &handle), VIP_SUCCESS);
    VIP_DESCRIPTOR* const receive = pair.program.prepare(0, {{2 * kMost, kMost}});
    receive->DS[0].Local.Handle = handle;
    ASSERT_EQ(pair.program.post_receive(pair.b, receive), VIP_SUCCESS);
    connect_here(pair.program, pair.a, pair.b);
    fill(pair.program.data(), kLength, 1);
    const std::uint64_t before = direct();
    if (deregister) {
      ASSERT_EQ(VipDeregisterMem(pair.program.nic, target, handle), VIP_SUCCESS);
    } else {
      ASSERT_EQ(VipDisconnect(pair.b), VIP_SUCCESS);
    }
    (void)pair.program.post_send(pair.a, 1, 0, kLength);
    EXPECT_EQ(direct(), before);
    EXPECT_EQ(received(pair.b, VIP_DESCRIPTOR_ERROR), receive);
    EXPECT_EQ(receive->CS.Status & VIP_STATUS_ERROR_MASK,
              static_cast<VIP_UINT32>(deregister ? VIP_STATUS_PROTECTION_ERROR : VIP_STATUS_DESC_FLUSHED_ERROR));
    EXPECT_TRUE(all_zero(target, kMost));
  }
}

// The same while the peer, another process, is in the middle of copying as often as not.
TEST(ViplDirect, WaitsForAPeerThatCopies) {
  const HangGuard guard;
  constexpr std::uint32_t kBig = 400'000;
  constexpr std::size_t kReceives = 8;
  const std::string name = own_name("direct.wait");
  Child child([&] {
    Program program(kMost, false, true);
    ErrorLog errors;
    errors.listen(program.nic);
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kMost});
    fill(program.data(), kBig, 1);
    while (program.post_receive(vi, 10, kBig, 64) == VIP_SUCCESS && program.request(name, vi) == VIP_SUCCESS) {
      VIP_DESCRIPTOR* done = nullptr;
      while (VipRecvDone(vi, &done) == VIP_NOT_DONE) continue;  // the other end is connected too, and shows what it has
      for (std::size_t i = 0; i < kReceives; ++i) (void)program.post_send(vi, i, 0, kBig);
      while (program.state(vi) == VIP_STATE_CONNECTED) (void)VipRecvDone(vi, &done);
      (void)VipDisconnect(vi);
      for (const auto taken : {VipSendDone, VipRecvDone})
        while (taken(vi, &done), done != nullptr) continue;
    }
    return 0;
  });
  Program program(kMost, false, true);
  ErrorLog errors;
  errors.listen(program.nic);
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kMost});
  VIP_MEM_ATTRIBUTES attributes{program.tag, VIP_FALSE, VIP_FALSE};
  for (int round = 0; round < viaduct::testing::rounds(300); ++round) {
    VIP_MEM_HANDLE handle = 0;
    ASSERT_EQ(VipRegisterMem(program.nic, program.data(), kMost, &attributes, &handle), VIP_SUCCESS);
    for (std::size_t i = 0; i < kReceives; ++i) {
      VIP_DESCRIPTOR* const receive = program.prepare(i, {{0, kBig}});
      receive->DS[0].Local.Handle = handle;
      ASSERT_EQ(program.post_receive(vi, receive), VIP_SUCCESS);
    }
    ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
    ASSERT_EQ(program.post_send(vi, 20, kBig, 8), VIP_SUCCESS);
    // The first of them has begun to come, though nobody here has looked; how far it is differs.
    const volatile std::byte* const first = program.data();
    while (*first == std::byte{0}) std::this_thread::yield();
    for (int wait = 0; wait < 500 * (round % 50); ++wait) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (round % 2 == 0) {
      ASSERT_EQ(VipDeregisterMem(program.nic, program.data(), handle), VIP_SUCCESS);
    } else {
      ASSERT_EQ(VipDisconnect(vi), VIP_SUCCESS);
    }
    std::memset(program.data(), 0, kBig);
    std::this_thread::yield();
    ASSERT_TRUE(all_zero(program.data(), kBig)) << "round " << round;
    if (round % 2 == 0) {
      ASSERT_EQ(VipDisconnect(vi), VIP_SUCCESS);
    } else {
      ASSERT_EQ(VipDeregisterMem(program.nic, program.data(), handle), VIP_SUCCESS);
    }
    VIP_DESCRIPTOR* done = nullptr;
    for (const auto taken : {VipSendDone, VipRecvDone})
      while (taken(vi, &done), done != nullptr) continue;
  }
  child.kill();
}

}  // namespace
}  // namespace viaduct::vipl::testing
