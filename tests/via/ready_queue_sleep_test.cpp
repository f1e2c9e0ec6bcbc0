// The ready queue: sleeping is sleep, and nothing is lost by it.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/fd.hpp"
#include "base/random.hpp"
#include "via/ready_crowd.hpp"

namespace viaduct::via::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using viaduct::testing::rounds;

// ---- sleeping

TEST(ReadyQueue, ASignalEndsTheWait) {
  const HangGuard guard;
  Crowd crowd(3);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> returned = false;
  std::thread waiter([&] {
    EXPECT_THAT(wait(*crowd.queue), IsEmpty());
    returned = true;
  });
  while (!returned) {
    ::pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waiter.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

// The queue's descriptor in somebody else's poll: quiet while nothing is there, readable once something is.
TEST(ReadyQueue, CanBeSleptOnElsewhere) {
  const HangGuard guard;
  Crowd crowd(40);
  for (int round = 0; round < rounds(400); ++round) {
    while (!crowd.queue->prepare_to_sleep()) EXPECT_THAT(take(*crowd.queue), IsEmpty()) << "nobody has sent";
    pollfd entry{crowd.queue->descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 0), 0);
    const auto who = static_cast<std::uint64_t>(round) % 40;
    std::thread sender([&] { ASSERT_TRUE(send_message(*crowd.there[who], {}, 0)); });
    ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
    sender.join();
    crowd.queue->woke();
    ASSERT_THAT(wait(*crowd.queue), ElementsAre(who));
    Fragment fragment;
    while (crowd.here[who]->peek(fragment) == Got::fragment) crowd.here[who]->consume();
  }
  ASSERT_TRUE(send_message(*crowd.there[3], {}, 0));
  EXPECT_FALSE(crowd.queue->prepare_to_sleep()) << "there is news";
}

// A listening socket wakes the sleeper of a queue whose channels are quiet, for as long as it has something.
TEST(ReadyQueue, AWatchedDescriptorEndsTheWait) {
  const HangGuard guard;
  Crowd crowd(3);
  FdPair pipe = std::move(*make_pipe());
  ASSERT_FALSE(crowd.queue->watch(pipe.first.get(), 77));
  std::thread writer([&] { EXPECT_EQ(::write(pipe.second.get(), "x", 1), 1); });
  EXPECT_THAT(wait(*crowd.queue), ElementsAre(77));
  EXPECT_THAT(wait(*crowd.queue), ElementsAre(77)) << "it is readable still";
  writer.join();
  crowd.queue->unwatch(pipe.first.get());
  ASSERT_TRUE(send_message(*crowd.there[1], {}, 0));
  EXPECT_THAT(wait(*crowd.queue), ElementsAre(1)) << "it is readable, but nobody wants to know";
}

// Another thread sends on the queue's own channels and sleeps for room: doorbells for the queue are not lost on it.
TEST(ReadyQueue, SleepingSendersDoNotDisturbTheQueue) {
  const HangGuard guard;
  Crowd crowd(3);
  const int messages = rounds(1500);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < messages; ++n) EXPECT_TRUE(send_message(*crowd.here[i], {}, 0));
    });
    threads.emplace_back([&, i] {  // answers every message
      for (int n = 0; n < messages; ++n)
        EXPECT_TRUE(receive_message(*crowd.there[i]) && send_message(*crowd.there[i], {}, 0));
    });
  }
  for (std::size_t received = 0; received < 3u * static_cast<std::size_t>(messages);) {
    const Tags tags = wait(*crowd.queue, 20'000);
    ASSERT_THAT(tags, Not(IsEmpty())) << "a wake-up was lost after " << received;
    for (const std::uint64_t tag : tags) received += consume_all(*crowd.here[tag]);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ReadyQueue, NothingIsLostUnderStress) {
  const HangGuard guard;
  constexpr std::size_t kThreads = 3, kChannels = 60;
  Crowd crowd(kThreads * kChannels);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  std::atomic<std::uint64_t> sent = 0;
  std::vector<std::thread> senders;
  for (std::size_t t = 0; t < kThreads; ++t)
    senders.emplace_back([&, t] {
      Random random(t);
      std::vector<std::uint32_t> next(kChannels);
      while (std::chrono::steady_clock::now() < until) {
        for (std::uint64_t n = random.below(40); n > 0; --n) {
          const std::size_t which = random.chance(0.5) ? random.below(4) : random.below(kChannels);
          if (crowd.there[t * kChannels + which]->try_send({}, next[which]) != Sent::taken) continue;
          ++next[which], ++sent;
        }
        if (random.chance(0.3)) std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
      }
      for (std::size_t i = 0; i < kChannels; ++i) crowd.there[t * kChannels + i]->finish_sending();
    });
  std::vector<std::uint32_t> expected(crowd.here.size());
  std::uint64_t received = 0;
  std::size_t open = crowd.here.size();
  Random random(99);
  while (open > 0) {
    const std::size_t most = 1 + random.below(40);
    const Tags tags = random.chance(0.5) ? take(*crowd.queue, most) : wait(*crowd.queue, 10'000, most);
    for (const std::uint64_t tag : tags) {
      Fragment fragment;
      Got got;
      for (; (got = crowd.here[tag]->peek(fragment)) == Got::fragment; ++received) {
        ASSERT_EQ(fragment.immediate, expected[tag]++);
        crowd.here[tag]->consume();
      }
      if (got == Got::end) crowd.queue->remove(*crowd.here[tag]), --open;
    }
  }
  for (std::thread& thread : senders) thread.join();
  EXPECT_EQ(received, sent);
  EXPECT_GT(received, 1000u);
}

// ---- peers in several processes

TEST(ReadyQueue, PeersInSeveralProcesses) {
  const HangGuard guard;
  constexpr std::size_t kProcesses = 4, kChannels = 25;
  const int messages = rounds(100);
  std::vector<std::unique_ptr<Child>> children;
  std::vector<std::unique_ptr<Channel>> channels;
  for (std::size_t p = 0; p < kProcesses; ++p) {
    std::vector<FdPair> sockets;
    for (std::size_t i = 0; i < kChannels; ++i) sockets.push_back(*make_socket_pair(SOCK_STREAM));
    children.push_back(std::make_unique<Child>([&] {
      std::vector<std::unique_ptr<Channel>> mine;
      for (FdPair& pair : sockets) {
        pair.first.reset();
        std::error_code fault;
        mine.push_back(join_channel(pair.second.release(), 10'000, fault));
        CHILD_EXPECT(mine.back() != nullptr);
      }
      Random random(p);
      std::vector<int> left(kChannels, messages);
      for (int all = messages * static_cast<int>(kChannels); all > 0;) {
        const std::size_t which = random.below(kChannels);
        if (left[which] == 0) continue;
        --left[which], --all;
        CHILD_EXPECT(
            send_message(*mine[which], message(random.below(200), 1), static_cast<std::uint32_t>(left[which])));
        if (random.chance(0.01)) std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
      }
      if (p == 0) ::kill(::getpid(), SIGKILL);  // the others close in good order
      return 0;
    }));
    for (FdPair& pair : sockets) channels.push_back(open_to(pair.first));
  }
  const auto queue = make_queue(kProcesses * kChannels);
  for (std::size_t i = 0; i < channels.size(); ++i) ASSERT_FALSE(queue->add(*channels[i], i));
  std::vector<int> left(channels.size(), messages);
  for (std::size_t open = channels.size(); open > 0;) {
    const Tags tags = wait(*queue, 20'000);
    ASSERT_THAT(tags, Not(IsEmpty())) << open << " channels are still open";
    for (const std::uint64_t tag : tags) {
      Fragment fragment;
      Got got;
      for (; (got = channels[tag]->peek(fragment)) == Got::fragment; channels[tag]->consume()) {
        ASSERT_EQ(fragment.immediate, static_cast<std::uint32_t>(--left[tag]));
        ASSERT_TRUE(matches(fragment.bytes, 1));
      }
      if (got == Got::end) queue->remove(*channels[tag]), --open;
    }
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    EXPECT_EQ(left[i], 0);
    EXPECT_EQ(channels[i]->close_reason(), i < kChannels ? CloseReason::peer_died : CloseReason::peer_finished);
  }
  for (std::size_t p = 0; p < kProcesses; ++p) EXPECT_EQ(children[p]->wait(), p == 0 ? -SIGKILL : 0);
}

}  // namespace
}  // namespace viaduct::via::testing
