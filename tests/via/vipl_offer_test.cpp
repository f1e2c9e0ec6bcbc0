// Messages of which each side moves one half: what arrives is what was sent, whoever has moved it; a send into a
// receive that is posted completes without the receiver's program; and neither touches what the other has taken back.
#include <algorithm>
#include <thread>

#include "base/random.hpp"
#include "via/port/remote_port.hpp"
#include "via/vipl_program.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::uint32_t kMost = 1u << 20;
constexpr std::uint32_t kLong = 512u << 10;

std::uint64_t offered() {
  return counter("via.sends_offered").get();
}
std::uint64_t taken_back() {
  return counter("via.offers_taken_back").get();
}

struct Pair {
  explicit Pair(VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY, bool provider = false)
      : program(4 * std::size_t{kMost}, false, provider),
        a(program.make_vi({.level = level, .max_transfer = kMost})),
        b(program.make_vi({.level = level, .max_transfer = kMost})) {
    errors.listen(program.nic);
    connect_here(program, a, b);
  }
  std::byte* target() const { return program.data(2 * kMost); }
  // Once more, for itself.
  VIP_MEM_HANDLE register_apart(std::byte* memory) {
    VIP_MEM_ATTRIBUTES attributes{program.tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE handle = 0;
    EXPECT_EQ(VipRegisterMem(program.nic, memory, kMost, &attributes, &handle), VIP_SUCCESS);
    return handle;
  }
  ErrorLog errors;  // goes after the program that reports to it
  Program program;
  VIP_VI_HANDLE a, b;
};

struct Case {
  VIP_RELIABILITY_LEVEL level;
  bool provider;
};
class ViplOffer : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Everywhere, ViplOffer,
    ::testing::Values(Case{VIP_SERVICE_RELIABLE_DELIVERY, false}, Case{VIP_SERVICE_RELIABLE_DELIVERY, true},
                      Case{VIP_SERVICE_RELIABLE_RECEPTION, false}, Case{VIP_SERVICE_RELIABLE_RECEPTION, true}),
    [](const auto& one) {
      return std::string(one.param.provider ? "Provider" : "Ordinary") + std::to_string(one.param.level);
    });

