// The ready queue: everything that happens on any of its channels is reported, looking costs nothing, sleeping is
// sleep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"
#include "via/messages.hpp"

namespace viaduct::via {
namespace {

using namespace via::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using viaduct::testing::kSanitized;
using viaduct::testing::limit;
using viaduct::testing::rounds;

using Tags = std::vector<std::uint64_t>;

constexpr ChannelOptions kSmall{.bulk_bytes = 4096, .slots = 8};

std::unique_ptr<ReadyQueue> make_queue(std::uint32_t most) {
  std::error_code fault;
  auto queue = ReadyQueue::make(most, fault);
  EXPECT_FALSE(fault) << fault.message();
  return queue;
}

ChannelPair make_pair() {
  std::error_code fault;
  ChannelPair pair = make_channel_pair(kSmall, fault);
  EXPECT_FALSE(fault) << fault.message();
  return pair;
}

Tags take(ReadyQueue& queue, std::size_t most = 64) {
  Tags tags(most);
  tags.resize(queue.take(tags));
  return tags;
}

Tags wait(ReadyQueue& queue, int timeout_ms = -1, std::size_t most = 64) {
  Tags tags(most);
  tags.resize(queue.wait(tags, timeout_ms));
  return tags;
}

// How many fragments were there.
std::size_t consume_all(Channel& channel) {
  Fragment fragment;
  std::size_t count = 0;
  for (; channel.peek(fragment) == Got::fragment; ++count) channel.consume();
  return count;
}

bool ended(Channel& channel) {
  Fragment fragment;
  return channel.peek(fragment) == Got::end;
}

// So many looks in vain that every channel is armed again.
void look_until_all_are_armed(ReadyQueue& queue) {
  for (int look = 0; look < 5000; ++look) ASSERT_THAT(take(queue), IsEmpty());
}

// The first channel is armed for the queue, whose owner is awake: who sends on it gives a hint and rings nobody.
void arm_first_only(ReadyQueue& queue, const ChannelPair& other, std::uint64_t others_tag) {
  ASSERT_THAT(wait(queue, 1), IsEmpty());
  ASSERT_EQ(other.second->try_send({}, 0), Sent::yes);
  ASSERT_THAT(take(queue), ElementsAre(others_tag));
  ASSERT_EQ(consume_all(*other.first), 1u);
}

double processor_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// Channels by the dozen: `here` are in the queue with their index as tag, `there` are their peers.
struct Crowd {
  explicit Crowd(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      ChannelPair pair = make_pair();
      here.push_back(std::move(pair.first));
      there.push_back(std::move(pair.second));
    }
    queue = make_queue(static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i) EXPECT_FALSE(queue->add(*here[i], i));
  }
  std::vector<std::unique_ptr<Channel>> here, there;
  std::unique_ptr<ReadyQueue> queue;  // goes before its channels
};

// Five descriptors a pair: two ends of two, and the queue that the peer has received.
bool may_open_descriptors(std::size_t count) {
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  return now.rlim_max >= count && limit(RLIMIT_NOFILE, now.rlim_max);
}

class ReadyQueueOf : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (!may_open_descriptors(GetParam() * 5 + 100))
      GTEST_SKIP() << GetParam() << " channels need a hard limit of " << GetParam() * 5 + 100
                   << " open files (ulimit -Hn)";
  }
  const HangGuard guard_;
};
INSTANTIATE_TEST_SUITE_P(, ReadyQueueOf, ::testing::Values(1, 100, 2000));

// ---- reporting

