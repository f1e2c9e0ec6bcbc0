// Offers and what may come between: the next connection of the same VI or of another in its place, an end right after a
// completion, a full ring, another thread that leads, signals, a peer that shows somebody else's table.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include "via/vipl/nic.hpp"
#include "via/vipl/tables.hpp"
#include "via/vipl_program.hpp"
#include "via/vipl_stranger.hpp"

namespace viaduct::vipl::testing {
namespace {

constexpr std::uint32_t kMost = 1u << 20;
constexpr std::uint32_t kLong = 512u << 10;

struct Pair {
  explicit Pair(VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY, VIP_CQ_HANDLE (*cq)(Program&) = nullptr)
      : program(6 * std::size_t{kMost}, false),
        sends(cq == nullptr ? nullptr : cq(program)),
        a(program.make_vi({.level = level, .max_transfer = kMost, .send_cq = sends})),
        b(program.make_vi({.level = level, .max_transfer = kMost})) {
    errors.listen(program.nic);
    connect_here(program, a, b);
    fill(program.data(), kLong, 5);
  }
  std::byte* target() const { return program.data(2 * kMost); }
  VIP_RETURN post_receive() { return program.post_receive(b, 0, 2 * kMost, kMost); }
  VIP_RETURN offer(std::size_t index = 1) { return program.post_send(a, index, 0, kLong); }
  ErrorLog errors;  // goes after the program that reports to it
  Program program;
  VIP_CQ_HANDLE sends;
  VIP_VI_HANDLE a, b;
};

// ---- the end, and another connection

enum class Then { nothing, another_connection, another_vi };
class ViplOfferComplete : public ::testing::TestWithParam<std::tuple<VIP_RELIABILITY_LEVEL, Then>> {};
INSTANTIATE_TEST_SUITE_P(
    , ViplOfferComplete,
    ::testing::Combine(::testing::Values(VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION),
                       ::testing::Values(Then::nothing, Then::another_connection, Then::another_vi)));

// Taken back and complete: it is received, though the sender has left, and whatever has come into its place.
TEST_P(ViplOfferComplete, IsReceivedWhateverTheSenderDoesNext) {
  const HangGuard guard;
  const auto [level, then] = GetParam();
  Pair pair(level);
  ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
  ASSERT_EQ(pair.offer(), VIP_SUCCESS);
  EXPECT_EQ(sent(pair.a)->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND);
  ASSERT_EQ(VipDisconnect(pair.a), VIP_SUCCESS);
  VIP_VI_HANDLE next = pair.a;
  if (then == Then::another_vi) {
    ASSERT_EQ(VipDestroyVi(pair.a), VIP_SUCCESS);
    pair.program.forget(pair.a);
    next = pair.program.make_vi({.level = level, .max_transfer = kMost});
    ASSERT_EQ(pair.program.post_receive(next, 7, 4 * kMost, kMost), VIP_SUCCESS);
  }
  if (then != Then::nothing)
    connect_here(pair.program, next, pair.program.make_vi({.level = level, .max_transfer = kMost}));
  EXPECT_EQ(received(pair.b), pair.program.descriptor(0));
  EXPECT_TRUE(filled(pair.target(), kLong, 5));
}

// What has become of an offer of the next connection is not taken for this one's.
TEST(ViplOfferOrder, ConnectionsAreToldApart) {
  const HangGuard guard;
  for (const bool sender_goes_on : {true, false}) {
    Pair pair;
    ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
    ASSERT_EQ(pair.offer(), VIP_SUCCESS);
    const VIP_VI_HANDLE other = pair.program.make_vi({.max_transfer = kMost});
    if (sender_goes_on) {
      ASSERT_EQ(VipDisconnect(pair.a), VIP_SUCCESS);
      (void)sent(pair.a, VIP_DESCRIPTOR_ERROR);
      ASSERT_EQ(pair.program.post_receive(other, 7, 4 * kMost, kMost), VIP_SUCCESS);
      connect_here(pair.program, pair.a, other);
      ASSERT_EQ(pair.offer(), VIP_SUCCESS);
      (void)sent(pair.a);  // taken back
      EXPECT_EQ(received(pair.b, VIP_DESCRIPTOR_ERROR), pair.program.descriptor(0));
    } else {
      ASSERT_EQ(VipDisconnect(pair.b), VIP_SUCCESS);
      (void)received(pair.b, VIP_DESCRIPTOR_ERROR);
      ASSERT_EQ(pair.program.post_receive(pair.b, 7, 4 * kMost, kMost), VIP_SUCCESS);
      connect_here(pair.program, other, pair.b);
      ASSERT_EQ(pair.program.post_send(other, 2, 0, kLong), VIP_SUCCESS);
      (void)received(pair.b);
      EXPECT_EQ(sent(pair.a, VIP_DESCRIPTOR_ERROR), pair.program.descriptor(1)) << "nobody has received it";
    }
  }
}

// Received, and then the receiver leaves, or the next message breaks the connection: this one has arrived.
TEST(ViplOfferOrder, ReceivedBeforeTheEnd) {
  const HangGuard guard;
  for (const bool breaks : {false, true}) {
    Pair pair(VIP_SERVICE_RELIABLE_DELIVERY, [](Program& program) { return program.make_cq(); });
    ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
    ASSERT_EQ(pair.offer(), VIP_SUCCESS);
    if (breaks) {
      ASSERT_EQ(pair.program.post_send(pair.a, 2, 0, 8), VIP_SUCCESS);
    }
    EXPECT_EQ(received(pair.b), pair.program.descriptor(0));
    if (breaks) {
      VIP_DESCRIPTOR* none = nullptr;
      (void)VipRecvDone(pair.b, &none);
    } else {
      ASSERT_EQ(VipDisconnect(pair.b), VIP_SUCCESS);
    }
    VIP_VI_HANDLE which;
    VIP_BOOLEAN receive;
    while (VipCQDone(pair.sends, &which, &receive) == VIP_NOT_DONE) continue;
    EXPECT_EQ(sent(pair.a), pair.program.descriptor(1)) << "breaks: " << breaks;
  }
}

// Nobody has looked at the send meanwhile, and its queue goes back to the program.
TEST(ViplOfferOrder, ReceivedBeforeTheSenderLeaves) {
  const HangGuard guard;
  Pair pair;
  ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
  ASSERT_EQ(pair.offer(), VIP_SUCCESS);
  EXPECT_EQ(received(pair.b), pair.program.descriptor(0));
  ASSERT_EQ(VipDisconnect(pair.a), VIP_SUCCESS);
  EXPECT_EQ(sent(pair.a), pair.program.descriptor(1));
}

// The receiver's program has looked at its sends, by which its half has come; it never calls again.
TEST(ViplOfferOrder, AReceiverThatHasBegunAndDoesNotGoOn) {
  const HangGuard guard;
  Pair pair;
  constexpr std::uint32_t kSends = 8;
  for (std::uint32_t i = 0; i < kSends; ++i)
    ASSERT_EQ(pair.program.post_receive(pair.a, 10 + i, 4 * kMost, 64), VIP_SUCCESS);
  ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
  for (std::uint32_t i = 0; i < kSends; ++i)
    ASSERT_EQ(pair.program.post_send(pair.b, 20 + i, 4 * kMost, 8), VIP_SUCCESS);
  ASSERT_EQ(pair.offer(), VIP_SUCCESS);
  for (std::uint32_t i = 0; i < kSends; ++i) (void)sent(pair.b);
  EXPECT_TRUE(filled(pair.target(), kLong, 5)) << "all of it is there";
  EXPECT_EQ(sent(pair.a), pair.program.descriptor(1));
}

// ---- what does not work out

// The sender cannot write its half of the second message: the first one does not mind.
TEST(ViplOfferOrder, TheOneBeforeIsNotHeldUp) {
  const HangGuard guard;
  Pair pair;
  void* const memory = ::mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  VIP_MEM_ATTRIBUTES attributes{pair.program.tag, VIP_FALSE, VIP_FALSE};
  VIP_MEM_HANDLE handle = 0;
  ASSERT_EQ(VipRegisterMem(pair.program.nic, memory, kMost, &attributes, &handle), VIP_SUCCESS);
  ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
  VIP_DESCRIPTOR* const second = pair.program.prepare(1, {{0, kMost}});
  second->DS[0].Local.Handle = handle;
  second->DS[0].Local.Data.Address = memory;
  ASSERT_EQ(pair.program.post_receive(pair.b, second), VIP_SUCCESS);
  ::munmap(memory, kMost);  // and is registered all the same
  for (const std::size_t index : {2, 3}) ASSERT_EQ(pair.offer(index), VIP_SUCCESS);
  EXPECT_EQ(received(pair.b), pair.program.descriptor(0));
  EXPECT_EQ(sent(pair.a), pair.program.descriptor(2));
  EXPECT_EQ(received(pair.b, VIP_DESCRIPTOR_ERROR), second);
  EXPECT_EQ(sent(pair.a, VIP_DESCRIPTOR_ERROR), pair.program.descriptor(3));
}

// So little room that not all of what an offer takes would fit: whatever completes is received.
TEST(ViplOfferOrder, IntoARingThatIsAlmostFull) {
  const HangGuard guard;
  constexpr std::uint32_t kMany = 200, kRoom = 128;
  std::uint32_t fitted = 0;
  for (std::uint32_t before = 100; before < 130; ++before) {
    Pair pair;
    // The descriptors of small messages, each with its bytes.
    std::byte* const small = pair.program.data(4 * kMost);
    const auto make = [&](std::uint32_t i) {
      auto* const one = reinterpret_cast<VIP_DESCRIPTOR*>(small + std::size_t{i} * kRoom);
      std::memset(one, 0, sizeof *one);
      one->CS.SegCount = 1;
      one->CS.Length = 8;
      one->DS[0].Local = {{.Address = one + 1}, pair.program.handle, 8};
      return one;
    };
    for (std::uint32_t i = 0; i < before; ++i)
      ASSERT_EQ(VipPostRecv(pair.b, make(i), pair.program.handle), VIP_SUCCESS);
    ASSERT_EQ(pair.post_receive(), VIP_SUCCESS);
    VIP_DESCRIPTOR* done = nullptr;
    for (std::uint32_t i = 0; i < before; ++i) {
      ASSERT_EQ(VipPostSend(pair.a, make(kMany), pair.program.handle), VIP_SUCCESS);
      if (VipSendDone(pair.a, &done) != VIP_SUCCESS) break;
    }
    ASSERT_EQ(pair.offer(), VIP_SUCCESS);
    VIP_RETURN result = VIP_NOT_DONE;
    for (int look = 0; look < 5'000 && result == VIP_NOT_DONE; ++look) result = VipSendDone(pair.a, &done);
    if (result != VIP_SUCCESS || done != pair.program.descriptor(1)) continue;  // no room at all
    ++fitted;
    ASSERT_EQ(VipDisconnect(pair.a), VIP_SUCCESS);
    for (std::uint32_t i = 0; i < before; ++i)
      ASSERT_EQ(received(pair.b), reinterpret_cast<VIP_DESCRIPTOR*>(small + std::size_t{i} * kRoom));
    EXPECT_EQ(received(pair.b), pair.program.descriptor(0)) << "its send was complete, behind " << before;
    EXPECT_TRUE(filled(pair.target(), kLong, 5));
  }
  EXPECT_GT(fitted, 10u);
}

// A message by reference has been taken; a short send that waited does not make us forget to say so.
TEST(ViplOfferOrder, TakenIsTold) {
  const HangGuard guard;
  Pair pair;
  const auto two = [&](std::size_t index, std::size_t offset) {
    return pair.program.prepare(index, {{offset, 64}, {offset + 64, kLong}});
  };
  ASSERT_EQ(pair.program.post_receive(pair.a, two(0, 2 * kMost)), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_receive(pair.b, two(1, 3 * kMost)), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_receive(pair.b, 2, 4 * kMost, 64), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.a, 3, 0, kLong), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.b, 4, 0, kLong), VIP_SUCCESS);
  ASSERT_EQ(pair.program.post_send(pair.a, 5, 0, 8), VIP_SUCCESS);  // waits behind the first
  EXPECT_EQ(received(pair.b), pair.program.descriptor(1));
  EXPECT_EQ(sent(pair.a), pair.program.descriptor(3));
  EXPECT_EQ(received(pair.a), pair.program.descriptor(0));
  EXPECT_EQ(sent(pair.b), pair.program.descriptor(4));
}

TEST(ViplOfferOrder, SignalsBreakNothing) {
  const HangGuard guard;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  Pair pair;
  const int rounds = viaduct::testing::rounds(2'000);
  std::atomic<bool> over{false};
  std::thread pest([&over, self = ::pthread_self()] {
    for (int i = 0; !over; ++i)
      if (i % 3000 == 0) ::pthread_kill(self, SIGUSR1);
  });
  for (int i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
    EXPECT_EQ(pair.post_receive(), VIP_SUCCESS);
    EXPECT_EQ(pair.program.post_send(pair.a, 1, 0, 128u << 10), VIP_SUCCESS);
    EXPECT_EQ(received(pair.b), pair.program.descriptor(0));
    EXPECT_EQ(sent(pair.a), pair.program.descriptor(1));
  }
  over = true;
  pest.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

// ---- another thread

// It sleeps as the adapter's leader, for another VI: our offer is taken back, or seen to be fetched, all the same.
TEST(ViplOfferOrder, WhileAnotherThreadSleepsAsLeader) {
  const HangGuard guard;
  enum class How { asks, waits, waits_for_send };
  for (const bool receiver_looks : {true, false})
    for (const How how : {How::asks, How::waits, How::waits_for_send}) {
      Program program(6 * std::size_t{kMost}, false), other(6 * std::size_t{kMost}, false);
      const VIP_CQ_HANDLE cq = how == How::waits_for_send ? nullptr : program.make_cq();
      const VIP_VI_HANDLE a = program.make_vi({.max_transfer = kMost, .send_cq = cq});
      const VIP_VI_HANDLE b = other.make_vi({.max_transfer = kMost});
      const VIP_VI_HANDLE c = program.make_vi(), d = program.make_vi();
      connect_here(program, c, d);
      const std::string name =
          own_name("leader") + (receiver_looks ? "1" : "0") + std::to_string(static_cast<int>(how));
      std::thread server([&] { EXPECT_EQ(program.serve(name, a), VIP_SUCCESS); });
      EXPECT_EQ(other.request(name, b), VIP_SUCCESS);
      server.join();
      ASSERT_EQ(program.post_receive(d, 9, 4 * kMost, 64), VIP_SUCCESS);
      ASSERT_EQ(other.post_receive(b, 0, 2 * kMost, kMost), VIP_SUCCESS);
      std::thread leader([&] {
        VIP_DESCRIPTOR* got = nullptr;
        EXPECT_EQ(VipRecvWait(d, kSoon, &got), VIP_SUCCESS);
      });
      if (how != How::asks) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it sleeps by now
      ASSERT_EQ(program.post_send(a, 1, 0, kLong), VIP_SUCCESS);
      if (receiver_looks) {
        EXPECT_EQ(received(b), other.descriptor(0));
      }
      VIP_DESCRIPTOR* done = nullptr;
      VIP_VI_HANDLE which;
      VIP_BOOLEAN receive;
      switch (how) {
        case How::asks:
          while (VipCQDone(cq, &which, &receive) == VIP_NOT_DONE) continue;
          break;
        case How::waits:
          EXPECT_EQ(VipCQWait(cq, kSoon, &which, &receive), VIP_SUCCESS);
          break;
        case How::waits_for_send:
          EXPECT_EQ(VipSendWait(a, kSoon, &done), VIP_SUCCESS);
      }
      ASSERT_EQ(program.post_send(c, 2, 0, 8), VIP_SUCCESS);
      leader.join();
    }
}

// ---- a peer that shows another's table

// The stranger, of another process, says that it is a VI of the victim: what is sent to it must not end up there.
TEST(ViplOfferOrder, SomebodyElsesReceivesAreNotWrittenTo) {
  const HangGuard guard;
  Program us(4 * std::size_t{kMost}, false), victim(4 * std::size_t{kMost}, false);
  ErrorLog errors;
  errors.listen(us.nic);
  const VIP_VI_HANDLE a = us.make_vi({.max_transfer = kMost}), v = victim.make_vi({.max_transfer = kMost});
  const std::string name = own_name("deputy"), second = own_name("deputy.2");
  std::thread server([&] { EXPECT_EQ(us.serve(name, a), VIP_SUCCESS); });
  EXPECT_EQ(victim.request(name, v), VIP_SUCCESS);
  server.join();
  const VIP_VI_HANDLE w = victim.make_vi({.max_transfer = kMost}), x = victim.make_vi({.max_transfer = kMost});
  connect_here(victim, w, x);
  ASSERT_EQ(victim.post_receive(w, 0, 0, kMost), VIP_SUCCESS);
  const Registrations& table = nics().find(victim.nic)->registrations();
  const Fd its_table(::dup(table.segment().fd()));
  const Vi& posted = *vis().find(w);
  Description description{};
  description.max_transfer = kMost;
  description.reliability = VIP_SERVICE_RELIABLE_DELIVERY;
  via::Greeting greeting{};
  greeting.magic = via::kGreetingMagic;
  greeting.version = via::kGreetingVersion;
  greeting.length = sizeof description;
  greeting.slot = posted.slot();
  greeting.tag = posted.tag();
  greeting.connection = table.view().words(posted.slot()).connection.load();
  Child stranger([&] {
    WireAddress remote{};
    remote.discriminator_length = static_cast<std::uint16_t>(second.size());
    second.copy(reinterpret_cast<char*>(remote.bytes), sizeof remote.bytes);
    for (;; ::usleep(500)) {
      auto socket = meeting::connect_at(server_place(remote).here);
      if (!socket) continue;
      const int table_fd = its_table.get();
      CHILD_EXPECT(send_with_fds(socket->get(), std::as_bytes(std::span(&greeting, 1)), {&table_fd, 1}).ok());
      CHILD_EXPECT(send_with_fds(socket->get(), std::as_bytes(std::span(&description, 1)), {}).ok());
      via::Answer answer{};
      Description theirs{};
      const auto take = [&](auto& message) {
        return ::recv(socket->get(), &message, sizeof message, MSG_WAITALL) == sizeof message;
      };
      CHILD_EXPECT(::fcntl(socket->get(), F_SETFL, 0) == 0);
      CHILD_EXPECT(take(answer) && answer.yes == 1 && take(theirs) && take(greeting));
      std::error_code fault;
      const auto channel = via::join_channel(socket->release(), 1000, fault);
      CHILD_EXPECT(channel != nullptr);
      answer.length = 0;
      CHILD_EXPECT(send_with_fds(channel->shared()->descriptor(), std::as_bytes(std::span(&answer, 1)), {}).ok());
      ::pause();  // until killed
    }
  });
  const VIP_VI_HANDLE s = us.make_vi({.max_transfer = kMost});
  ASSERT_EQ(us.serve(second, s), VIP_SUCCESS);
  std::memset(us.data(), 7, kMost);
  ASSERT_EQ(us.post_send(s, 1, 0, kLong), VIP_SUCCESS);
  VIP_DESCRIPTOR* done = nullptr;
  for (int i = 0; i < 3000; ++i) (void)VipSendDone(s, &done);
  EXPECT_EQ(std::count(victim.data(), victim.data() + kMost, std::byte{7}), 0);
}

}  // namespace
}  // namespace viaduct::vipl::testing
