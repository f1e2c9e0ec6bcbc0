// What every transport of a channel must do, whatever carries it: the tests know the interface and a factory.
//
// Some hold both ends in one thread. The others give each end a role, which runs in a thread or in a process of its
// own; a role returns 0 or, by CHILD_EXPECT, says where it failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"
#include "via/messages.hpp"

namespace viaduct::via {
namespace {

using namespace via::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using viaduct::testing::rounds;

using Role = std::function<int(Channel&)>;

struct Transport {
  const char* name;
  // Both ends here.
  std::function<ChannelPair(const ChannelOptions&)> pair;
  // One end for each role, each running by itself; each end is closed when its role returns.
  std::function<void(const ChannelOptions&, const Role& near, const Role& far)> run;
};

// ---- the transports there are

ChannelPair shm_pair(const ChannelOptions& options) {
  std::error_code fault;
  ChannelPair pair = make_channel_pair(options, fault);
  EXPECT_FALSE(fault) << fault.message();
  return pair;
}

ChannelPair shm_over_socket(const ChannelOptions& options) {
  auto sockets = make_socket_pair(SOCK_STREAM);
  std::error_code opened, joined;
  ChannelPair pair;
  pair.first = open_channel(sockets->first.release(), options, opened);
  pair.second = join_channel(sockets->second.release(), 1000, joined);
  EXPECT_FALSE(opened || joined);
  return pair;
}

void run_in_threads(const ChannelOptions& options, const Role& near, const Role& far) {
  ChannelPair pair = shm_pair(options);
  std::thread other([&] {
    EXPECT_EQ(far(*pair.second), 0);
    pair.second.reset();
  });
  EXPECT_EQ(near(*pair.first), 0);
  pair.first.reset();
  other.join();
}

void run_in_processes(const ChannelOptions& options, const Role& near, const Role& far) {
  auto sockets = make_socket_pair(SOCK_STREAM);
  Child other([&] {
    sockets->first.reset();
    std::error_code fault;
    const auto channel = join_channel(sockets->second.release(), 10'000, fault);
    CHILD_EXPECT(channel != nullptr);
    return far(*channel);
  });
  sockets->second.reset();
  std::error_code fault;
  {
    const auto channel = open_channel(sockets->first.release(), options, fault);
    ASSERT_NE(channel, nullptr) << fault.message();
    EXPECT_EQ(near(*channel), 0);
  }
  EXPECT_EQ(other.wait(), 0);
}

const Transport kTransports[] = {
    {"shm_pair", shm_pair, run_in_threads},
    {"shm_processes", shm_over_socket, run_in_processes},
};

class ChannelConformance : public ::testing::TestWithParam<Transport> {
 protected:
  ChannelPair pair(const ChannelOptions& options = {}) const { return GetParam().pair(options); }
  void run(const Role& near, const Role& far, const ChannelOptions& options = {}) const {
    GetParam().run(options, near, far);
  }
  const HangGuard guard_;
};

INSTANTIATE_TEST_SUITE_P(, ChannelConformance, ::testing::ValuesIn(kTransports),
                         [](const auto& one) { return std::string(one.param.name); });

constexpr ChannelOptions kSmall{.bulk_bytes = 4096, .slots = 8};

std::size_t send_until_full(Channel& channel, std::span<const std::byte> bytes) {
  std::size_t sent = 0;
  while (send_fragment(channel, bytes, 0) == Sent::yes) ++sent;
  return sent;
}

std::size_t consume_all(Channel& channel) {
  Fragment fragment;
  std::size_t consumed = 0;
  for (; channel.peek(fragment) == Got::fragment; ++consumed) channel.consume();
  return consumed;
}

// ---- messages

TEST_P(ChannelConformance, AnEmptyChannelHasNothingAndIsOpen) {
  const ChannelPair ends = pair();
  Fragment fragment;
  for (Channel* end : {ends.first.get(), ends.second.get()}) {
    EXPECT_EQ(end->peek(fragment), Got::nothing);
    EXPECT_EQ(end->close_reason(), CloseReason::open);
    EXPECT_GT(end->credits(), 0u);
    EXPECT_GT(end->largest_fragment(), 52u);
  }
  EXPECT_EQ(ends.first->largest_fragment(), ends.second->largest_fragment());
}

TEST_P(ChannelConformance, CarriesImmediateDataInOrderBothWays) {
  const ChannelPair ends = pair();
  const std::uint32_t values[] = {0, 1, 2, 255, 256, 0x7fff'ffff, 0x8000'0000, UINT32_MAX - 1, UINT32_MAX};
  for (const std::uint32_t value : values) {
    EXPECT_EQ(ends.first->try_send({}, value), Sent::yes);
    EXPECT_EQ(ends.second->try_send({}, ~value), Sent::yes);
  }
  Fragment fragment;
  for (const std::uint32_t value : values) {
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    EXPECT_EQ(fragment.immediate, value);
    EXPECT_TRUE(fragment.last);
    EXPECT_TRUE(fragment.bytes.empty());
    ends.second->consume();
    ASSERT_EQ(ends.first->peek(fragment), Got::fragment);
    EXPECT_EQ(fragment.immediate, ~value);
    ends.first->consume();
  }
  EXPECT_EQ(ends.second->peek(fragment), Got::nothing);
}

TEST_P(ChannelConformance, CarriesEverySize) {
  const ChannelPair ends = pair();
  const std::size_t largest = ends.first->largest_fragment();
  std::vector<std::size_t> sizes(200);
  std::iota(sizes.begin(), sizes.end(), std::size_t{0});
  sizes.insert(sizes.end(), {1023, 1024, 1025, 4095, 4096, 4097, largest - 1, largest});
  for (const std::size_t size : sizes) {
    ASSERT_EQ(send_fragment(*ends.first, message(size, size), static_cast<std::uint32_t>(size), true), Sent::yes);
    Fragment fragment;
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    EXPECT_EQ(fragment.immediate, size);
    EXPECT_FALSE(fragment.last);
    ASSERT_EQ(fragment.bytes.size(), size);
    EXPECT_TRUE(matches(fragment.bytes, size)) << size;
    ends.second->consume();
  }
}

TEST_P(ChannelConformance, GathersFromManyPieces) {
  const ChannelPair ends = pair();
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t length = random.below(round % 2 == 0 ? 60 : ends.first->largest_fragment() + 1);
    Bytes bytes = message(length, 3);
    std::vector<iovec> pieces;
    for (std::size_t at = 0; at < length;) {
      if (random.chance(0.2)) pieces.push_back({nullptr, 0});
      if (random.chance(0.1)) pieces.push_back({bytes.data(), 0});
      const std::size_t size = std::min<std::size_t>(length - at, random.below(round % 3 == 0 ? 5 : 3000));
      pieces.push_back({bytes.data() + at, size});
      at += size;
    }
    pieces.push_back({nullptr, 0});
    ASSERT_EQ(ends.first->try_send(pieces, 9), Sent::yes);
    Fragment fragment;
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    ASSERT_EQ(fragment.bytes.size(), length);
    ASSERT_TRUE(matches(fragment.bytes, 3));
    ends.second->consume();
  }
}

TEST_P(ChannelConformance, ATooLongFragmentIsRefusedWithoutHarm) {
  const ChannelPair ends = pair(kSmall);
  Channel& sender = *ends.first;
  Bytes bytes = message(sender.largest_fragment() + 1, 1);
  const iovec endless[] = {{bytes.data(), SIZE_MAX}, {bytes.data(), 2}};  // their sum is 1 modulo 2^64
  for (const bool full : {false, true}) {
    EXPECT_NE(send_fragment(sender, bytes, 5), Sent::yes);
    EXPECT_NE(sender.try_send(endless, 5), Sent::yes);
    EXPECT_EQ(sender.close_reason(), CloseReason::open);
    EXPECT_EQ(sender.credits(bytes.size()), 0u);
    EXPECT_EQ(sender.wait_to_send(bytes.size(), 1000), std::errc::message_size) << "waiting would be in vain";
    EXPECT_NE(send_fragment(sender, bytes, 5), Sent::full) << (full ? "never" : "not even now");
    (void)send_until_full(sender, {});
  }
  EXPECT_GT(consume_all(*ends.second), 0u);
  EXPECT_EQ(send_fragment(sender, std::span(bytes).first(sender.largest_fragment()), 5), Sent::yes);
  Fragment fragment;
  ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
  EXPECT_TRUE(matches(fragment.bytes, 1));
}

TEST_P(ChannelConformance, PeekTakesNothingAwayAndConsumeNeedsNoLook) {
  const ChannelPair ends = pair();
  for (std::uint32_t n = 0; n < 6; ++n)
    ASSERT_EQ(send_fragment(*ends.first, message(n * 40, n), n, n % 2 == 1), Sent::yes);
  for (std::uint32_t n = 0; n < 6; ++n) {
    Fragment first, second;
    ASSERT_EQ(ends.second->peek(first), Got::fragment);
    ASSERT_EQ(ends.second->peek(second), Got::fragment);
    EXPECT_EQ(first.immediate, n);
    EXPECT_EQ(second.immediate, n);
    EXPECT_EQ(first.last, second.last);
    EXPECT_EQ(first.bytes.data(), second.bytes.data());
    EXPECT_EQ(first.bytes.size(), second.bytes.size());
    EXPECT_TRUE(n % 3 != 0 || matches(first.bytes, n));  // the others are dropped unread
    ends.second->consume();
  }
  Fragment fragment;
  EXPECT_EQ(ends.second->peek(fragment), Got::nothing);
  ends.second->consume();  // there is nothing: no harm
  ASSERT_EQ(ends.first->try_send({}, 77), Sent::yes);
  ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
  EXPECT_EQ(fragment.immediate, 77u);
}

TEST_P(ChannelConformance, AFragmentStaysAsItIsUntilItIsConsumed) {
  const ChannelPair ends = pair(kSmall);
  const std::size_t size = ends.first->largest_fragment() - 11;
  ASSERT_EQ(send_fragment(*ends.first, message(size, 1), 1), Sent::yes);
  Fragment fragment;
  ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
  while (send_fragment(*ends.first, message(size, 2), 2) == Sent::yes) {
  }
  EXPECT_TRUE(matches(fragment.bytes, 1)) << "overwritten by what came later";
}

// ---- flow control

TEST_P(ChannelConformance, IsFullOnceAndHasRoomAgainAfterConsuming) {
  for (const std::size_t size : {0, 52, 53, 500}) {
    const ChannelPair ends = pair(kSmall);
    const Bytes bytes = message(size, 0);
    const std::size_t promised = ends.first->credits(size);
    const std::size_t sent = send_until_full(*ends.first, bytes);
    EXPECT_GE(sent, promised);
    EXPECT_EQ(ends.first->credits(size), 0u);
    EXPECT_EQ(ends.first->close_reason(), CloseReason::open);
    EXPECT_GE(ends.first->statistics().refused_full, 1u);
    for (int lap = 0; lap < 50; ++lap) {
      EXPECT_EQ(consume_all(*ends.second), sent) << "of " << size << " bytes";
      EXPECT_GT(ends.first->credits(size), 0u);
      ASSERT_EQ(send_until_full(*ends.first, bytes), sent) << "of " << size << " bytes in lap " << lap;
    }
  }
}

// A receiver that takes only some of what is there makes room as well, if not at once.
TEST_P(ChannelConformance, RoomComesBackWhileMessagesAreLeft) {
  const ChannelPair ends = pair(kSmall);
  const std::size_t sent = send_until_full(*ends.first, {});
  Fragment fragment;
  for (std::size_t i = 0; i < sent / 2; ++i) {
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    ends.second->consume();
  }
  EXPECT_GT(ends.first->credits(), 0u);
  EXPECT_EQ(ends.first->try_send({}, 0), Sent::yes);
}

TEST_P(ChannelConformance, CreditsAreTrue) {
  for (const ChannelOptions& options : {kSmall, ChannelOptions{.bulk_bytes = 16384, .slots = 64}}) {
    const ChannelPair ends = pair(options);
    Random random(11);
    for (int round = 0; round < rounds(20'000); ++round) {
      const std::size_t length = random.below(random.chance(0.3) ? 64 : ends.first->largest_fragment() + 1);
      std::size_t promised = ends.first->credits(length);
      if (random.chance(0.5)) promised = random.below(promised + 1);
      for (std::size_t i = 0; i < promised; ++i) {
        const std::size_t size = random.chance(0.5) ? length : random.below(length + 1);
        ASSERT_EQ(send_fragment(*ends.first, message(size, i), 0), Sent::yes)
            << "credit " << i << " of " << promised << " for " << length << " bytes, round " << round;
      }
      Fragment fragment;
      for (std::uint64_t n = random.below(10); n > 0 && ends.second->peek(fragment) == Got::fragment; --n)
        ends.second->consume();
    }
  }
}

// Odd sizes, so that every alignment and every way of meeting the end of the area comes by.
TEST_P(ChannelConformance, MillionsOfBytesGoRoundIntact) {
  const ChannelPair ends = pair(kSmall);
  Random random(13);
  std::uint64_t sent = 0, received = 0;
  std::size_t bytes = 0;
  std::vector<std::size_t> sizes;
  while (bytes < static_cast<std::size_t>(rounds(8'000'000))) {
    const std::size_t size =
        random.below(4) == 0 ? random.below(100) : random.below(ends.first->largest_fragment() + 1);
    if (send_fragment(*ends.first, message(size, sent), static_cast<std::uint32_t>(sent)) == Sent::yes) {
      sizes.push_back(size);
      ++sent;
      if (random.chance(0.6)) continue;
    }
    Fragment fragment;
    for (std::uint64_t n = 1 + random.below(6); n > 0 && ends.second->peek(fragment) == Got::fragment; --n) {
      ASSERT_EQ(fragment.immediate, static_cast<std::uint32_t>(received));
      ASSERT_EQ(fragment.bytes.size(), sizes[received]);
      ASSERT_TRUE(matches(fragment.bytes, received)) << "message " << received;
      bytes += fragment.bytes.size();
      ++received;
      ends.second->consume();
    }
  }
}

TEST_P(ChannelConformance, CountsWhatItDoes) {
  const ChannelPair ends = pair();
  for (const std::size_t size : {0, 10, 52, 53, 4000})
    ASSERT_EQ(send_fragment(*ends.first, message(size, 0), 0), Sent::yes);
  EXPECT_EQ(consume_all(*ends.second), 5u);
  const auto sent = ends.first->statistics(), received = ends.second->statistics();
  EXPECT_EQ(sent.fragments_sent, 5u);
  EXPECT_EQ(sent.bytes_sent, 4115u);
  EXPECT_EQ(sent.fragments_received, 0u);
  EXPECT_EQ(sent.refused_full, 0u);
  EXPECT_EQ(sent.wakes_sent, 0u) << "nobody slept";
  EXPECT_EQ(received.fragments_received, 5u);
  EXPECT_EQ(received.bytes_received, 4115u);
  EXPECT_EQ(received.fragments_sent, 0u);
}

// ---- roles: long messages, both directions, sleeping

TEST_P(ChannelConformance, CarriesLongMessagesInFragments) {
  constexpr std::size_t kLength = std::size_t{4} << 20;
  constexpr std::uint32_t kMessages = 6;
  run(
      [](Channel& channel) {
        for (std::uint32_t n = 0; n < kMessages; ++n) CHILD_EXPECT(send_message(channel, message(kLength + n, n), n));
        CHILD_EXPECT(reaches_end(channel));
        return 0;
      },
      [](Channel& channel) {
        for (std::uint32_t n = 0; n < kMessages; ++n) {
          const auto received = receive_message(channel);
          CHILD_EXPECT(received);
          CHILD_EXPECT(received->immediate == n);
          CHILD_EXPECT(received->bytes.size() == kLength + n);
          CHILD_EXPECT(matches(received->bytes, n));
          CHILD_EXPECT(received->fragments > 1);
        }
        return 0;
      });
}

// One end: one thread sends and another receives, at the same time; the other end the same.
int send_and_receive_at_once(Channel& channel, std::uint64_t seed, int messages) {
  const auto length = [](int n) { return static_cast<std::size_t>(n) * 7919 % 3000; };
  std::atomic<bool> sent_all = false;
  std::thread sender([&] {
    for (int n = 0; n < messages; ++n)
      if (!send_message(channel, message(length(n), seed), static_cast<std::uint32_t>(n))) return;
    sent_all = true;
    channel.finish_sending();
  });
  int received = 0;
  while (const auto next = receive_message(channel)) {
    if (next->immediate != static_cast<std::uint32_t>(received) || next->bytes.size() != length(received)) break;
    if (!matches(next->bytes, 1 - seed)) break;
    ++received;
  }
  sender.join();
  CHILD_EXPECT(sent_all);
  CHILD_EXPECT(received == messages);
  CHILD_EXPECT(channel.close_reason() == CloseReason::peer_finished);
  return 0;
}

TEST_P(ChannelConformance, TwoThreadsUseOneEndAtOnce) {
  for (const ChannelOptions& options : {kSmall, ChannelOptions{}})
    run([](Channel& channel) { return send_and_receive_at_once(channel, 0, rounds(10'000)); },
        [](Channel& channel) { return send_and_receive_at_once(channel, 1, rounds(10'000)); }, options);
}

// On one end a thread sleeps for room and another for data; what comes first wakes the right one, whichever it is.
TEST_P(ChannelConformance, ASenderAndAReceiverSleepOnOneEnd) {
  constexpr int kRounds = rounds(1500);
  constexpr std::size_t kMessages = kSmall.slots + 4;
  run(
      [](Channel& channel) {
        for (int n = 0; n < kRounds; ++n) {
          bool sent = true;
          std::thread sender([&] {
            for (std::size_t i = 0; i < kMessages; ++i) sent = sent && send_message(channel, {}, 0);
          });
          const auto answer = receive_message(channel);
          sender.join();
          CHILD_EXPECT(sent && answer);
        }
        return 0;
      },
      [](Channel& channel) {
        for (int n = 0; n < kRounds; ++n) {
          if (n % 2 == 1) CHILD_EXPECT(channel.try_send({}, 0) == Sent::yes);
          for (std::size_t i = 0; i < kMessages; ++i) CHILD_EXPECT(receive_message(channel));
          if (n % 2 == 0) CHILD_EXPECT(channel.try_send({}, 0) == Sent::yes);
        }
        return 0;
      },
      kSmall);
}

TEST_P(ChannelConformance, QuestionAndAnswer) {
  constexpr std::uint32_t kRounds = rounds(20'000);
  run(
      [](Channel& channel) {
        for (std::uint32_t n = 0; n < kRounds; ++n) {
          CHILD_EXPECT(channel.try_send({}, n) == Sent::yes);
          const auto answer = receive_message(channel);
          CHILD_EXPECT(answer && answer->immediate == n + 1);
        }
        return 0;
      },
      [](Channel& channel) {
        while (const auto question = receive_message(channel))
          CHILD_EXPECT(channel.try_send({}, question->immediate + 1) == Sent::yes);
        return 0;
      });
}

// Each message fills the channel: the sender sleeps for room, the receiver for data, alternately.
TEST_P(ChannelConformance, FullAndEmptyInTurn) {
  constexpr int kRounds = rounds(2000);
  run(
      [](Channel& channel) {
        for (int n = 0; n < kRounds; ++n) CHILD_EXPECT(send_message(channel, message(16'000, 5), 0));
        return 0;
      },
      [](Channel& channel) {
        for (int n = 0; n < kRounds; ++n) {
          const auto received = receive_message(channel);
          CHILD_EXPECT(received && received->bytes.size() == 16'000);
          if (n % 64 == 0) CHILD_EXPECT(matches(received->bytes, 5));
        }
        CHILD_EXPECT(!receive_message(channel));
        CHILD_EXPECT(channel.close_reason() == CloseReason::peer_finished);
        return 0;
      },
      kSmall);
}

// ---- waiting

double milliseconds_of(const std::function<void()>& what) {
  const auto start = steady_clock::now();
  what();
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

TEST_P(ChannelConformance, WaitsAsLongAsItWasTold) {
  const ChannelPair ends = pair(kSmall);
  EXPECT_GT(send_until_full(*ends.first, {}), 0u);
  for (const int timeout : {0, 1, 30, 70}) {
    std::error_code result;
    const double receiving = milliseconds_of([&] { result = ends.first->wait_to_receive(timeout); });
    EXPECT_EQ(result, std::errc::timed_out);
    EXPECT_GE(receiving, timeout);
    const double sending = milliseconds_of([&] { result = ends.first->wait_to_send(0, timeout); });
    EXPECT_EQ(result, std::errc::timed_out);
    EXPECT_GE(sending, timeout);
    EXPECT_LT(receiving + sending, 2 * timeout + 1000);
  }
}

TEST_P(ChannelConformance, DoesNotWaitForWhatIsThere) {
  const ChannelPair ends = pair(kSmall);
  EXPECT_FALSE(ends.first->wait_to_send(0, 0));
  EXPECT_FALSE(ends.first->wait_to_send(ends.first->largest_fragment(), 0));
  ASSERT_EQ(ends.first->try_send({}, 0), Sent::yes);
  EXPECT_FALSE(ends.second->wait_to_receive(0));
  EXPECT_FALSE(ends.second->wait_to_receive(-1));
  EXPECT_EQ(consume_all(*ends.second), 1u);
}

std::atomic<int> signals_seen;

TEST_P(ChannelConformance, ASignalEndsTheWait) {
  const ChannelPair ends = pair(kSmall);
  EXPECT_GT(send_until_full(*ends.first, {}), 0u);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals_seen; };
  action.sa_flags = SA_RESTART;  // the waits return nevertheless
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  for (const bool to_send : {false, true}) {
    std::atomic<bool> returned = false;
    std::error_code result;
    std::thread waiter([&] {
      result = to_send ? ends.first->wait_to_send(0, -1) : ends.first->wait_to_receive(-1);
      returned = true;
    });
    // Wherever it is when the signal comes, a later one finds it asleep.
    while (!returned) {
      ::pthread_kill(waiter.native_handle(), SIGUSR1);
      std::this_thread::sleep_for(milliseconds(1));
    }
    waiter.join();
    EXPECT_EQ(result, std::errc::interrupted);
  }
  EXPECT_GT(signals_seen, 0);
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_GT(consume_all(*ends.second), 0u);
  EXPECT_EQ(ends.first->try_send({}, 0), Sent::yes) << "no harm was done";
}

bool readable(const Channel& channel, int timeout_ms) {
  pollfd entry{channel.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST_P(ChannelConformance, TheDescriptorIsReadableWhenArmed) {
  const ChannelPair ends = pair();
  Channel& receiver = *ends.second;
  ASSERT_TRUE(receiver.arm_to_receive());
  EXPECT_FALSE(readable(receiver, 0));
  ASSERT_EQ(ends.first->try_send({}, 1), Sent::yes);
  ASSERT_TRUE(readable(receiver, -1));
  receiver.disarm();
  EXPECT_FALSE(readable(receiver, 0)) << "disarmed: a further sleep would not be one";
  EXPECT_FALSE(receiver.arm_to_receive()) << "the message is still there";
  receiver.disarm();
  EXPECT_EQ(consume_all(receiver), 1u);
  ASSERT_TRUE(receiver.arm_to_receive());
  ends.first->finish_sending();
  ASSERT_TRUE(readable(receiver, -1)) << "the end is news too";
  receiver.disarm();
  Fragment fragment;
  EXPECT_EQ(receiver.peek(fragment), Got::end);
}

// The receiver sleeps in poll() while the same end's sender waits for room: its doorbell must not be lost on the other.
TEST_P(ChannelConformance, PollIsNotDisturbedByASleepingSender) {
  constexpr int kRounds = rounds(1000);
  constexpr std::uint32_t kQuestion = 1;
  run(
      [](Channel& channel) {
        for (int n = 0; n < kRounds; ++n) {
          bool sent = true;
          std::thread sender([&] {
            const std::size_t question = static_cast<std::size_t>(n) % 20;
            for (std::size_t i = 0; i < 20; ++i)
              sent = sent && send_message(channel, {}, i == question ? kQuestion : 0);
          });
          bool woken = true;
          Fragment fragment;
          while (woken && channel.peek(fragment) == Got::nothing) {
            if (channel.arm_to_receive()) woken = readable(channel, 20'000);
            channel.disarm();
          }
          channel.consume();
          sender.join();
          CHILD_EXPECT(sent && woken);
        }
        return 0;
      },
      [](Channel& channel) {
        while (const auto received = receive_message(channel))
          if (received->immediate == kQuestion) CHILD_EXPECT(channel.try_send({}, 0) == Sent::yes);
        return 0;
      },
      kSmall);
}

// ---- ending

TEST_P(ChannelConformance, HalfCloseDeliversEverythingAndLeavesTheOtherHalfOpen) {
  const ChannelPair ends = pair();
  for (std::uint32_t n = 0; n < 20; ++n) ASSERT_EQ(send_fragment(*ends.first, message(n * 30, n), n), Sent::yes);
  ends.first->finish_sending();
  ends.first->finish_sending();
  EXPECT_EQ(ends.first->try_send({}, 0), Sent::closed);
  EXPECT_EQ(ends.first->close_reason(), CloseReason::closed_here);
  EXPECT_EQ(ends.first->credits(), 0u);
  EXPECT_FALSE(ends.first->wait_to_send(0, -1)) << "closed is an answer";
  Fragment fragment;
  for (std::uint32_t n = 0; n < 20; ++n) {
    ASSERT_EQ(ends.second->peek(fragment), Got::fragment);
    EXPECT_TRUE(fragment.immediate == n && matches(fragment.bytes, n));
    EXPECT_EQ(ends.second->close_reason(), CloseReason::open);
    ends.second->consume();
  }
  EXPECT_EQ(ends.second->peek(fragment), Got::end);
  EXPECT_EQ(ends.second->peek(fragment), Got::end);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  EXPECT_FALSE(ends.second->wait_to_receive(-1));
  for (std::uint32_t n = 0; n < 1000; ++n) {
    ASSERT_EQ(send_fragment(*ends.second, message(100, n), n), Sent::yes);
    ASSERT_EQ(ends.first->peek(fragment), Got::fragment);
    EXPECT_TRUE(fragment.immediate == n && matches(fragment.bytes, n));
    ends.first->consume();
  }
  ends.second->finish_sending();
  EXPECT_EQ(ends.first->peek(fragment), Got::end);
  EXPECT_EQ(ends.first->close_reason(), CloseReason::peer_finished);
}

TEST_P(ChannelConformance, FinishingAFullChannelIsNoticed) {
  const ChannelPair ends = pair(kSmall);
  const std::size_t sent = send_until_full(*ends.first, {});
  ends.first->finish_sending();
  EXPECT_EQ(consume_all(*ends.second), sent);
  Fragment fragment;
  EXPECT_EQ(ends.second->peek(fragment), Got::end);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
}

TEST_P(ChannelConformance, FinishingWakesAReceiver) {
  for (int round = 0; round < rounds(200); ++round) {
    const ChannelPair ends = pair(kSmall);
    std::thread receiver([&] {
      EXPECT_TRUE(receive_message(*ends.second));
      EXPECT_FALSE(receive_message(*ends.second));
    });
    EXPECT_TRUE(send_message(*ends.first, message(5000, 1), 0));
    ends.first->finish_sending();
    receiver.join();
    EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  }
}

TEST_P(ChannelConformance, ClosingIsFinishing) {
  ChannelPair ends = pair();
  ASSERT_EQ(send_fragment(*ends.first, message(5000, 1), 3), Sent::yes);
  ends.first.reset();
  const auto received = receive_message(*ends.second);
  ASSERT_TRUE(received);
  EXPECT_TRUE(received->immediate == 3 && received->bytes.size() == 5000 && matches(received->bytes, 1));
  EXPECT_FALSE(receive_message(*ends.second));
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  // Sooner or later sending says so too, however it is waited for.
  while (ends.second->try_send({}, 0) == Sent::yes) {
  }
  EXPECT_FALSE(ends.second->wait_to_send(0, -1));
  EXPECT_EQ(ends.second->try_send({}, 0), Sent::closed);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
}

// The sender learns it although its receiving half has never looked, and what was sent can still be received.
TEST_P(ChannelConformance, ASenderLearnsThatThePeerHasClosed) {
  ChannelPair ends = pair(kSmall);
  ASSERT_EQ(ends.first->try_send({}, 8), Sent::yes);
  EXPECT_GT(send_until_full(*ends.second, {}), 0u);
  std::thread waiter([&] { EXPECT_FALSE(ends.second->wait_to_send(0, -1)); });
  ends.first.reset();
  waiter.join();
  EXPECT_EQ(ends.second->try_send({}, 0), Sent::closed);
  EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  const auto received = receive_message(*ends.second);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->immediate, 8u);
  EXPECT_FALSE(receive_message(*ends.second));
}

TEST_P(ChannelConformance, ClosingWakesAReceiver) {
  for (int round = 0; round < rounds(200); ++round) {
    ChannelPair ends = pair(kSmall);
    std::thread receiver([&] { EXPECT_FALSE(receive_message(*ends.second)); });
    if (round % 2 == 0) std::this_thread::yield();
    ends.first.reset();
    receiver.join();
    EXPECT_EQ(ends.second->close_reason(), CloseReason::peer_finished);
  }
}

}  // namespace
}  // namespace viaduct::via