TEST_P(ReadyQueueOf, EveryMessageIsReported) {
  Crowd crowd(GetParam());
  Random random(GetParam());
  std::vector<int> owed(GetParam());
  std::size_t owed_in_all = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    for (std::uint64_t n = random.below(8); n > 0; --n) {
      const std::size_t which = random.below(GetParam());
      if (crowd.there[which]->try_send({}, 0) != Sent::yes) continue;
      ++owed[which], ++owed_in_all;
    }
    for (const std::uint64_t tag : take(*crowd.queue, 1 + random.below(20))) {
      const std::size_t got = consume_all(*crowd.here[tag]);
      ASSERT_GT(got, 0u) << "reported for nothing";
      owed[tag] -= static_cast<int>(got), owed_in_all -= got;
      ASSERT_EQ(owed[tag], 0);
    }
  }
  for (int look = 0; look < 1000 && owed_in_all > 0; ++look)
    for (const std::uint64_t tag : take(*crowd.queue)) owed_in_all -= consume_all(*crowd.here[tag]);
  EXPECT_EQ(owed_in_all, 0u);
  EXPECT_THAT(take(*crowd.queue), IsEmpty());
}

TEST_P(ReadyQueueOf, WaitWakesForAnyOfThem) {
  Crowd crowd(GetParam());
  Random random(3);
  EXPECT_THAT(wait(*crowd.queue, 1), IsEmpty());  // everybody is armed
  std::atomic<int> turn = -1;
  std::atomic<std::size_t> which = 0;
  const int turns = rounds(400);
  std::thread sender([&] {
    for (int n = 0; n < turns; ++n) {
      while (turn != n) std::this_thread::yield();
      if (n % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(n * 7 % 1500));
      EXPECT_EQ(crowd.there[which]->try_send({}, 0), Sent::yes);
    }
  });
  for (int n = 0; n < turns; ++n) {
    which = random.below(GetParam());
    turn = n;
    const Tags tags = wait(*crowd.queue);
    EXPECT_THAT(tags, ElementsAre(which.load()));
    EXPECT_EQ(consume_all(*crowd.here[which]), 1u);
  }
  sender.join();
}

TEST_P(ReadyQueueOf, WaitSleeps) {
  Crowd crowd(GetParam());
  EXPECT_THAT(wait(*crowd.queue, 5), IsEmpty());  // arms everybody
  const auto start = std::chrono::steady_clock::now();
  const double before = processor_ms();
  EXPECT_THAT(wait(*crowd.queue, 200), IsEmpty());
  EXPECT_LT(processor_ms() - before, kSanitized ? 40 : 6);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

// All have something all the time; few are asked for at once.
TEST_P(ReadyQueueOf, NobodyStarves) {
  Crowd crowd(GetParam());
  std::vector<int> turns(GetParam());
  for (auto& peer : crowd.there) ASSERT_EQ(peer->try_send({}, 0), Sent::yes);
  const std::size_t most = GetParam() < 200 ? 1 : 16;
  for (std::size_t look = 0; look < GetParam() * 12 / most; ++look)
    for (const std::uint64_t tag : take(*crowd.queue, most)) {
      ++turns[tag];
      ASSERT_EQ(consume_all(*crowd.here[tag]), 1u);
      ASSERT_EQ(crowd.there[tag]->try_send({}, 0), Sent::yes);
    }
  for (std::size_t i = 0; i < turns.size(); ++i) EXPECT_GE(turns[i], 5) << "channel " << i;
}

TEST(ReadyQueue, WhatCameBeforeIsReported) {
  const HangGuard guard;
  const ChannelPair data = make_pair(), end = make_pair(), idle = make_pair();
  ASSERT_EQ(data.second->try_send({}, 0), Sent::yes);
  end.second->finish_sending();
  const auto queue = make_queue(8);
  ASSERT_FALSE(queue->add(*data.first, 10));
  ASSERT_FALSE(queue->add(*end.first, 20));
  ASSERT_FALSE(queue->add(*idle.first, 30));
  EXPECT_THAT(wait(*queue), UnorderedElementsAre(10, 20));
}

// What was not taken out is still there: it is reported again, by looking and by sleeping.
TEST(ReadyQueue, WhatIsLeftIsReportedAgain) {
  const HangGuard guard;
  Crowd crowd(40);
  for (int i = 0; i < 30; ++i) ASSERT_EQ(crowd.there[i]->try_send({}, 0), Sent::yes);
  EXPECT_EQ(take(*crowd.queue).size(), 30u);
  EXPECT_EQ(take(*crowd.queue).size(), 30u);
  EXPECT_EQ(wait(*crowd.queue).size(), 30u);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(consume_all(*crowd.here[i]), 1u);
  EXPECT_THAT(take(*crowd.queue), IsEmpty());
}

TEST(ReadyQueue, AShortSpanLeavesTheRestForLater) {
  const HangGuard guard;
  Crowd crowd(50);
  for (auto& peer : crowd.there) ASSERT_EQ(peer->try_send({}, 0), Sent::yes);
  EXPECT_THAT(take(*crowd.queue, 0), IsEmpty());
  EXPECT_THAT(wait(*crowd.queue, -1, 0), IsEmpty());
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 50; ++i)
    for (const std::uint64_t tag : i % 2 == 0 ? take(*crowd.queue, 1) : wait(*crowd.queue, -1, 1)) {
      ++seen[tag];
      EXPECT_EQ(consume_all(*crowd.here[tag]), 1u);
    }
  EXPECT_EQ(seen.size(), 50u);
}

