// Which slots of a ring are used, and that nobody goes astray between them.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "base/child.hpp"
#include "plain_stream.hpp"
#include "sockets/stream_lock.hpp"

namespace viaduct::sockets {
namespace {

class SlotsTest : public StreamTest {
 protected:
  // One side of each direction: how far it has come.
  struct Way {
    std::uint64_t sent = 0, received = 0;
    SlotSeen seen;
  };
  std::array<Way, 2> ways_;

  bool send_small(int direction, std::size_t size, bool more_follows = false) {
    const auto bytes = bytes_from(ways_[direction].sent, size);
    if (!Sender(memory_, direction).write_small(bytes.data(), size, more_follows)) return false;
    ways_[direction].sent += size;
    return true;
  }
  bool send_chunk(int direction, std::size_t size) {
    const auto bytes = bytes_from(ways_[direction].sent, size);
    if (!Sender(memory_, direction).write_chunk(bytes.data(), size)) return false;
    ways_[direction].sent += size;
    return true;
  }
  std::size_t send(int direction, std::size_t size) {
    const std::size_t now = write(bytes_from(ways_[direction].sent, size), direction);
    ways_[direction].sent += now;
    return now;
  }
  // By the short way, if that has it.
  std::size_t receive(int direction, std::size_t most) {
    Way& way = ways_[direction];
    std::vector<unsigned char> bytes(most);
    bytes.resize(Receiver(memory_, direction).read_small(bytes.data(), most, way.seen).bytes);
    if (bytes.empty()) bytes = read(most, Receiver::Take::consume, direction);
    EXPECT_EQ(bytes, bytes_from(way.received, bytes.size()));
    way.received += bytes.size();
    return bytes.size();
  }
  void receive_all(int direction) {
    while (receive(direction, 1000) != 0) continue;
    EXPECT_EQ(ways_[direction].received, ways_[direction].sent);
  }
  std::uint8_t head_index(int direction) const {
    return Spot(memory_.direction(direction).receiving.head.load()).index();
  }
  bool is_few(int direction, std::uint8_t index) const {
    return index / kFewSlots * kFewSlots == memory_.direction(direction).sending.few_at.load();
  }
};

TEST_F(SlotsTest, QuestionsAndAnswersStayInAFewSlots) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{8}, kBesideTrailer, kBesideTrailer + 1, kInlineBytes,
                                 kInlineBytes + 8, kInlineBytes + kBesideTrailer}) {
    std::array<std::set<std::uint8_t>, 2> used;
    for (int round = 0; round < 1000; ++round)
      for (const int direction : {0, 1}) {
        ASSERT_TRUE(send_small(direction, size)) << size << ", round " << round;
        ASSERT_EQ(receive(direction, size), size);
        used[direction].insert(head_index(direction));
      }
    for (const int direction : {0, 1}) {
      EXPECT_LE(used[direction].size(), kFewSlots) << size;
      for (const std::uint8_t index : used[direction]) EXPECT_TRUE(is_few(direction, index)) << size;
    }
  }
}

// A message in two slots is taken whole, or as far as it is wanted, and with it what follows.
TEST_F(SlotsTest, TwoSlotsAreTakenTogether) {
  for (const std::size_t size : {std::size_t{57}, std::size_t{64}, kInlineBytes + kBesideTrailer})
    for (const std::size_t most :
         {std::size_t{1}, kInlineBytes, kInlineBytes + 1, size - 1, size, size + 1, std::size_t{500}})
      for (const int followers : {0, 1, 2}) {
        for (const int direction : {0, 1}) {  // a question and its answer, so that they are among the few
          ASSERT_TRUE(send_small(direction, size));
          const int behind = direction == 0 ? followers : 0;
          for (int i = 0; i < behind; ++i) ASSERT_TRUE(send_small(0, size) || send(0, size) == size);
          const std::size_t there = size * (static_cast<std::size_t>(behind) + 1);
          EXPECT_EQ(receive(direction, most), std::min(most, there)) << size << ", " << most << ", " << followers;
          receive_all(direction);
        }
      }
}

// Large answers go on in the same lines, and so do the questions, which only they can say were read.
TEST_F(SlotsTest, SoDoLargeAnswers) {
  std::set<std::uint64_t> offsets;
  for (int round = 0; round < 1000; ++round) {
    ASSERT_TRUE(send_small(0, 40));
    ASSERT_EQ(receive(0, 100), 40u);
    ASSERT_TRUE(send_chunk(1, 1000));
    offsets.insert(memory_.direction(1).tally.chunk_from.load() % kLeastBulkBytes);
    ASSERT_EQ(receive(1, 2000), 1000u);
    ASSERT_TRUE(is_few(0, head_index(0)));
    ASSERT_TRUE(is_few(1, head_index(1)));
  }
  EXPECT_LE(offsets.size(), 4u);
}

