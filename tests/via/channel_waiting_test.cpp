// Channel conformance: both directions at once, and sleeping.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "via/channel_conformance.hpp"

namespace viaduct::via::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using viaduct::testing::rounds;

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
          if (n % 2 == 1) CHILD_EXPECT(channel.try_send({}, 0) == Sent::taken);
          for (std::size_t i = 0; i < kMessages; ++i) CHILD_EXPECT(receive_message(channel));
          if (n % 2 == 0) CHILD_EXPECT(channel.try_send({}, 0) == Sent::taken);
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
          CHILD_EXPECT(channel.try_send({}, n) == Sent::taken);
          const auto answer = receive_message(channel);
          CHILD_EXPECT(answer && answer->immediate == n + 1);
        }
        return 0;
      },
      [](Channel& channel) {
        while (const auto question = receive_message(channel))
          CHILD_EXPECT(channel.try_send({}, question->immediate + 1) == Sent::taken);
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
  ASSERT_EQ(ends.first->try_send({}, 0), Sent::taken);
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
  EXPECT_EQ(ends.first->try_send({}, 0), Sent::taken) << "no harm was done";
}

bool readable(Channel& channel, int timeout_ms) {
  pollfd entry{channel.shared()->descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST_P(ChannelConformance, TheDescriptorIsReadableWhenArmed) {
  if (!shares_memory()) GTEST_SKIP() << "a channel has a descriptor of its own only in shared memory";
  const ChannelPair ends = pair();
  Channel& receiver = *ends.second;
  ASSERT_TRUE(receiver.shared()->arm_to_receive());
  EXPECT_FALSE(readable(receiver, 0));
  ASSERT_EQ(ends.first->try_send({}, 1), Sent::taken);
  ASSERT_TRUE(readable(receiver, -1));
  receiver.shared()->disarm();
  EXPECT_FALSE(readable(receiver, 0)) << "disarmed: a further sleep would not be one";
  EXPECT_FALSE(receiver.shared()->arm_to_receive()) << "the message is still there";
  receiver.shared()->disarm();
  EXPECT_EQ(consume_all(receiver), 1u);
  ASSERT_TRUE(receiver.shared()->arm_to_receive());
  ends.first->finish_sending();
  ASSERT_TRUE(readable(receiver, -1)) << "the end is news too";
  receiver.shared()->disarm();
  Fragment fragment;
  EXPECT_EQ(receiver.peek(fragment), Got::end);
}

// The receiver sleeps in poll() while the same end's sender waits for room: its doorbell must not be lost on the other.
TEST_P(ChannelConformance, PollIsNotDisturbedByASleepingSender) {
  if (!shares_memory()) GTEST_SKIP() << "a channel has a descriptor of its own only in shared memory";
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
            if (channel.shared()->arm_to_receive()) woken = readable(channel, 20'000);
            channel.shared()->disarm();
          }
          channel.consume();
          sender.join();
          CHILD_EXPECT(sent && woken);
        }
        return 0;
      },
      [](Channel& channel) {
        while (const auto received = receive_message(channel))
          if (received->immediate == kQuestion) CHILD_EXPECT(channel.try_send({}, 0) == Sent::taken);
        return 0;
      },
      kSmall);
}

}  // namespace
}  // namespace viaduct::via::testing