// ---- coming and going

TEST(ReadyQueue, WhoeverWasRemovedIsNotReported) {
  const HangGuard guard;
  Crowd crowd(20);
  for (auto& peer : crowd.there) ASSERT_EQ(peer->try_send({}, 0), Sent::yes);
  EXPECT_EQ(take(*crowd.queue).size(), 20u);  // active
  for (int i = 0; i < 20; i += 2) crowd.queue->remove(*crowd.here[i]);
  for (const std::uint64_t tag : take(*crowd.queue)) EXPECT_EQ(tag % 2, 1u);
  for (int i = 1; i < 20; i += 2) EXPECT_EQ(consume_all(*crowd.here[i]), 1u);
  EXPECT_THAT(wait(*crowd.queue, 10), IsEmpty());
  crowd.queue->remove(*crowd.here[0]);  // it is not there: no harm
  // They work on their own, and their places are free for others.
  EXPECT_EQ(consume_all(*crowd.here[0]), 1u);
  ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::yes);
  EXPECT_FALSE(crowd.here[0]->wait_to_receive(-1));
  for (int i = 0; i < 20; i += 2) ASSERT_FALSE(crowd.queue->add(*crowd.here[i], 100 + static_cast<unsigned>(i)));
  EXPECT_EQ(wait(*crowd.queue).size(), 10u);
}

TEST(ReadyQueue, KnowsItsLimits) {
  std::error_code fault;
  for (const std::uint32_t most : {0u, 64u * 64 * 64 + 1, UINT32_MAX}) {
    EXPECT_EQ(ReadyQueue::make(most, fault), nullptr);
    EXPECT_EQ(fault, std::errc::invalid_argument);
  }
  EXPECT_NE(ReadyQueue::make(64 * 64 * 64, fault), nullptr);
  EXPECT_FALSE(fault);
  const ChannelPair first = make_pair(), second = make_pair();
  const auto queue = make_queue(1);
  EXPECT_FALSE(queue->add(*first.first, 1));
  EXPECT_EQ(queue->add(*second.first, 2), std::errc::no_space_on_device);
  queue->remove(*first.first);
  EXPECT_FALSE(queue->add(*second.first, 2));
  const auto wide = make_queue(2);
  EXPECT_FALSE(wide->add(*first.first, 1));
  EXPECT_EQ(wide->add(*first.first, 7), std::errc::file_exists);
  EXPECT_EQ(first.second->try_send({}, 0), Sent::yes);
  EXPECT_THAT(take(*wide), ElementsAre(1)) << "the refused one changed nothing";
}

