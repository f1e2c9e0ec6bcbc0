// Sending and receiving: every size, in pieces, with immediate data, in order, when rings are full, polling and
// waiting.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/random.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr VIP_RELIABILITY_LEVEL kLevels[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                             VIP_SERVICE_RELIABLE_RECEPTION};

class ViplTransfer : public ::testing::TestWithParam<VIP_RELIABILITY_LEVEL> {
 protected:
  HangGuard guard_;
};

INSTANTIATE_TEST_SUITE_P(AtEveryLevel, ViplTransfer, ::testing::ValuesIn(kLevels),
                         [](const auto& level) { return "Level" + std::to_string(level.param); });

// One thread on both ends: a send larger than the ring is finished by the calls of whoever is asked.
TEST_P(ViplTransfer, EverySizeUpToTheLargest) {
  constexpr std::uint32_t kMost = 5u << 20;
  Program program(2 * kMost + 64);
  const ViOptions options{.level = GetParam(), .max_transfer = kMost};
  const VIP_VI_HANDLE a = program.make_vi(options), b = program.make_vi(options);
  connect_here(program, a, b);
  unsigned seed = 0;
  for (const std::uint32_t length : {0u,
                                     1u,
                                     4u,
                                     47u,
                                     48u,
                                     49u,
                                     51u,
                                     52u,
                                     53u,
                                     64u,
                                     1000u,
                                     4095u,
                                     4096u,
                                     32767u,
                                     32768u,
                                     32769u,
                                     65536u,
                                     1u << 20,
                                     (4u << 20) + 13,
                                     kMost}) {
    fill(program.data(), length, ++seed);
    std::memset(program.data(kMost), 0xee, length + 1);
    ASSERT_EQ(program.post_receive(b, 0, kMost, length), VIP_SUCCESS);
    ASSERT_EQ(program.post_send(a, 1, 0, length), VIP_SUCCESS);
    VIP_DESCRIPTOR *out = nullptr, *in = nullptr;
    VIP_RETURN sent = VIP_NOT_DONE, got = VIP_NOT_DONE;
    while (sent == VIP_NOT_DONE || got == VIP_NOT_DONE) {
      if (sent == VIP_NOT_DONE) sent = VipSendDone(a, &out);
      if (got == VIP_NOT_DONE) got = VipRecvDone(b, &in);
    }
    ASSERT_EQ(sent, VIP_SUCCESS) << length;
    ASSERT_EQ(got, VIP_SUCCESS) << length;
    EXPECT_EQ(out, program.descriptor(1));
    EXPECT_EQ(in, program.descriptor(0));
    EXPECT_EQ(in->CS.Length, length);
    EXPECT_EQ(in->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE});
    EXPECT_EQ(out->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_OP_SEND});
    EXPECT_TRUE(filled(program.data(kMost), length, seed)) << length;
    EXPECT_EQ(program.data(kMost)[length], std::byte{0xee}) << "not a byte more";
  }
}