TEST_F(SlotsTest, AStreamLeavesThemAndComesBack) {
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 3 + round % 150; ++i)
      ASSERT_TRUE(send_small(0, 1 + static_cast<std::size_t>(i) % 112, i > 4) || send(0, 60) != 0);
    const bool few = is_few(0, Spot(memory_.direction(0).sending.tail.load()).index());
    EXPECT_FALSE(few && round % 150 > 20);
    receive_all(0);
    for (int i = 0; i < 8; ++i)
      for (const int direction : {1, 0}) {
        ASSERT_TRUE(send_small(direction, 20));
        ASSERT_EQ(receive(direction, 20), 20u);
      }
    EXPECT_TRUE(is_few(0, head_index(0))) << "after some questions and answers";
  }
}

// A stamp says a position's low bits only. Slots that were not used for as long as it takes until these come again hold
// what was there then, or nothing since the beginning, and nobody is to take that for news.
TEST_F(SlotsTest, WhatWasThereLongAgoIsNoNews) {
  const Direction& direction = memory_.direction(0);
  const auto next_stamp = [&] {
    return static_cast<std::uint16_t>(Spot(direction.sending.tail.load()).position() + 2);
  };
  const auto say = [this](int which, bool more_follows = false) {
    ASSERT_TRUE(send_small(which, kBesideTrailer, more_follows) || send(which, kBesideTrailer) == kBesideTrailer);
    ASSERT_EQ(Receiver(memory_, which).bytes_ready(), kBesideTrailer);
    ASSERT_EQ(receive(which, kBesideTrailer), kBesideTrailer);
    ASSERT_FALSE(Receiver(memory_, which).has_data());
  };
  const auto ask_and_answer = [&] {
    say(0);
    say(1);
  };
  for (const bool all_used : {false, true}) {
    for (int i = 0; all_used && i < 300; ++i) say(0, true);
    // The others after the few.
    for (int i = 0; i < 10; ++i) ask_and_answer();
    ASSERT_TRUE(is_few(0, head_index(0)));
    const std::uint8_t other = direction.sending.many_next.load();
    for (int i = 0; next_stamp() != direction.stamps.of[other].load(); ++i) {
      ask_and_answer();
      ASSERT_LT(i, 70'000);
    }
    for (int i = 0; i < 300; ++i) say(0, true);
    // The few after the others.
    ASSERT_FALSE(is_few(0, head_index(0)));
    const std::uint8_t few = direction.sending.few_next.load();
    for (int i = 0; next_stamp() != direction.stamps.of[few].load(); ++i) {
      say(0, true);
      ASSERT_LT(i, 70'000);
    }
    say(1);
    for (int i = 0; i < 20; ++i) ask_and_answer();
    ASSERT_TRUE(is_few(0, head_index(0)));
  }
}

// Positions have 32 bits: a busy connection uses them up within minutes.
TEST_F(SlotsTest, PositionsComeRoundAgain) {
  constexpr std::uint32_t kStart = 0U - 1000;
  for (const int direction : {0, 1}) {
    Direction& way = memory_.direction(direction);
    for (std::atomic<std::uint64_t>* const word : {&way.sending.tail, &way.receiving.head}) {
      const Spot at(word->load());
      word->store(Spot(kStart, at.index(), at.neighbour()).word());
    }
    way.sending.seen_head.store(kStart);
    for (auto& stamp : way.stamps.of) stamp.store(static_cast<std::uint16_t>(kStart));
  }
  std::array<std::uint64_t, 2> reported{};
  for (int round = 0; round < 3000; ++round)
    for (const int direction : {0, 1}) {
      const auto size = static_cast<std::size_t>(1 + random_() % (random_() % 4 != 0 ? 112 : 5000));
      const bool more_follows = random_() % 4 == 0;
      for (int i = 0; i < (random_() % 16 == 0 ? 40 : 1); ++i)
        if (!(size <= Sender::kSmallMessage ? send_small(direction, size, more_follows) : send_chunk(direction, size)))
          send(direction, size);
      const std::uint64_t now = Receiver(memory_, direction).frontier(reported[direction]);
      EXPECT_NE(now, reported[direction]);
      reported[direction] = now;
      if (random_() % 3 != 0) receive_all(direction);
    }
  for (const int direction : {0, 1}) {
    receive_all(direction);
    EXPECT_LT(Spot(memory_.direction(direction).receiving.head.load()).position(), 1U << 31) << "they did not";
    EXPECT_TRUE(Sender(memory_, direction).has_room_now(Sender::Room::a_third));
  }
}

// Whatever both sides do, in both directions.
TEST_F(SlotsTest, TwoThreadsGoEveryWay) {
  const testing::HangGuard guard;
  constexpr std::uint64_t kBytes = std::uint64_t{6} << 20;
  std::atomic<bool> wrong{false};
  const auto side = [&](int out) {
    std::minstd_rand random(static_cast<unsigned>(out) + 11);
    const int in = 1 - out;
    Way &sending = ways_[out], &receiving = ways_[in];
    std::uint64_t sent = 0;
    while ((sent < kBytes || receiving.received < kBytes) && !wrong) {
      const int patience = random() % 3 == 0 ? 60 : 1;
      for (int i = 0; i < patience && sent < kBytes; ++i) {
        const auto size = static_cast<std::size_t>(
            std::min<std::uint64_t>(1 + random() % (random() % 4 != 0 ? 112 : 20'000), kBytes - sent));
        const StreamLock lock(memory_.direction(out).sending.lock);
        const std::uint64_t before = sending.sent;
        if (size > Sender::kSmallMessage && size <= kUsualChunk && random() % 2 == 0)
          send_chunk(out, size);
        else if (size > Sender::kSmallMessage || !send_small(out, size, random() % 4 == 0))
          send(out, size);
        sent += sending.sent - before;
      }
      const StreamLock lock(memory_.direction(in).receiving.lock);
      receive(in, 1 + random() % (random() % 2 == 0 ? 112 : 30'000));
      if (::testing::Test::HasFailure()) wrong = true;
    }
  };
  std::thread other(side, 1);
  side(0);
  other.join();
  EXPECT_FALSE(wrong);
  for (const Way& way : ways_) EXPECT_EQ(way.received, kBytes);
}

// Chunks that are asked and answered begin the area anew again and again: what that leaves out is not in use.
TEST_F(SlotsTest, AChunkThatFindsNoSlotLeavesTheAreaAsItWas) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(send_chunk(0, 1000));
    receive_all(0);
    ASSERT_TRUE(send_small(1, 8));
    receive_all(1);
  }
  for (int i = 0; send_small(0, 48, i >= 4); ++i) continue;
  ASSERT_TRUE(send_small(1, 8));
  receive_all(1);
  EXPECT_FALSE(send_chunk(0, 1000));
  receive_all(0);
  EXPECT_TRUE(Sender(memory_, 0).has_room_now(Sender::Room::a_third));
  EXPECT_TRUE(send_chunk(0, 1000));
  receive_all(0);
}

TEST_F(SlotsTest, AnAreaBegunAnewHasRoomForMore) {
  memory_.direction(0).sending.bulk_size.store(1U << 20);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(send_chunk(0, 1000));
    receive_all(0);
    ASSERT_TRUE(send_small(1, 48));
    receive_all(1);
  }
  ASSERT_TRUE(send_chunk(0, 1000));
  EXPECT_TRUE(Sender(memory_, 0).has_room_now(Sender::Room::a_third));
  EXPECT_EQ(send(0, 100'000), 100'000U);
  receive_all(0);
}

TEST_F(SlotsTest, ASlotWithoutBytesIsNonsense) {
  ASSERT_TRUE(send_small(0, 8));
  Slots slots(memory_.slots(0));
  const Spot head(memory_.direction(0).receiving.head.load());
  for (const std::uint8_t index : {head.index(), head.neighbour()}) {
    auto header = std::bit_cast<SlotHeader>(slots.header(index).load());
    header.length &= static_cast<std::uint16_t>(~kInlineMask);
    slots.header(index).store(std::bit_cast<std::uint64_t>(header));
  }
  std::vector<unsigned char> bytes(100);
  const iovec piece{bytes.data(), bytes.size()};
  Pieces pieces(&piece, 1);
  Receiver receiver(memory_, 0);
  EXPECT_EQ(receiver.read(pieces, Receiver::Take::consume), 0U);
  EXPECT_TRUE(receiver.broken());
}

}  // namespace
}  // namespace viaduct::sockets