// The peer has the first queue's memory; a hint must go to the second.
TEST(ReadyQueue, AChannelMovesFromOneQueueToAnother) {
  const HangGuard guard;
  const ChannelPair pair = make_pair(), other = make_pair();
  const auto first = make_queue(4), second = make_queue(4);
  ASSERT_FALSE(second->add(*other.first, 5));
  for (std::uint64_t move = 0; move < 50; ++move) {
    ReadyQueue& queue = move % 2 == 0 ? *first : *second;
    ASSERT_FALSE(queue.add(*pair.first, move));
    ASSERT_THAT(wait(queue, 1), IsEmpty());  // armed
    ASSERT_EQ(pair.second->try_send({}, 0), Sent::yes);
    if (move % 3 == 0)
      ASSERT_THAT(wait(queue), ElementsAre(move));
    else
      ASSERT_THAT(take(queue), ElementsAre(move)) << "a hint, not only a doorbell";
    ASSERT_EQ(consume_all(*pair.first), 1u);
    queue.remove(*pair.first);
  }
}

TEST(ReadyQueue, AChannelOutlivesItsQueue) {
  const HangGuard guard;
  const ChannelPair pair = make_pair(), other = make_pair();
  {
    const auto queue = make_queue(4);
    ASSERT_FALSE(queue->add(*pair.first, 1));
    ASSERT_FALSE(queue->add(*other.first, 2));
    arm_first_only(*queue, other, 2);
  }
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(pair.second->try_send({}, 0), Sent::yes);
  });
  EXPECT_FALSE(pair.first->wait_to_receive(-1));
  sender.join();
}

// Whoever has been told of a message may wait for the next by itself; afterwards the queue reports as before.
TEST(ReadyQueue, AChannelInAQueueCanBeWaitedForAlone) {
  const HangGuard guard;
  for (const bool by_poll : {false, true}) {
    const ChannelPair pair = make_pair(), other = make_pair();
    const auto queue = make_queue(4);
    ASSERT_FALSE(queue->add(*pair.first, 7));
    ASSERT_FALSE(queue->add(*other.first, 8));
    for (int round = 0; round < rounds(40); ++round) {
      arm_first_only(*queue, other, 8);
      std::thread sender([&] {
        if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        EXPECT_EQ(pair.second->try_send({}, 0), Sent::yes);
      });
      if (by_poll) {
        pollfd entry{pair.first->descriptor(), POLLIN, 0};
        EXPECT_TRUE(!pair.first->arm_to_receive() || ::poll(&entry, 1, 20'000) == 1);
        pair.first->disarm();
      } else {
        EXPECT_FALSE(pair.first->wait_to_receive(-1));
      }
      sender.join();
      EXPECT_EQ(consume_all(*pair.first), 1u);
      ASSERT_EQ(pair.second->try_send({}, 0), Sent::yes);
      if (round % 3 == 0)
        ASSERT_THAT(take(*queue), ElementsAre(7));
      else
        ASSERT_THAT(wait(*queue), ElementsAre(7));
      EXPECT_EQ(consume_all(*pair.first), 1u);
    }
  }
}

// ---- armed and active

TEST(ReadyQueue, AnActiveChannelCostsItsPeerNothingAndAQuietOneIsArmedAgain) {
  const HangGuard guard;
  Crowd crowd(2);
  look_until_all_are_armed(*crowd.queue);
  const auto wakes = [&] { return crowd.there[0]->statistics().wakes_sent; };
  const auto before = wakes();
  ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::yes);
  EXPECT_EQ(wakes(), before + 1) << "armed: a hint";
  EXPECT_THAT(take(*crowd.queue), ElementsAre(0));
  EXPECT_EQ(consume_all(*crowd.here[0]), 1u);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::yes);
    EXPECT_THAT(take(*crowd.queue), ElementsAre(0));
    EXPECT_EQ(consume_all(*crowd.here[0]), 1u);
  }
  EXPECT_EQ(wakes(), before + 1) << "active: nothing";
  look_until_all_are_armed(*crowd.queue);
  ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::yes);
  EXPECT_EQ(wakes(), before + 2) << "armed again";
  EXPECT_THAT(take(*crowd.queue), ElementsAre(0));
}

