// The small parts of a session, each alone.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "net/byte_ranges.hpp"
#include "net/congestion.hpp"
#include "net/incoming_items.hpp"
#include "net/outgoing_items.hpp"
#include "net/received_numbers.hpp"
#include "net/round_trip.hpp"
#include "net/sent_frames.hpp"
#include "net/wire.hpp"

namespace viaduct::net {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Wire, ASealedFrameOpensAgain) {
  std::vector<std::byte> bytes(kHeaderSize + 5);
  Writer(std::span(bytes).subspan(kHeaderSize)).put_bytes(bytes_of("hello"));
  FrameHeader header{};
  header.kind = 1;
  header.session = 0x1122334455667788;
  header.number = 77;
  header.span = 5;
  seal_frame(bytes, header);
  bytes.resize(60);  // Ethernet's padding
  const auto opened = open_frame(bytes);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->header.session, 0x1122334455667788U);
  EXPECT_EQ(opened->header.number, 77U);
  EXPECT_EQ(opened->header.span, 5U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(opened->chunks.data()), opened->chunks.size()), "hello");
}

TEST(Wire, AFrameWithAnyChangedBitIsDropped) {
  std::vector<std::byte> bytes(kHeaderSize + 40, std::byte{3});
  FrameHeader header{};
  header.kind = 1;
  header.number = 9;
  seal_frame(bytes, header);
  ASSERT_TRUE(open_frame(bytes));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(open_frame(bytes)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(open_frame(std::span(bytes).first(size)));
}

TEST(Wire, ReadingPastTheEndGivesZerosAndFailsForGood) {
  const std::string three = "abc";
  Reader reader(bytes_of(three));
  EXPECT_EQ(reader.get<std::uint16_t>(), 0x6261);
  EXPECT_EQ(reader.get<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.good());
  EXPECT_EQ(reader.get<std::uint8_t>(), 0);
  EXPECT_FALSE(reader.good());
}

// Against a set of all numbers that came.
TEST(ReceivedNumbers, AgreeWithAModel) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{1000003}, UINT64_MAX - 100000}) {
    Random random(first);
    ReceivedNumbers received(first);
    std::set<std::uint64_t> had;
    std::uint64_t given_up = first;
    for (int step = 0; step < 20000; ++step) {
      const std::uint64_t number = received.below() + random.below(random.chance(0.1) ? 1100 : 40);
      if (random.chance(0.01)) {
        given_up = std::max(given_up, received.below() + random.below(random.chance(0.1) ? 2000 : 50));
        received.give_up_below(given_up);
      } else if (number >= received.below() + kNumbersTracked) {
        ASSERT_EQ(received.look(number), ReceivedNumbers::Verdict::too_far);
      } else {
        const bool known = had.contains(number);
        ASSERT_EQ(received.look(number), known ? ReceivedNumbers::Verdict::had : ReceivedNumbers::Verdict::fresh);
        if (!known) {
          received.add(number);
          had.insert(number);
        }
      }
      std::uint64_t below = given_up;
      while (had.contains(below)) ++below;
      // What stood in a row above the last gap stays below, too.
      ASSERT_GE(received.below(), below);
      ASSERT_FALSE(had.contains(received.below()));
      if (step % 50 == 0) {
        const std::uint64_t start = received.below();
        for (std::size_t i = 0; i < received.words(); ++i) {
          for (unsigned bit = 0; bit < 64; ++bit) {
            ASSERT_EQ((received.word(i) >> bit & 1) != 0, had.contains(start + i * 64 + bit)) << i << " " << bit;
          }
        }
        ASSERT_EQ(received.has_gap(), had.upper_bound(start) != had.end());
      }
    }
  }
}