TEST_P(ViplTransfer, GatherAndScatter) {
  constexpr std::size_t kHalf = 1 << 20;
  Program program(2 * kHalf);
  const ViOptions options{.level = GetParam(), .max_transfer = kHalf};
  const VIP_VI_HANDLE a = program.make_vi(options), b = program.make_vi(options);
  connect_here(program, a, b);
  Random random(GetParam());
  for (int round = 0; round < 40; ++round) {
    const auto cut = [&](std::size_t base, std::size_t total, std::size_t most_pieces) {
      std::vector<Segment> pieces;
      std::size_t at = base;
      for (std::size_t left = total; left > 0 || pieces.empty();) {
        const bool last = pieces.size() + 1 == most_pieces;
        const std::size_t part = last ? left : std::min<std::size_t>(left, random.below(left + 1));
        pieces.push_back({at, static_cast<std::uint32_t>(part)});
        at += part;
        left -= part;
        if (last) break;
      }
      return pieces;
    };
    const std::size_t total = random.below(round % 4 == 0 ? 300'000 : 2000);
    const auto from = cut(0, total, 1 + random.below(252));
    const auto to = cut(kHalf, total + random.below(10), 1 + random.below(252));
    fill(program.data(), total, static_cast<unsigned>(round));
    ASSERT_EQ(program.post_receive(b, program.prepare(0, to)), VIP_SUCCESS);
    ASSERT_EQ(program.post_send(a, program.prepare(1, from)), VIP_SUCCESS);
    VIP_DESCRIPTOR* in = nullptr;
    VIP_DESCRIPTOR* out = nullptr;
    VIP_RETURN got;
    while ((got = VipRecvDone(b, &in)) == VIP_NOT_DONE) (void)VipSendDone(a, &out);
    ASSERT_EQ(got, VIP_SUCCESS);
    EXPECT_EQ(in->CS.Length, total);
    EXPECT_TRUE(filled(program.data(kHalf), total, static_cast<unsigned>(round)));
    if (out == nullptr) out = sent(a);
    EXPECT_EQ(out, program.descriptor(1));
  }
}

TEST_P(ViplTransfer, ImmediateData) {
  Program program(512 << 10);
  const ViOptions options{.level = GetParam(), .max_transfer = 200'000};
  const VIP_VI_HANDLE a = program.make_vi(options), b = program.make_vi(options);
  connect_here(program, a, b);
  for (const std::uint32_t length : {0u, 4u, 48u, 49u, 32768u, 150'000u}) {
    ASSERT_EQ(program.post_receive(b, 0, 200'000, 200'000), VIP_SUCCESS);
    ASSERT_EQ(program.post_send(a, program.prepare(1, {{0, length}}, VIP_CONTROL_IMMEDIATE, 0xcafe0000 + length)),
              VIP_SUCCESS);
    VIP_DESCRIPTOR* in = nullptr;
    VIP_DESCRIPTOR* out = nullptr;
    while (VipRecvDone(b, &in) == VIP_NOT_DONE) (void)VipSendDone(a, &out);
    ASSERT_NE(in, nullptr);
    EXPECT_EQ(in->CS.ImmediateData, 0xcafe0000 + length);
    EXPECT_EQ(in->CS.Status, unsigned{VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE});
    EXPECT_EQ(in->CS.Length, length);
    if (out == nullptr) (void)sent(a);
  }
}

TEST_P(ViplTransfer, BackInTheOrderOfPosting) {
  Program program;
  const ViOptions options{.level = GetParam(), .max_transfer = 20'000};
  const VIP_VI_HANDLE a = program.make_vi(options), b = program.make_vi(options);
  connect_here(program, a, b);
  for (std::size_t i = 0; i < 20; ++i) ASSERT_EQ(program.post_receive(b, i, 20'000 * i, 20'000), VIP_SUCCESS);
  for (std::size_t i = 0; i < 20; ++i) {
    std::memcpy(program.data(500'000 + 20'000 * i), &i, sizeof i);
    ASSERT_EQ(program.post_send(a, 30 + i, 500'000 + 20'000 * i, i % 3 == 0 ? 20'000 : 8), VIP_SUCCESS);
  }
  std::size_t out = 0, in = 0;
  while (out < 20 || in < 20) {
    VIP_DESCRIPTOR* descriptor = nullptr;
    if (out < 20 && VipSendDone(a, &descriptor) == VIP_SUCCESS) {
      EXPECT_EQ(descriptor, program.descriptor(30 + out++));
    }
    if (in < 20 && VipRecvDone(b, &descriptor) == VIP_SUCCESS) {
      EXPECT_EQ(descriptor, program.descriptor(in));
      std::size_t number = 99;
      std::memcpy(&number, program.data(20'000 * in), sizeof number);
      EXPECT_EQ(number, in++);
    }
  }
}

// Two processes, both blocking, both directions at once, far more than the rings hold.
TEST_P(ViplTransfer, BothWaysAtOnceWaiting) {
  const std::string name = own_name("both.ways") + std::to_string(GetParam());
  constexpr std::uint32_t kLength = 300'000;
  constexpr int kMessages = 40, kWindow = 4;
  const auto body = [&](bool server) {
    Program program(16 * kLength);
    const ViOptions options{.level = GetParam(), .max_transfer = kLength};
    const VIP_VI_HANDLE vi = program.make_vi(options);
    // Posted for everything that may come: the other side sends no faster than it receives.
    for (std::size_t i = 0; i < 2 * kWindow; ++i)
      CHILD_EXPECT(program.post_receive(vi, i, kLength * i, kLength) == VIP_SUCCESS);
    CHILD_EXPECT((server ? program.serve(name, vi) : program.request(name, vi)) == VIP_SUCCESS);
    int sent = 0, in = 0, completed = 0;
    VIP_DESCRIPTOR* descriptor = nullptr;
    while (in < kMessages || completed < kMessages) {
      while (sent < kMessages && sent < in + kWindow && sent - completed < kWindow) {
        const std::size_t at = kLength * (2 * kWindow + static_cast<std::size_t>(sent) % kWindow);
        fill(program.data(at), kLength, static_cast<unsigned>(sent));
        CHILD_EXPECT(program.post_send(vi, 20 + static_cast<std::size_t>(sent) % kWindow, at, kLength) == VIP_SUCCESS);
        ++sent;
      }
      if (in < kMessages) {
        CHILD_EXPECT(VipRecvWait(vi, kSoon, &descriptor) == VIP_SUCCESS);
        const auto* const data = static_cast<const std::byte*>(descriptor->DS[0].Local.Data.Address);
        CHILD_EXPECT(filled(data, kLength, static_cast<unsigned>(in)));
        CHILD_EXPECT(program.post_receive(vi, descriptor) == VIP_SUCCESS);
        ++in;
      } else {
        CHILD_EXPECT(VipSendWait(vi, kSoon, &descriptor) == VIP_SUCCESS);
        ++completed;
      }
      while (VipSendDone(vi, &descriptor) == VIP_SUCCESS) ++completed;
    }
    return 0;
  };
  Child server([&] { return body(true); });
  EXPECT_EQ(body(false), 0);
  EXPECT_EQ(server.wait(), 0);
}

TEST(ViplWait, TimesOutNotEarlyAndNotLate) {
  Program program;
  const VIP_VI_HANDLE a = program.make_vi(), b = program.make_vi();
  connect_here(program, a, b);
  ASSERT_EQ(program.post_receive(a, 0, 0, 16), VIP_SUCCESS);
  VIP_DESCRIPTOR* descriptor = program.descriptor(1);
  for (const VIP_ULONG timeout : {0ul, 1ul, 7ul, 50ul}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(VipRecvWait(a, timeout, &descriptor), VIP_TIMEOUT);
    const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    EXPECT_GE(took, static_cast<double>(timeout));
    EXPECT_LT(took, static_cast<double>(timeout) + (kSanitized ? 1000 : 100));
  }
  EXPECT_EQ(descriptor, nullptr);
}

// Longer apart than any spinning: each wait sleeps and is woken.
TEST(ViplWait, SleepsAndIsWoken) {
  HangGuard guard;
  const std::string name = own_name("sleep");
  Child other([&] {
    Program program;
    const VIP_VI_HANDLE vi = program.make_vi();
    CHILD_EXPECT(program.post_receive(vi, 0, 0, 16) == VIP_SUCCESS);
    CHILD_EXPECT(program.serve(name, vi) == VIP_SUCCESS);
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (int i = 0; i < 10; ++i) {
      CHILD_EXPECT(VipRecvWait(vi, VIP_INFINITE, &descriptor) == VIP_SUCCESS);
      CHILD_EXPECT(program.post_receive(vi, 0, 0, 16) == VIP_SUCCESS);
      CHILD_EXPECT(program.post_send(vi, 1, 0, 16) == VIP_SUCCESS);
      CHILD_EXPECT(VipSendWait(vi, kSoon, &descriptor) == VIP_SUCCESS);
    }
    return 0;
  });
  Program program;
  const VIP_VI_HANDLE vi = program.make_vi();
  ASSERT_EQ(program.request(name, vi), VIP_SUCCESS);
  VIP_DESCRIPTOR* descriptor = nullptr;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(program.post_receive(vi, 0, 0, 16), VIP_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(program.post_send(vi, 1, 0, 16), VIP_SUCCESS);
    ASSERT_EQ(VipSendWait(vi, kSoon, &descriptor), VIP_SUCCESS);
    ASSERT_EQ(VipRecvWait(vi, VIP_INFINITE, &descriptor), VIP_SUCCESS);
  }
  EXPECT_EQ(other.wait(), 0);
}

// The receiver is slow: the sender sleeps with its message half gone, and hears when there is room.
TEST(ViplWait, ASenderWithoutRoomSleepsUntilThereIsSome) {
  HangGuard guard;
  const std::string name = own_name("room");
  constexpr std::uint32_t kLength = 1u << 20;
  constexpr int kMessages = 3;
  Baton full;
  Child other([&] {
    Program program(kLength);
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kLength});
    for (std::size_t i = 0; i < kMessages; ++i) CHILD_EXPECT(program.post_receive(vi, i, 0, kLength) == VIP_SUCCESS);
    CHILD_EXPECT(program.serve(name, vi) == VIP_SUCCESS);
    CHILD_EXPECT(full.take());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    VIP_DESCRIPTOR* descriptor = nullptr;
    for (unsigned i = 0; i < kMessages; ++i) {
      CHILD_EXPECT(VipRecvWait(vi, kSoon, &descriptor) == VIP_SUCCESS);
      CHILD_EXPECT(descriptor->CS.Length == kLength);
    }
    CHILD_EXPECT(filled(program.data(), kLength, 5));
    return 0;
  });
  Program program(kLength);
  const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kLength});
  ASSERT_EQ(program.request(name, vi), VIP_SUCCESS);
  fill(program.data(), kLength, 5);
  for (std::size_t i = 0; i < kMessages; ++i) ASSERT_EQ(program.post_send(vi, i, 0, kLength), VIP_SUCCESS);
  VIP_DESCRIPTOR* descriptor = nullptr;
  EXPECT_EQ(VipSendDone(vi, &descriptor), VIP_NOT_DONE);
  full.give();
  for (std::size_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(VipSendWait(vi, VIP_INFINITE, &descriptor), VIP_SUCCESS);
    EXPECT_EQ(descriptor, program.descriptor(i));
  }
  EXPECT_EQ(other.wait(), 0);
}

}  // namespace
}  // namespace viaduct::vipl::testing
