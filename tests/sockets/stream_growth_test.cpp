// The bulk area of a stream begins small and grows once.
#include <gtest/gtest.h>

#include <utility>

#include "base/child.hpp"
#include "plain_stream.hpp"

namespace viaduct::sockets {
namespace {

class StreamGrowthTest : public StreamTest {
 protected:
  StreamGrowthTest() { Sender(memory_, 0).use_bulk(kMost); }

  void send(std::size_t size) { sent_ += write(bytes_from(sent_, size)); }
  void ask(std::size_t size) {
    const auto message = bytes_from(sent_, size);
    if (!Sender(memory_, 0).write_chunk(message.data(), size)) return;
    sent_ += size;
    ++asked_;
  }
  std::uint64_t fill(std::size_t message = 50'000) {
    for (std::uint64_t before = UINT64_MAX; std::exchange(before, sent_) != sent_;) send(message);
    return sent_ - received_;
  }
  void expect(std::size_t most) {
    const auto part = read(most);
    ASSERT_EQ(part, bytes_from(received_, part.size()));
    received_ += part.size();
  }
  void expect_all() {
    while (received_ != sent_) {
      const std::uint64_t before = received_;
      ASSERT_NO_FATAL_FAILURE(expect(30'000));
      ASSERT_NE(received_, before);
    }
  }
  bool will_have_room() const { return Sender(memory_, 0).has_room_now(Sender::Room::some, Sender::Growth::counted); }
  // As from an answer of the peer's.
  void learn_what_was_read() {
    Direction& direction = memory_.direction(0);
    direction.sending.seen_head.store(Spot(direction.receiving.head.load()).position());
  }
  // The area from the start again, of a stream whose last byte was read.
  void begin_anew() {
    SendState& state = memory_.direction(0).sending;
    state.bulk_size.store(0), state.bulk_most.store(0);
    memory_.direction(0).tally.bytes.store(0);
    Sender(memory_, 0).use_bulk(kMost);
  }

  static constexpr std::size_t kMost = 5 * kFirstBulkBytes + 100'000;
  std::uint64_t sent_ = 0, received_ = 0;
  int asked_ = 0;
};

TEST_F(StreamGrowthTest, WithoutNeedItStaysSmall) {
  EXPECT_FALSE(Sender(memory_, 0).grow());
  for (int i = 0; i < 200; ++i) {
    send(50'000);
    ASSERT_FALSE(Sender(memory_, 0).grow());
    ASSERT_NO_FATAL_FAILURE(expect_all());
  }
  EXPECT_EQ(memory_.direction(0).sending.bulk_size.load(), kFirstBulkBytes);
  EXPECT_LE(memory_.direction(0).sending.committed.load(), kFirstBulkBytes);
}

TEST_F(StreamGrowthTest, AFullOneHasRoomForAllTheRest) {
  EXPECT_LE(fill(), kFirstBulkBytes);
  EXPECT_FALSE(Sender(memory_, 0).has_room_now());
  EXPECT_FALSE(Sender(memory_, 0).has_room_now(Sender::Room::a_third));
  EXPECT_TRUE(will_have_room());
  EXPECT_FALSE(Sender(memory_, 0).has_room_now(Sender::Room::nearly_all));
  ASSERT_TRUE(Sender(memory_, 0).grow());
  EXPECT_TRUE(Sender(memory_, 0).has_room_now());
  EXPECT_GE(fill(), 5 * kFirstBulkBytes - 2 * kUsualChunk);
  EXPECT_FALSE(Sender(memory_, 0).grow()) << "twice";
  EXPECT_FALSE(will_have_room());
  ASSERT_NO_FATAL_FAILURE(expect_all());
  EXPECT_TRUE(Sender(memory_, 0).has_room_now(Sender::Room::nearly_all));
}

TEST_F(StreamGrowthTest, SlotsThatAreUsedUpAreNoReason) {
  while (Sender(memory_, 0).write_small("x", 1)) Sender(memory_, 0).begin_slot();
  EXPECT_FALSE(Sender(memory_, 0).has_room());
  EXPECT_FALSE(Sender(memory_, 0).grow());
  EXPECT_FALSE(will_have_room()) << "whoever waits for it to be full waits no longer";
}

// Little is left of a full ring that TCP's buffers do not take: as much, whether or not it has grown.
TEST_F(StreamGrowthTest, NearlyAllIsOfWhatItMayBe) {
  send(kMost / 16 - 3 * kUsualChunk);
  EXPECT_TRUE(Sender(memory_, 0).has_room_now(Sender::Room::nearly_all));
  send(4 * kUsualChunk);
  EXPECT_FALSE(Sender(memory_, 0).has_room_now(Sender::Room::nearly_all));
}

// Messages so small that they use up the slots share chunks then, as many as the area has in the end.
TEST_F(StreamGrowthTest, CrowdsHaveRoomInAllOfIt) {
  for (const std::size_t size : {10u, 100u, 1000u}) {
    for (;;) {
      const auto bytes = bytes_from(sent_, size);
      const iovec piece{const_cast<unsigned char*>(bytes.data()), size};
      Pieces pieces(&piece, 1);
      Sender sender(memory_, 0);
      const std::size_t now = sender.write(pieces) + sender.write_rest(pieces);
      sent_ += now;
      if (now != size) break;
    }
    EXPECT_GT(sent_ - received_, 2 * kFirstBulkBytes - 2 * kUsualChunk) << size;
    ASSERT_NO_FATAL_FAILURE(expect_all());
    begin_anew();
  }
}

// Wherever what is unread lies, and whatever is read and written from then on.
TEST_F(StreamGrowthTest, NothingIsLostWheneverItGrows) {
  int grown = 0;
  for (int life = 0; life < testing::rounds(300); ++life) {
    for (int i = static_cast<int>(random_() % 40); i != 0; --i) {
      send(1 + random_() % 60'000);
      if (random_() % 4 == 0) sent_ += write_crowded(bytes_from(sent_, 1 + random_() % 3000));
      ASSERT_NO_FATAL_FAILURE(expect(random_() % 60'000));
    }
    fill();
    ASSERT_NO_FATAL_FAILURE(expect(random_() % 3 == 0 ? random_() % 20'000 : 0));
    grown += Sender(memory_, 0).grow();
    for (int i = static_cast<int>(random_() % 200); i != 0; --i) {
      if (random_() % 2 == 0) send(1 + random_() % 60'000);
      if (random_() % 8 == 0) sent_ += write_crowded(bytes_from(sent_, 1 + random_() % 3000));
      if (random_() % 2 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect(random_() % 60'000));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
    if (memory_.direction(0).sending.bulk_size.load() != kFirstBulkBytes) {
      ASSERT_GE(fill(), 5 * kFirstBulkBytes - 2 * kUsualChunk);
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
    begin_anew();
  }
  EXPECT_GT(grown, testing::rounds(300) / 2);
}

// Chunks that ask for an answer go to the start of the area again: not where unread bytes of before may be.
TEST_F(StreamGrowthTest, MessagesThatBeginAnewSpareWhatIsUnread) {
  for (int life = 0; life < testing::rounds(300); ++life) {
    for (int rounds = static_cast<int>(random_() % 6); rounds >= 0; --rounds) {
      fill();
      ASSERT_NO_FATAL_FAILURE(expect(1 + random_() % kFirstBulkBytes));
    }
    fill();
    ASSERT_TRUE(Sender(memory_, 0).grow());
    while (sent_ - received_ > 1) ASSERT_NO_FATAL_FAILURE(expect(sent_ - received_ - 1));
    learn_what_was_read();
    for (int i = 0; i < 60; ++i) {
      ask(1000 + random_() % 9000);
      if (random_() % 3 != 0) {
        ASSERT_NO_FATAL_FAILURE(expect(random_() % 30'000));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
    begin_anew();
  }
  EXPECT_GT(asked_, testing::rounds(300) * 50);
}

// A chunk of before that was claimed larger than it is ends where it did.
TEST_F(StreamGrowthTest, CrowdsDoNotGoOnWhereItWasSmall) {
  for (int life = 0; life < testing::rounds(1000); ++life) {
    for (int rounds = static_cast<int>(random_() % 6); rounds >= 0; --rounds) {
      fill(7000);
      ASSERT_NO_FATAL_FAILURE(expect(1 + random_() % kFirstBulkBytes));
    }
    fill(7000);
    ASSERT_NO_FATAL_FAILURE(expect(21'000));
    sent_ += write_crowded(bytes_from(sent_, 100));
    (void)Sender(memory_, 0).grow();
    sent_ += write_crowded(bytes_from(sent_, 30'000));
    ASSERT_NO_FATAL_FAILURE(expect_all());
    begin_anew();
  }
}

TEST_F(StreamGrowthTest, WhatWasClaimedInVainAfterwardsIsStillRoom) {
  fill();
  ASSERT_TRUE(Sender(memory_, 0).grow());
  ASSERT_NO_FATAL_FAILURE(expect_all());
  EXPECT_EQ(Sender(memory_, 0).write_by(10'000, [](auto) { return -1; }), -1);
  EXPECT_TRUE(Sender(memory_, 0).has_room_now(Sender::Room::nearly_all));
  EXPECT_GE(fill(), 5 * kFirstBulkBytes - 2 * kUsualChunk);
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_F(StreamGrowthTest, WhatHasCarriedManyTimesAsMuchGrowsByItself) {
  while (sent_ < 8 * kMost + kFirstBulkBytes) {
    send(50'000);
    ASSERT_NO_FATAL_FAILURE(expect_all());
  }
  EXPECT_EQ(memory_.direction(0).sending.bulk_size.load(), 5 * kFirstBulkBytes);
  EXPECT_GE(fill(), 5 * kFirstBulkBytes - 2 * kUsualChunk);
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

// It grows in the middle of a message that begins anew, behind a chunk that was claimed larger than it is.
TEST_F(StreamGrowthTest, GrowingWhileItBeginsAnewLeavesRoom) {
  for (int i = 0; i < 8; ++i) send(20'000);
  ASSERT_NO_FATAL_FAILURE(expect_all());
  sent_ += write_crowded(bytes_from(sent_, 100));
  ASSERT_NO_FATAL_FAILURE(expect_all());
  ASSERT_TRUE(Sender(memory_, 0).write_small(bytes_from(sent_, 1).data(), 1));
  ++sent_;
  ASSERT_NO_FATAL_FAILURE(expect_all());
  learn_what_was_read();
  memory_.direction(0).tally.bytes.store(8 * kMost);
  ask(5000);
  ask(5000);
  EXPECT_EQ(memory_.direction(0).sending.bulk_size.load(), 5 * kFirstBulkBytes);
  EXPECT_TRUE(Sender(memory_, 0).has_room_now(Sender::Room::nearly_all));
  EXPECT_GE(fill(), 4 * kFirstBulkBytes);
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_F(StreamGrowthTest, WhatTcpWouldNotTakeIsNotUsed) {
  SendState& state = memory_.direction(1).sending;
  Sender(memory_, 1).use_bulk(2 * kFirstBulkBytes - 1);
  EXPECT_EQ(state.bulk_size.load(), 2 * kFirstBulkBytes - 1);
  EXPECT_FALSE(Sender(memory_, 1).can_grow());
  Sender(memory_, 1).use_bulk(kMost);
  EXPECT_EQ(state.bulk_size.load(), 2 * kFirstBulkBytes - 1) << "somebody has said so before";
}

// In the middle of growing: the tail has moved, or has not yet.
TEST_F(StreamGrowthTest, WhoDiedWhileItGrewHarmsNothing) {
  for (const bool moved : {false, true}) {
    fill();
    ASSERT_NO_FATAL_FAILURE(expect(70'000));
    send(50'000);
    SendState& state = memory_.direction(0).sending;
    const std::uint64_t tail = state.bulk_tail.load();
    ASSERT_TRUE(Sender(memory_, 0).grow());
    state.bulk_size.store(kFirstBulkBytes);
    if (!moved) state.bulk_tail.store(tail);
    Sender(memory_, 0).recover();
    fill();
    ASSERT_NO_FATAL_FAILURE(expect_all());
    fill();
    ASSERT_NO_FATAL_FAILURE(expect_all());
    learn_what_was_read();
    ask(5000);
    EXPECT_TRUE(Sender(memory_, 0).has_room());
    for (int i = 0; i < 200; ++i) {
      send(1 + random_() % 60'000);
      ASSERT_NO_FATAL_FAILURE(expect(random_() % 60'000));
      if (i == 100) (void)Sender(memory_, 0).grow();
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
    EXPECT_TRUE(Sender(memory_, 0).has_room());
    begin_anew();
  }
}

}  // namespace
}  // namespace viaduct::sockets
