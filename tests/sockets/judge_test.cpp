// Two ends of a connection, each with its judge, on a clock that says what each message costs.
#include "sockets/judge.hpp"

#include <gtest/gtest.h>

namespace viaduct::sockets {
namespace {

using Verdict = Judge::Verdict;

// What both share, and one end's view of it.
struct Shared {
  bool resting = false, dearer = false;
  std::uint64_t messages = 0, wakes = 0, doorbells = 0;
};
struct End {
  explicit End(const Judge::Terms& terms = {}) : judge(terms) {}
  Judge judge;
  std::uint64_t cpu_ns = 0;
  std::uint32_t ring_cost = 0, tcp_cost = 0;  // as the other sees them
};

struct Costs {
  std::uint64_t ring = 1000, tcp = 1000;  // of each message, at this end
};

class JudgeTest : public testing::Test {
 protected:
  // So many messages, of which such a share in a hundred wakes somebody, and each sixteenth is looked at.
  void talk(std::uint64_t count, std::uint64_t waking_of_hundred = 100, bool over_tcp = false) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ++shared_.messages;
      if (!shared_.resting && shared_.messages % 100 < waking_of_hundred) {
        ++shared_.wakes;
        if (over_tcp) ++shared_.doorbells;
      }
      for (int which = 0; which < 2; ++which) {
        end_[which].cpu_ns += shared_.resting ? costs_[which].tcp : costs_[which].ring;
        if (shared_.messages % 16 == 0) look(which);
      }
    }
  }

  void look(int which) {
    End& end = end_[which];
    const End& peer = end_[1 - which];
    const Verdict verdict = end.judge.look({.thread = thread_[which],
                                            .cpu_ns = end.cpu_ns,
                                            .messages = shared_.messages,
                                            .wakes = shared_.wakes,
                                            .doorbells = shared_.doorbells,
                                            .resting = shared_.resting,
                                            .dearer = shared_.dearer,
                                            .peer_ring_cost = peer.ring_cost,
                                            .peer_tcp_cost = peer.tcp_cost});
    end.ring_cost = end.judge.ring_cost();
    if (end.judge.tcp_cost() != 0) end.tcp_cost = end.judge.tcp_cost();
    switch (verdict) {
      case Verdict::none:
        break;
      case Verdict::try_tcp:
        ++trials_;
        shared_.resting = true, shared_.dearer = false;
        end_[0].tcp_cost = end_[1].tcp_cost = 0;
        break;
      case Verdict::stay_on_tcp:
        shared_.dearer = true;
        break;
      case Verdict::keep_ring:
        shared_.dearer = shared_.resting = false;
        break;
      case Verdict::look_again:
        shared_.resting = false;
        break;
    }
  }

  // How many messages until it rests, or not any more.
  std::uint64_t talk_until(bool resting, std::uint64_t most) {
    const std::uint64_t before = shared_.messages;
    while (shared_.resting != resting && shared_.messages - before < most) talk(16);
    return shared_.messages - before;
  }

  Shared shared_;
  End end_[2];
  Costs costs_[2];
  std::uint32_t thread_[2] = {1, 2};
  int trials_ = 0;
};

TEST_F(JudgeTest, OneThatIsAwakeNeverLeavesTheRing) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 1};
  talk(2'000'000, 10);
  EXPECT_EQ(trials_, 0);
  EXPECT_FALSE(shared_.resting);
}

TEST_F(JudgeTest, OneThatCostsMoreGoesBackAndStays) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 900};
  talk(200'000);
  EXPECT_TRUE(shared_.resting);
  EXPECT_TRUE(shared_.dearer);
  EXPECT_EQ(end_[0].ring_cost, 1000U);
  EXPECT_EQ(end_[0].tcp_cost, 900U);
}

TEST_F(JudgeTest, BothEndsCount) {
  costs_[0] = {.ring = 1000, .tcp = 800};
  costs_[1] = {.ring = 1000, .tcp = 1300};
  talk(100'000);
  EXPECT_EQ(trials_, 1);
  EXPECT_FALSE(shared_.resting);
  EXPECT_FALSE(shared_.dearer);
}

TEST_F(JudgeTest, ALittleIsNoReason) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 980};
  talk(100'000);
  EXPECT_EQ(trials_, 1);
  EXPECT_FALSE(shared_.resting);
}

TEST_F(JudgeTest, ATrialThatWasLostIsRareAndShort) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 3000};
  std::uint64_t resting = 0;
  for (int i = 0; i < 500'000; ++i) {
    talk(16);
    resting += shared_.resting ? 16 : 0;
  }
  EXPECT_GE(trials_, 2);
  EXPECT_LE(trials_, 3) << "in eight million messages";
  EXPECT_LE(resting, 3U * 3000);
}

TEST_F(JudgeTest, BytesOnTcpAreSuspiciousSooner) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 900};
  while (!shared_.resting && shared_.messages < 100'000) talk(16, 100, true);
  EXPECT_LE(shared_.messages, 4000U);
}

TEST_F(JudgeTest, ItIsLookedAtAgainLaterAndLater) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 900};
  (void)talk_until(true, 1'000'000);
  ASSERT_TRUE(shared_.resting);
  const std::uint64_t first = talk_until(false, 1'000'000);
  ASSERT_FALSE(shared_.resting) << "looked at again";
  EXPECT_LE(talk_until(true, 1'000'000), 2000U) << "and found to be the same at once";
  const std::uint64_t second = talk_until(false, 1'000'000);
  EXPECT_FALSE(shared_.resting);
  EXPECT_GT(second, first * 3 / 2);
}

TEST_F(JudgeTest, WhatHasChangedStaysOnTheRing) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 900};
  (void)talk_until(true, 1'000'000);
  talk(5000);
  ASSERT_TRUE(shared_.dearer);
  costs_[0] = costs_[1] = {.ring = 500, .tcp = 900};
  (void)talk_until(false, 1'000'000);
  ASSERT_FALSE(shared_.resting);
  talk(4000);
  EXPECT_FALSE(shared_.resting);
  EXPECT_FALSE(shared_.dearer);
}

TEST_F(JudgeTest, WhoIsAwakeAfterwardsIsNotTriedAgain) {
  costs_[0] = costs_[1] = {.ring = 1000, .tcp = 900};
  (void)talk_until(true, 1'000'000);
  (void)talk_until(false, 1'000'000);
  const int before = trials_;
  talk(1'000'000, 5);
  EXPECT_EQ(trials_, before);
  EXPECT_FALSE(shared_.resting);
}

// Its time says nothing of one thread's.
TEST_F(JudgeTest, ThreadsThatTakeTurnsAreNotMeasured) {
  costs_[0] = {.ring = 1000, .tcp = 1};
  costs_[1] = {.ring = 1000, .tcp = 900};
  for (int i = 0; i < 10'000; ++i) {
    ++thread_[0];
    talk(16);
  }
  EXPECT_EQ(end_[0].ring_cost, 0U);
  EXPECT_NE(end_[1].ring_cost, 0U) << "and the other end goes by its own";
  EXPECT_TRUE(shared_.resting);
}

}  // namespace
}  // namespace viaduct::sockets
