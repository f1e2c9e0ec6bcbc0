// The ready queue: everything that happens on any of its channels is reported, and looking costs nothing.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/fd.hpp"
#include "base/random.hpp"
#include "via/channel/ready_queue.hpp"
#include "via/ready_crowd.hpp"

namespace viaduct::via::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using viaduct::testing::kSanitized;
using viaduct::testing::limit;
using viaduct::testing::rounds;

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

// ---- what idle channels cost

// Their peers join queues of their own and say so on the sockets: that is read, and no reason to look at each of them
// again.
TEST(ReadyQueueAtRest, AnnouncementsWakeNobody) {
  constexpr std::uint32_t kMany = 100;
  if (!may_open_descriptors(kMany * 5 + 100)) GTEST_SKIP() << "needs a hard limit of 600 open files (ulimit -Hn)";
  const HangGuard guard;
  auto here = ReadyQueueOfSources::make(kMany), there = ReadyQueueOfSources::make(kMany);
  ASSERT_TRUE(here && there);
  std::vector<ChannelPair> pairs;
  std::error_code fault;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    pairs.push_back(make_channel_pair({.bulk_bytes = 4096, .slots = 8}, fault));
    ASSERT_FALSE(fault);
    ASSERT_FALSE((*here)->add(*pairs.back().first, i));
  }
  std::uint64_t tags[8];
  const auto look = [&](int times) {
    std::size_t most = 0;
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ((*here)->take(tags), 0u);
      most = std::max(most, (*here)->looked_at_one_by_one());
    }
    return most;
  };
  look(100'000);
  ASSERT_EQ((*here)->looked_at_one_by_one(), 0u);
  for (ChannelPair& pair : pairs) ASSERT_FALSE((*there)->add(*pair.second, 0));
  EXPECT_EQ(look(100'000), 0u);
  // And they are heard all the same.
  for (std::uint64_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(pairs[i].second->try_send({}, 0), Sent::taken);
    std::size_t count = 0;
    while ((count = (*here)->take(tags)) == 0) continue;
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(tags[0], i);
    Fragment fragment;
    ASSERT_EQ(pairs[i].first->peek(fragment), Got::fragment);
    pairs[i].first->consume();
  }
  for (ChannelPair& pair : pairs) (*here)->remove(*pair.first), (*there)->remove(*pair.second);
}

// ---- reporting

TEST_P(ReadyQueueOf, EveryMessageIsReported) {
  Crowd crowd(GetParam());
  Random random(GetParam());
  std::vector<int> owed(GetParam());
  std::size_t owed_in_all = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    for (std::uint64_t n = random.below(8); n > 0; --n) {
      const std::size_t which = random.below(GetParam());
      if (crowd.there[which]->try_send({}, 0) != Sent::taken) continue;
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
      EXPECT_EQ(crowd.there[which]->try_send({}, 0), Sent::taken);
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
  for (auto& peer : crowd.there) ASSERT_EQ(peer->try_send({}, 0), Sent::taken);
  const std::size_t most = GetParam() < 200 ? 1 : 16;
  for (std::size_t look = 0; look < GetParam() * 12 / most; ++look)
    for (const std::uint64_t tag : take(*crowd.queue, most)) {
      ++turns[tag];
      ASSERT_EQ(consume_all(*crowd.here[tag]), 1u);
      ASSERT_EQ(crowd.there[tag]->try_send({}, 0), Sent::taken);
    }
  for (std::size_t i = 0; i < turns.size(); ++i) EXPECT_GE(turns[i], 5) << "channel " << i;
}

TEST(ReadyQueue, WhatCameBeforeIsReported) {
  const HangGuard guard;
  const ChannelPair data = make_pair(), end = make_pair(), idle = make_pair();
  ASSERT_EQ(data.second->try_send({}, 0), Sent::taken);
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
  for (int i = 0; i < 30; ++i) ASSERT_EQ(crowd.there[i]->try_send({}, 0), Sent::taken);
  EXPECT_EQ(take(*crowd.queue).size(), 30u);
  EXPECT_EQ(take(*crowd.queue).size(), 30u);
  EXPECT_EQ(wait(*crowd.queue).size(), 30u);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(consume_all(*crowd.here[i]), 1u);
  EXPECT_THAT(take(*crowd.queue), IsEmpty());
}

TEST(ReadyQueue, AShortSpanLeavesTheRestForLater) {
  const HangGuard guard;
  Crowd crowd(50);
  for (auto& peer : crowd.there) ASSERT_EQ(peer->try_send({}, 0), Sent::taken);
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
  for (auto& peer : crowd.there) ASSERT_EQ(peer->try_send({}, 0), Sent::taken);
  EXPECT_EQ(take(*crowd.queue).size(), 20u);  // active
  for (int i = 0; i < 20; i += 2) crowd.queue->remove(*crowd.here[i]);
  for (const std::uint64_t tag : take(*crowd.queue)) EXPECT_EQ(tag % 2, 1u);
  for (int i = 1; i < 20; i += 2) EXPECT_EQ(consume_all(*crowd.here[i]), 1u);
  EXPECT_THAT(wait(*crowd.queue, 10), IsEmpty());
  crowd.queue->remove(*crowd.here[0]);  // it is not there: no harm
  // They work on their own, and their places are free for others.
  EXPECT_EQ(consume_all(*crowd.here[0]), 1u);
  ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::taken);
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
  EXPECT_EQ(first.second->try_send({}, 0), Sent::taken);
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
    ASSERT_EQ(pair.second->try_send({}, 0), Sent::taken);
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
    EXPECT_EQ(pair.second->try_send({}, 0), Sent::taken);
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
        EXPECT_EQ(pair.second->try_send({}, 0), Sent::taken);
      });
      if (by_poll) {
        pollfd entry{pair.first->shared()->descriptor(), POLLIN, 0};
        EXPECT_TRUE(!pair.first->shared()->arm_to_receive() || ::poll(&entry, 1, 20'000) == 1);
        pair.first->shared()->disarm();
      } else {
        EXPECT_FALSE(pair.first->wait_to_receive(-1));
      }
      sender.join();
      EXPECT_EQ(consume_all(*pair.first), 1u);
      ASSERT_EQ(pair.second->try_send({}, 0), Sent::taken);
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
  ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::taken);
  EXPECT_EQ(wakes(), before + 1) << "armed: a hint";
  EXPECT_THAT(take(*crowd.queue), ElementsAre(0));
  EXPECT_EQ(consume_all(*crowd.here[0]), 1u);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::taken);
    EXPECT_THAT(take(*crowd.queue), ElementsAre(0));
    EXPECT_EQ(consume_all(*crowd.here[0]), 1u);
  }
  EXPECT_EQ(wakes(), before + 1) << "active: nothing";
  look_until_all_are_armed(*crowd.queue);
  ASSERT_EQ(crowd.there[0]->try_send({}, 0), Sent::taken);
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
      CHILD_EXPECT(pair.second->try_send({}, 0) == Sent::taken);
      CHILD_EXPECT(wait(*queue) == Tags{9});
      CHILD_EXPECT(consume_all(*pair.first) == 1);
      if (round == 2)
        (void)pair.second->wait_to_receive(0), pair.second->shared()->disarm();  // takes the message off the socket
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

TEST(ReadyQueue, AKilledPeerIsReported) {
  const HangGuard guard;
  for (const bool by_waiting : {false, true})
    for (const bool another_is_busy : {false, true}) {
      auto sockets = make_socket_pair(SOCK_STREAM);
      Child child([&] {
        sockets->first.reset();
        std::error_code fault;
        const auto channel = join_channel(sockets->second.release(), 10'000, fault);
        CHILD_EXPECT(channel && channel->try_send({}, 0) == Sent::taken);
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

}  // namespace
}  // namespace viaduct::via::testing
