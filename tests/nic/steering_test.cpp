// Steering, coalescing, filters, commands.
#include <gmock/gmock.h>

#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

using testing::ElementsAre;

TEST(Steering, TheByteOfTheHeaderPicksTheQueue) {
  Config config = inlined();
  config.queues = 4;
  config.steering = Steering{14, 0x88b5};
  config.queue_core = {0, 1, 0, 1};
  Pair pair(config);
  for (std::uint32_t i = 0; i < 64; ++i)
    ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(i, 60, static_cast<std::uint8_t>(i * 5))));
  pair.left->host().ring();
  pair.turn();
  for (unsigned queue = 0; queue < 4; ++queue) {
    const auto frames = receive_all(pair.right->host(), queue);
    EXPECT_EQ(frames.size(), 16u);
    std::uint32_t last = 0;
    for (const Bytes& frame : frames) {
      EXPECT_EQ(std::to_integer<unsigned>(frame[14]) % 4, queue);
      EXPECT_GE(number_of(frame), last);
      last = number_of(frame);
    }
    EXPECT_EQ(pair.right->core_of_queue(queue), static_cast<int>(queue % 2));
    EXPECT_EQ(pair.right->statistics().queue_core[queue], static_cast<int>(queue % 2));
  }
  EXPECT_EQ(pair.right->core_of_queue(4), -1);
}

TEST(Steering, OtherFramesGoToTheFirstQueue) {
  Config config = inlined();
  config.queues = 4;
  config.steering = Steering{14, 0x86dd};
  Pair pair(config);
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(1, 60, 3)));
  pair.left->host().ring();
  pair.turn();
  EXPECT_EQ(receive_all(pair.right->host(), 3).size(), 0u);
  EXPECT_EQ(receive_all(pair.right->host(), 0).size(), 1u);
}

TEST(Steering, ACommandChangesHowManyQueuesAreUsed) {
  Config config = inlined();
  config.queues = 4;
  config.steering = Steering{14, 0};
  Pair pair(config);
  ASSERT_TRUE(pair.right->host().command(Command::set_queues, 2));
  ASSERT_TRUE(pair.right->host().command(Command::set_queues, 99));  // refused
  pair.turn();
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(1, 60, 3)));
  pair.left->host().ring();
  pair.turn();
  EXPECT_EQ(receive_all(pair.right->host(), 1).size(), 1u);
  EXPECT_EQ(pair.right->statistics().totals.bad_commands, 1u);
}

class Coalesced : public testing::Test {
 protected:
  Coalesced() {
    Config config;
    config.clock = &clock_;
    pair_.emplace(config, WireOptions{.clock = &clock_});
    pair_->turn();
  }
  void send(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_TRUE(pair_->left->host().send_copy(numbered_frame(i, 60)));
    pair_->left->host().ring();
    pair_->turn();
  }
  MockClock clock_;
  std::optional<Pair> pair_;
};

TEST_F(Coalesced, ReceiveByCount) {
  send(24);
  EXPECT_EQ(receive_all(pair_->right->host()).size(), 0u);
  EXPECT_EQ(pair_->right->statistics().totals.interrupts, 0u);
  send(1);
  EXPECT_EQ(receive_all(pair_->right->host()).size(), 25u);
  EXPECT_EQ(pair_->right->statistics().totals.interrupts, 1u);
  EXPECT_EQ(pair_->right->statistics().totals.interrupts_avoided, 24u);
}

TEST_F(Coalesced, ReceiveByTime) {
  send(3);
  clock_.advance_ns(119'000);
  pair_->turn();
  EXPECT_EQ(receive_all(pair_->right->host()).size(), 0u);
  clock_.advance_ns(2'000);
  pair_->turn();
  EXPECT_EQ(receive_all(pair_->right->host()).size(), 3u);
  EXPECT_EQ(pair_->right->statistics().totals.interrupts, 1u);
  EXPECT_EQ(pair_->right->statistics().totals.interrupts_avoided, 2u);
}

TEST_F(Coalesced, SendByCountAndByTime) {
  const auto reclaimed = [&] {
    (void)pair_->left->host().reclaim({});
    return pair_->left->host().counters().reclaimed;
  };
  send(59);
  EXPECT_EQ(reclaimed(), 0u);
  send(1);
  EXPECT_EQ(reclaimed(), 60u);
  send(5);
  EXPECT_EQ(reclaimed(), 60u);
  clock_.advance_ns(401'000);
  pair_->turn();
  EXPECT_EQ(reclaimed(), 65u);
  EXPECT_EQ(pair_->left->statistics().totals.interrupts, 2u);
  EXPECT_EQ(pair_->left->statistics().totals.interrupts_avoided, 63u);
}

TEST_F(Coalesced, AFlushCommandReportsAtOnce) {
  send(3);
  ASSERT_TRUE(pair_->right->host().command(Command::flush, 0));
  pair_->turn();
  EXPECT_EQ(receive_all(pair_->right->host()).size(), 3u);
}

}  // namespace
}  // namespace viaduct::nic