// The peer cannot receive the queue's descriptor: there is the doorbell.
TEST(ReadyQueue, WorksWhereThePeerHasNoDescriptorLeft) {
  if (viaduct::testing::kSanitized) GTEST_SKIP() << "the sanitizer itself needs descriptors";
  Child child([] {
    const ChannelPair pair = make_pair();
    const auto queue = make_queue(4);
    CHILD_EXPECT(!queue->add(*pair.first, 9));
    const Fd first_free(::dup(STDERR_FILENO));
    CHILD_EXPECT(limit(RLIMIT_NOFILE, static_cast<rlim_t>(first_free.get() + 1)));
    for (int round = 0; round < 5; ++round) {
      CHILD_EXPECT(wait(*queue, 1).empty());
      CHILD_EXPECT(pair.second->try_send({}, 0) == Sent::yes);
      CHILD_EXPECT(wait(*queue) == Tags{9});
      CHILD_EXPECT(consume_all(*pair.first) == 1);
      if (round == 2) (void)pair.second->wait_to_receive(0), pair.second->disarm();  // takes the message off the socket
    }
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

// ---- ends

TEST(ReadyQueue, TheEndIsReportedUntilItIsRemoved) {
  const HangGuard guard;
  for (const bool by_waiting : {false, true}) {
    Crowd crowd(40);
    look_until_all_are_armed(*crowd.queue);
    crowd.there[3]->finish_sending();
    crowd.there[30].reset();
    std::map<std::uint64_t, int> seen;
    while (seen[3] < 3 || seen[30] < 3)
      for (const std::uint64_t tag : by_waiting ? wait(*crowd.queue) : take(*crowd.queue)) ++seen[tag];
    EXPECT_EQ(seen.size(), 2u);
    for (const std::size_t which : {3, 30}) {
      EXPECT_TRUE(ended(*crowd.here[which]));
      EXPECT_EQ(crowd.here[which]->close_reason(), CloseReason::peer_finished);
      crowd.queue->remove(*crowd.here[which]);
    }
    EXPECT_THAT(wait(*crowd.queue, 5), IsEmpty()) << "and that was that";
  }
}

std::unique_ptr<Channel> open_to(Fd& socket) {
  std::error_code fault;
  auto channel = open_channel(socket.release(), kSmall, fault);
  EXPECT_NE(channel, nullptr) << fault.message();
  return channel;
}

TEST(ReadyQueue, AKilledPeerIsReported) {
  const HangGuard guard;
  for (const bool by_waiting : {false, true})
    for (const bool another_is_busy : {false, true}) {
      auto sockets = make_socket_pair(SOCK_STREAM);
      Child child([&] {
        sockets->first.reset();
        std::error_code fault;
        const auto channel = join_channel(sockets->second.release(), 10'000, fault);
        CHILD_EXPECT(channel && channel->try_send({}, 0) == Sent::yes);
        for (;;) ::pause();
        return 0;
      });
      sockets->second.reset();
      const auto mortal = open_to(sockets->first);
      const ChannelPair busy = make_pair();
      const auto queue = make_queue(8);
      ASSERT_FALSE(queue->add(*mortal, 1));
      ASSERT_FALSE(queue->add(*busy.first, 2));
      EXPECT_THAT(wait(*queue), ElementsAre(1));
      EXPECT_EQ(consume_all(*mortal), 1u);
      look_until_all_are_armed(*queue);
      child.kill();
      for (bool reported = false; !reported;) {
        if (another_is_busy) (void)busy.second->try_send({}, 0);
        for (const std::uint64_t tag : by_waiting && !another_is_busy ? wait(*queue) : take(*queue)) {
          if (tag == 2) (void)consume_all(*busy.first);
          reported = reported || tag == 1;
        }
      }
      EXPECT_TRUE(ended(*mortal));
      EXPECT_EQ(mortal->close_reason(), CloseReason::peer_died);
      EXPECT_EQ(child.wait(), -SIGKILL);
    }
}

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
          if (crowd.there[t * kChannels + which]->try_send({}, next[which]) != Sent::yes) continue;
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
}  // namespace viaduct::via