TEST(ByteRanges, AgreeWithAModel) {
  Random random(5);
  ByteRanges ranges;
  std::vector<bool> model(300);
  for (int step = 0; step < 20000; ++step) {
    const std::uint64_t begin = random.below(model.size());
    const std::uint64_t end = begin + random.below(model.size() - begin + 1);
    std::uint64_t changed = 0;
    if (random.chance(0.45)) {
      for (std::uint64_t at = begin; at < end; ++at) changed += !model[at];
      std::fill(model.begin() + static_cast<int>(begin), model.begin() + static_cast<int>(end), true);
      ASSERT_EQ(ranges.add({begin, end}), changed);
    } else if (random.chance(0.8) || ranges.empty()) {
      for (std::uint64_t at = begin; at < end; ++at) changed += model[at];
      std::fill(model.begin() + static_cast<int>(begin), model.begin() + static_cast<int>(end), false);
      ASSERT_EQ(ranges.remove({begin, end}), changed);
    } else {
      const ByteRange taken = ranges.take_front(1 + random.below(20));
      for (std::uint64_t at = 0; at < taken.end; ++at) {
        ASSERT_EQ(model[at], at >= taken.begin);
        model[at] = false;
      }
    }
    std::uint64_t bytes = 0;
    std::uint64_t last = 0;
    for (const ByteRange& range : ranges.ranges()) {
      ASSERT_LT(range.begin, range.end);
      ASSERT_TRUE(bytes == 0 || range.begin > last);  // not touching: else they would be one
      for (std::uint64_t at = range.begin; at < range.end; ++at) ASSERT_TRUE(model[at]);
      last = range.end;
      bytes += range.size();
    }
    ASSERT_EQ(bytes, ranges.bytes());
    ASSERT_EQ(bytes, static_cast<std::uint64_t>(std::count(model.begin(), model.end(), true)));
  }
}