TEST_P(ViplOffer, TheReceiverMovesItsHalf) {
  const HangGuard guard;
  Pair pair(GetParam().level, GetParam().provider);
  unsigned seed = 0;
  for (const std::uint32_t length : {kLong, kLong + 1, kLong + 4097, kMost}) {
    fill(pair.program.data(), length, ++seed);
    std::memset(pair.target(), 0, kMost + 64);
    ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
    const std::uint64_t offers = offered(), back = taken_back();
    ASSERT_EQ(pair.program.post_send(pair.a, pair.program.prepare(1, {{0, length}}, VIP_CONTROL_IMMEDIATE, 77)),
              VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    ASSERT_EQ(VipSendDone(pair.a, &done), VIP_NOT_DONE) << "half of it is not there";
    EXPECT_EQ(pair.target()[0], std::byte{0});
    EXPECT_TRUE(std::equal(pair.target() + length - 1000, pair.target() + length, pair.program.data(length - 1000)));
    VIP_DESCRIPTOR* const got = received(pair.b);
    EXPECT_EQ(got->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE);
    EXPECT_EQ(got->CS.ImmediateData, 77u);
    EXPECT_EQ(got->CS.Length, length);
    EXPECT_TRUE(filled(pair.target(), length, seed));
    EXPECT_EQ(pair.target()[length], std::byte{0}) << "nothing behind it";
    EXPECT_EQ(sent(pair.a)->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND);
    EXPECT_EQ(offered(), offers + 1);
    EXPECT_EQ(taken_back(), back);
  }
}

// By a program that asks and by one that sleeps. What the sender writes into its buffer afterwards does not arrive.
TEST_P(ViplOffer, CompletesWithoutTheReceiver) {
  const HangGuard guard;
  for (const bool sleeps : {false, true}) {
    Pair pair(GetParam().level, GetParam().provider);
    unsigned seed = 0;
    constexpr std::uint32_t kReceives = 24;
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < kReceives; ++i)
      ASSERT_EQ(pair.program.post_receive(pair.b, i, 2 * kMost, kMost), VIP_SUCCESS);
    const std::uint64_t before = taken_back();
    for (const std::uint32_t length : {65'536u, 128u << 10, kLong, kMost, kLong + 77, kLong, kLong, kMost}) {
      // Alone, and one behind the other.
      for (const std::size_t together : {1, 2}) {
        fill(pair.program.data(), length, ++seed);
        for (std::size_t i = 0; i < together; ++i)
          ASSERT_EQ(pair.program.post_send(pair.a, 30 + i, 0, length), VIP_SUCCESS);
        for (std::size_t i = 0; i < together; ++i) {
          VIP_DESCRIPTOR* done = nullptr;
          if (sleeps) {
            ASSERT_EQ(VipSendWait(pair.a, kSoon, &done), VIP_SUCCESS) << length;
          } else {
            done = sent(pair.a);
          }
          EXPECT_EQ(done, pair.program.descriptor(30 + i));
        }
        if (length > 65'536) {  // shorter ones may be in the ring
          EXPECT_TRUE(filled(pair.target(), length, seed)) << "it is there though nobody has received it";
        }
        std::memset(pair.program.data(), 0, length);
        for (std::size_t i = 0; i < together; ++i) {
          EXPECT_EQ(received(pair.b), pair.program.descriptor(next++));
          EXPECT_TRUE(filled(pair.target(), length, seed)) << length;
        }
      }
    }
    EXPECT_GT(taken_back(), before);
  }
}

// Two VIs: the message on one says that there is one on the other. The receiver looks at that only then.
TEST(ViplOffer, AMessageOnAnotherVi) {
  const HangGuard guard;
  const std::string name = own_name("offer.other");
  const auto kMessages = static_cast<unsigned>(viaduct::testing::rounds(600));
  Child child([&] {
    Program program(4 * std::size_t{kMost});
    const VIP_VI_HANDLE data = program.make_vi({.max_transfer = kMost}), control = program.make_vi();
    (void)program.post_receive(data, 0, 0, kMost);
    (void)program.post_receive(control, 1, kMost, 64);
    CHILD_EXPECT(program.request(name + ".data", data) == VIP_SUCCESS);
    CHILD_EXPECT(program.request(name + ".control", control) == VIP_SUCCESS);
    Random random(3);
    for (unsigned i = 0; i < kMessages; ++i) {
      VIP_DESCRIPTOR *got = nullptr, *word = nullptr;
      for (std::uint64_t looks = random.below(i % 3 * 2000 + 1); looks > 0 && got == nullptr; --looks)
        (void)VipRecvDone(data, &got);  // and sees half of it, sometimes
      CHILD_EXPECT(VipRecvWait(control, kSoon, &word) == VIP_SUCCESS);
      CHILD_EXPECT(got != nullptr || VipRecvDone(data, &got) == VIP_SUCCESS);
      CHILD_EXPECT(filled(program.data(), got->CS.Length, i));
      (void)program.post_receive(data, 0, 0, kMost);
      (void)program.post_receive(control, 1, kMost, 64);
      CHILD_EXPECT(program.post_send(control, 2, 2 * kMost, 8) == VIP_SUCCESS);
      (void)sent(control);
    }
    return 0;
  });
  Program program(4 * std::size_t{kMost});
  const VIP_VI_HANDLE data = program.make_vi({.max_transfer = kMost}), control = program.make_vi();
  ASSERT_EQ(program.post_receive(control, 3, kMost, 64), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name + ".data", data), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name + ".control", control), VIP_SUCCESS);
  for (unsigned i = 0; i < kMessages; ++i) {
    const std::uint32_t length = 20'000 + i * 17'011 % (kMost - 20'000);
    fill(program.data(), length, i);
    ASSERT_EQ(program.post_send(data, 0, 0, length), VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    ASSERT_EQ(VipSendWait(data, kSoon, &done), VIP_SUCCESS) << length;
    std::memset(program.data(), 0, length);
    ASSERT_EQ(program.post_send(control, 1, 2 * kMost, 8), VIP_SUCCESS);
    (void)sent(control);
    ASSERT_EQ(VipRecvWait(control, kSoon, &done), VIP_SUCCESS);
    ASSERT_EQ(program.post_receive(control, done), VIP_SUCCESS);
  }
  EXPECT_EQ(child.wait(), 0);
}

// Both want the same offer, again and again: a receiver that dawdles and a sender whose patience ends at the same time.
TEST_P(ViplOffer, TakenBackAtAnyMoment) {
  const HangGuard guard;
  const std::string name =
      own_name("offer.race") + (GetParam().provider ? "p" : "o") + std::to_string(GetParam().level);
  constexpr std::uint32_t kSlots = 4;
  const int rounds = viaduct::testing::rounds(6000);
  const auto length_of = [](int i) { return 64u * 1024 + static_cast<std::uint32_t>(i * 7919 % (kMost / 4 - 65536)); };
  const ViOptions options{.level = GetParam().level, .max_transfer = kMost / 4};
  const auto dawdle = [](Random& random) {
    const std::uint64_t turns = random.chance(0.3) ? random.below(100'000) : random.below(2'000);
    for (std::uint64_t i = 0; i < turns; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  };
  Child child([&] {
    Random random(11);
    Program program(kMost + 4096, false, GetParam().provider);
    const VIP_VI_HANDLE vi = program.make_vi(options);
    for (std::uint32_t i = 0; i < kSlots; ++i) (void)program.post_receive(vi, i, i * kMost / 4, kMost / 4);
    CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
    for (int i = 0; i < rounds; ++i) {
      dawdle(random);
      if (i % 200 == 7) ::usleep(20'000);  // longer than any patience
      VIP_DESCRIPTOR* const got = received(vi);
      const std::uint32_t slot = static_cast<std::uint32_t>(i) % kSlots;
      CHILD_EXPECT(got == program.descriptor(slot) && got->CS.Length == length_of(i));
      const std::byte* const bytes = program.data(slot * kMost / 4);
      const std::size_t all = got->CS.Length, half = all / 2 / 4096 * 4096;
      for (const std::size_t at : {std::size_t{0}, half - 1, half, all - 1})
        CHILD_EXPECT(bytes[at] == static_cast<std::byte>(i));
      for (int look = 0; look < 50; ++look) CHILD_EXPECT(bytes[random.below(all)] == static_cast<std::byte>(i));
      CHILD_EXPECT(program.post_receive(vi, got) == VIP_SUCCESS);
      CHILD_EXPECT(program.post_send(vi, 10, kMost, 4) == VIP_SUCCESS);  // there is place for one more
      (void)sent(vi);
    }
    return 0;
  });
  Random random(12);
  Program program(kMost + 4096, false, GetParam().provider);
  const VIP_VI_HANDLE vi = program.make_vi(options);
  for (std::uint32_t i = 0; i < 16; ++i) ASSERT_EQ(program.post_receive(vi, 20 + i, kMost, 64), VIP_SUCCESS);
  ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
  const std::uint64_t offers = offered(), back = taken_back();
  const auto hear = [&] { ASSERT_EQ(program.post_receive(vi, received(vi)), VIP_SUCCESS); };
  for (int i = 0; i < rounds; ++i) {
    if (i >= static_cast<int>(kSlots)) hear();
    const std::uint32_t slot = static_cast<std::uint32_t>(i) % 2;
    std::memset(program.data(slot * kMost / 4), i & 0xff, length_of(i));
    ASSERT_EQ(program.post_send(vi, slot, slot * kMost / 4, length_of(i)), VIP_SUCCESS);
    if (i % 2 == 0) continue;
    dawdle(random);
    for (std::uint32_t other = 0; other < 2; ++other) {
      VIP_DESCRIPTOR* done = nullptr;
      if (random.chance(0.1)) {
        ASSERT_EQ(VipSendWait(vi, kSoon, &done), VIP_SUCCESS);
      } else {
        done = sent(vi);
      }
      ASSERT_EQ(done, program.descriptor(other));
      std::memset(program.data(other * kMost / 4), 0xee, kMost / 4);  // ours again
    }
  }
  for (std::uint32_t i = 0; i < kSlots; ++i) hear();
  EXPECT_EQ(child.wait(), 0);
  if (kSanitized) return;  // so few rounds, so slow: it may be one or the other
  EXPECT_GT(offered(), offers);
  EXPECT_GT(taken_back(), back);
}

// The sender reaches the receiver's memory, and the receiver not the sender's: from the beginning, then there are no
// offers; or all of a sudden, then it hands one back.
TEST(ViplOffer, AReceiverThatCannotFetch) {
  const HangGuard guard;
  constexpr unsigned kMessages = 20;
  for (const bool from_the_beginning : {true, false}) {
    const std::string name = own_name(from_the_beginning ? "offer.never" : "offer.returned");
    Child child([&] {
      if (from_the_beginning) copy::PeerMemory::forbid_cma();
      Program program(2 * std::size_t{kMost});
      const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kMost});
      for (std::uint32_t i = 0; i < 2; ++i) (void)program.post_receive(vi, i, i * kMost, kMost);
      CHILD_EXPECT(program.request(name, vi) == VIP_SUCCESS);
      for (unsigned i = 0; i < kMessages; ++i) {
        if (i == kMessages / 2) copy::PeerMemory::forbid_cma();
        VIP_DESCRIPTOR* got = nullptr;
        CHILD_EXPECT((i % 2 == 0 ? VipRecvWait(vi, kSoon, &got) : (got = received(vi), VIP_SUCCESS)) == VIP_SUCCESS);
        CHILD_EXPECT(filled(program.data(i % 2 * kMost), got->CS.Length, i));
        if (i % 2 == 0) continue;
        for (std::uint32_t j = 0; j < 2; ++j) (void)program.post_receive(vi, j, j * kMost, kMost);
        CHILD_EXPECT(program.post_send(vi, 10, 0, 4) == VIP_SUCCESS);
        (void)sent(vi);
      }
      return 0;
    });
    Program program(4 * std::size_t{kMost});
    const VIP_VI_HANDLE vi = program.make_vi({.max_transfer = kMost});
    ASSERT_EQ(program.post_receive(vi, 5, 3 * kMost, 64), VIP_SUCCESS);
    ASSERT_EQ(program.serve(name, vi), VIP_SUCCESS);
    const std::uint64_t before = offered();
    for (unsigned i = 0; i < kMessages; ++i) {
      fill(program.data(i % 2 * kMost), kLong + i, i);
      ASSERT_EQ(program.post_send(vi, i % 2, i % 2 * kMost, kLong + i), VIP_SUCCESS);
      if (i % 2 == 0) continue;
      VIP_DESCRIPTOR* done = nullptr;
      ASSERT_EQ(VipRecvWait(vi, kSoon, &done), VIP_SUCCESS);
      ASSERT_EQ(program.post_receive(vi, done), VIP_SUCCESS);
      for (int j = 0; j < 2; ++j) (void)sent(vi);
    }
    EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(offered() != before, !from_the_beginning);
  }
}

// ---- what is taken away meanwhile

// The receiver's memory, before it has fetched its half: that breaks the connection, and nothing more is written.
TEST_P(ViplOffer, IntoMemoryThatIsDeregisteredMeanwhile) {
  const HangGuard guard;
  for (const bool sender_gives_up : {false, true}) {
    Pair pair(GetParam().level, GetParam().provider);
    const VIP_MEM_HANDLE handle = pair.register_apart(pair.target());
    VIP_DESCRIPTOR* const receive = pair.program.prepare(0, {{2 * kMost, kMost}});
    receive->DS[0].Local.Handle = handle;
    ASSERT_EQ(pair.program.post_receive(pair.b, receive), VIP_SUCCESS);
    fill(pair.program.data(), kMost, 5);
    ASSERT_EQ(pair.program.post_send(pair.a, 1, 0, kMost), VIP_SUCCESS);
    ASSERT_EQ(VipDeregisterMem(pair.program.nic, pair.target(), handle), VIP_SUCCESS);
    std::memset(pair.target(), 0, kMost);
    VIP_DESCRIPTOR* done = nullptr;
    for (int i = 0; sender_gives_up && i < 2000; ++i) {
      ASSERT_EQ(VipSendDone(pair.a, &done), VIP_NOT_DONE);
    }
    EXPECT_EQ(VipRecvDone(pair.b, &done), VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(done->CS.Status & VIP_STATUS_ERROR_MASK, VIP_STATUS_PROTECTION_ERROR);
    EXPECT_EQ(pair.program.state(pair.b), VIP_STATE_ERROR);
    EXPECT_EQ(sent(pair.a, VIP_DESCRIPTOR_ERROR), pair.program.descriptor(1));
    EXPECT_EQ(pair.program.state(pair.a), VIP_STATE_ERROR);
    EXPECT_EQ(std::count(pair.target(), pair.target() + kMost, std::byte{0}), static_cast<std::ptrdiff_t>(kMost));
  }
}

// The sender's memory: its fault, and its status.
TEST_P(ViplOffer, FromMemoryThatIsDeregisteredMeanwhile) {
  const HangGuard guard;
  for (const bool sender_gives_up : {false, true}) {
    Pair pair(GetParam().level, GetParam().provider);
    const VIP_MEM_HANDLE handle = pair.register_apart(pair.program.data());
    ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
    VIP_DESCRIPTOR* const send = pair.program.prepare(1, {{0, kMost}});
    send->DS[0].Local.Handle = handle;
    ASSERT_EQ(pair.program.post_send(pair.a, send), VIP_SUCCESS);
    ASSERT_EQ(VipDeregisterMem(pair.program.nic, pair.program.data(), handle), VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    for (int i = 0; sender_gives_up && i < 2000; ++i) {
      ASSERT_EQ(VipSendDone(pair.a, &done), VIP_NOT_DONE);
    }
    ASSERT_EQ(VipRecvDone(pair.b, &done), VIP_NOT_DONE);
    EXPECT_EQ(sent(pair.a, VIP_DESCRIPTOR_ERROR), send);
    EXPECT_EQ(send->CS.Status & VIP_STATUS_ERROR_MASK, VIP_STATUS_PROTECTION_ERROR);
    EXPECT_EQ(pair.program.state(pair.a), VIP_STATE_ERROR);
    EXPECT_EQ(received(pair.b, VIP_DESCRIPTOR_ERROR), pair.program.descriptor(0));
    EXPECT_EQ(pair.program.state(pair.b), VIP_STATE_ERROR);
  }
}

// Either side takes back what it has posted: the other touches it no more, and does not hand it to its program.
TEST_P(ViplOffer, NothingIsTouchedAfterDisconnecting) {
  const HangGuard guard;
  for (const bool receiver_goes : {true, false}) {
    Pair pair(GetParam().level, GetParam().provider);
    ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
    fill(pair.program.data(), kMost, 5);
    ASSERT_EQ(pair.program.post_send(pair.a, 1, 0, kMost), VIP_SUCCESS);
    ASSERT_EQ(VipDisconnect(receiver_goes ? pair.b : pair.a), VIP_SUCCESS);
    std::memset(pair.target(), 0, kMost);
    (void)sent(pair.a, VIP_DESCRIPTOR_ERROR);
    (void)received(pair.b, VIP_DESCRIPTOR_ERROR);
    EXPECT_EQ(std::count(pair.target(), pair.target() + kMost, std::byte{0}), static_cast<std::ptrdiff_t>(kMost));
    EXPECT_NE(pair.program.descriptor(0)->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR, 0u);
  }
}

// What was taken has been taken, though what came behind it broke the connection in the same breath.
TEST_P(ViplOffer, IsCompleteBeforeTheConnectionBreaks) {
  const HangGuard guard;
  Pair pair(GetParam().level, GetParam().provider);
  ASSERT_EQ(pair.program.post_receive(pair.b, 0, 2 * kMost, kMost), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.a, 1, 0, kMost), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.a, 2, 0, 8), VIP_SUCCESS);  // for which there is no receive
  EXPECT_EQ(received(pair.b), pair.program.descriptor(0));
  while (pair.program.state(pair.b) == VIP_STATE_CONNECTED) continue;
  EXPECT_EQ(sent(pair.a), pair.program.descriptor(1));
  if (GetParam().level == VIP_SERVICE_RELIABLE_RECEPTION) {
    EXPECT_EQ(sent(pair.a, VIP_DESCRIPTOR_ERROR)->CS.Status & VIP_STATUS_ERROR_MASK, VIP_STATUS_REMOTE_DESC_ERROR);
  } else {
    EXPECT_EQ(sent(pair.a), pair.program.descriptor(2));
  }
}

}  // namespace
}  // namespace viaduct::vipl::testing