TEST(RoundTrip, SmoothsAndRemembersTheLeast) {
  RoundTrip trip;
  EXPECT_FALSE(trip.known());
  EXPECT_GT(trip.smoothed(), 0U);
  for (int i = 0; i < 100; ++i) trip.sample(i == 50 ? 5'000 : 10'000, static_cast<std::uint64_t>(i) * 1000);
  EXPECT_NEAR(static_cast<double>(trip.smoothed()), 10'000, 100);
  EXPECT_EQ(trip.least(), 5'000U);
  // A longer route is believed in the end.
  for (int i = 0; i < 100; ++i) trip.sample(80'000, 20'000'000'000 + static_cast<std::uint64_t>(i) * 1'000'000'000);
  EXPECT_EQ(trip.least(), 80'000U);
}

TEST(SentFrames, GrowToTheLimitAndForgetInOrder) {
  SentFrames sent(UINT64_MAX / 2);
  std::vector<std::uint64_t> numbers;
  while (!sent.at_limit()) numbers.push_back(sent.add(numbers.size()).number);
  EXPECT_EQ(numbers.size(), kNumbersTracked);
  EXPECT_EQ(sent.flying(), kNumbersTracked);
  for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(sent.find(numbers[i])->sent_at, i);
  sent.set_over(*sent.find(numbers[1]));
  EXPECT_TRUE(sent.at_limit());
  EXPECT_EQ(sent.find(numbers[1]), nullptr);
  sent.set_lost(*sent.find(numbers[0]));
  EXPECT_EQ(sent.flying(), kNumbersTracked - 2U);
  sent.set_over(*sent.find(numbers[0]));
  EXPECT_EQ(sent.oldest(), numbers[2]);
  EXPECT_EQ(sent.span(), kNumbersTracked - 2);
}

TEST(Congestion, FewLossesOfManyShrinkNothingAndManyHalve) {
  Congestion congestion(256);
  std::uint64_t number = 1;
  const auto round = [&](int good, int lost) {
    for (int i = 0; i < good; ++i) congestion.acknowledged(true);
    for (int i = 0; i < lost; ++i) congestion.lost();
    number += 1000;
    congestion.maybe_end_round(number, number + 1, 10'000);
  };
  round(1, 0);
  while (congestion.window() < 256) round(100, 0);
  round(200, 5);
  EXPECT_EQ(congestion.window(), 256U);
  round(100, 20);
  EXPECT_EQ(congestion.window(), 128U);
  congestion.marked(1);
  round(100, 0);
  EXPECT_EQ(congestion.window(), 96U);
  congestion.round_trip(1'000'000);
  round(100, 0);
  EXPECT_EQ(congestion.window(), 72U);
  for (int i = 0; i < 20; ++i) round(10, 100);
  EXPECT_EQ(congestion.window(), Congestion::kLeast);
}

TEST(Items, CutAsFramesHaveRoomAndPutTogetherInAnyOrder) {
  for (const std::uint32_t first : {0U, UINT32_MAX - 5}) {
    Random random(first + 1);
    OutgoingItems outgoing(first, 8, 5000);
    IncomingItems incoming(first, 8, 5000);
    std::vector<OutgoingItems::Part> under_way;
    std::uint32_t sent = 0, received = 0;
    const auto item = [](std::uint32_t index) {
      return std::string(index * 977 % 5001, static_cast<char>('a' + index % 26));
    };
    while (received < 200) {
      if (sent < 200 && outgoing.has_credit()) {
        std::string text = item(sent++);
        const iovec piece{text.data(), text.size()};
        outgoing.push(What::message, {&piece, 1});
      }
      if (outgoing.wants_to_send()) under_way.push_back(outgoing.take(1 + random.below(2000)));
      if (!under_way.empty() && random.chance(0.8)) {
        std::swap(under_way[random.below(under_way.size())], under_way.back());
        const auto part = under_way.back();
        under_way.pop_back();
        const auto size = static_cast<std::uint32_t>(part.bytes.size());
        if (random.chance(0.2)) {
          outgoing.lost(part.sequence, part.offset, size);
        } else {
          ASSERT_EQ(incoming.place(part.what, part.sequence, part.total, part.offset, part.bytes),
                    IncomingItems::Placed::fresh);
          outgoing.acknowledged(part.sequence, part.offset, size);
        }
      }
      while (incoming.ready()) {
        const auto bytes = incoming.bytes();
        ASSERT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), item(received));
        ++received;
        incoming.consume();
      }
      if (incoming.credit_due()) {
        ASSERT_TRUE(outgoing.grant(incoming.tell_limit()));
      }
    }
    while (!under_way.empty()) under_way.pop_back();
    EXPECT_FALSE(outgoing.wants_to_send());
    EXPECT_TRUE(outgoing.all_acknowledged());
  }
}

TEST(Items, ImpossibleOnesAreSeen) {
  IncomingItems incoming(10, 4, 100);
  const std::vector<std::byte> bytes(101);
  const auto place = [&](std::uint32_t sequence, std::uint32_t total, std::uint32_t offset, std::size_t size) {
    return incoming.place(What::message, sequence, total, offset, std::span(bytes).first(size));
  };
  EXPECT_EQ(place(14, 1, 0, 1), IncomingItems::Placed::impossible);    // beyond the credit
  EXPECT_EQ(place(10, 101, 0, 1), IncomingItems::Placed::impossible);  // longer than a slot
  EXPECT_EQ(place(10, 50, 51, 0), IncomingItems::Placed::impossible);
  EXPECT_EQ(place(10, 50, 49, 2), IncomingItems::Placed::impossible);
  EXPECT_EQ(place(10, 50, UINT32_MAX, 2), IncomingItems::Placed::impossible);
  EXPECT_EQ(place(10, 50, 0, 20), IncomingItems::Placed::fresh);
  EXPECT_EQ(place(10, 51, 20, 20), IncomingItems::Placed::impossible);  // another length than before
  EXPECT_EQ(incoming.place(What::put, 10, 50, 20, std::span(bytes).first(10)), IncomingItems::Placed::impossible);
  EXPECT_EQ(place(10, 50, 5, 10), IncomingItems::Placed::had);
  EXPECT_FALSE(incoming.ready());
  EXPECT_EQ(place(10, 50, 20, 30), IncomingItems::Placed::fresh);
  EXPECT_TRUE(incoming.ready());
  EXPECT_EQ(place(12, 1, 0, 1), IncomingItems::Placed::fresh);
  EXPECT_FALSE(incoming.end_at(12));  // before what was sent
  EXPECT_TRUE(incoming.end_at(13));
  EXPECT_TRUE(incoming.end_at(13));
  EXPECT_FALSE(incoming.end_at(14));
  EXPECT_EQ(place(13, 1, 0, 1), IncomingItems::Placed::impossible);
}

TEST(Items, CreditIsNeverTakenBackOrMoreThanTheSlots) {
  OutgoingItems outgoing(UINT32_MAX, 4, 100);
  EXPECT_EQ(outgoing.credit(), 4U);
  EXPECT_TRUE(outgoing.grant(1));  // an older one
  EXPECT_EQ(outgoing.credit(), 4U);
  EXPECT_FALSE(outgoing.grant(4));  // five slots of four
  EXPECT_EQ(outgoing.credit(), 4U);
}

}  // namespace
}  // namespace viaduct::net
