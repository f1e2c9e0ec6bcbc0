// Sender and Receiver over plain memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "plain_stream.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/tiny_stream.hpp"

namespace viaduct::sockets {
namespace {

TEST_F(StreamTest, NothingIsThereAtFirst) {
  EXPECT_TRUE(read(10).empty());
  EXPECT_EQ(Receiver(memory_, 0).bytes_ready(), 0U);
  EXPECT_FALSE(Receiver(memory_, 0).has_data());
  EXPECT_TRUE(Sender(memory_, 0).has_room());
}

TEST_F(StreamTest, BytesComeInOrderWhateverTheChunks) {
  std::uint64_t sent = 0, received = 0;
  for (int round = 0; round < testing::rounds(40'000); ++round) {
    if (random_() % 2 == 0) {
      const std::size_t size = 1 + random_() % (std::size_t{1} << random_() % 17);
      sent += write(bytes_from(sent, size));
    }
    ASSERT_EQ(Receiver(memory_, 0).bytes_ready(), sent - received);
    if (random_() % 2 == 0) {
      const std::size_t most = 1 + random_() % (std::size_t{1} << random_() % 17);
      const auto peeked = read(most, Receiver::Take::peek);
      ASSERT_EQ(peeked, bytes_from(received, peeked.size()));
      if (random_() % 8 == 0) {
        received += read(most, Receiver::Take::discard).size();
        continue;
      }
      const auto taken = read(most);
      ASSERT_EQ(taken, peeked);
      received += taken.size();
    }
  }
  EXPECT_GT(received, kLeastBulkBytes * 16);
}

TEST_F(StreamTest, CrowdsOfSmallMessagesFitWhereSlotsDoNot) {
  memory_.direction(0).sending.bulk_size.store(kMostBulkBytes);
  std::uint64_t sent = 0;
  while (const std::size_t now = write(bytes_from(sent, 20))) sent += now;
  EXPECT_LT(sent, kSlots * kInlineBytes);
  while (const std::size_t now = write_crowded(bytes_from(sent, 20))) sent += now;
  EXPECT_GT(sent, 31 * (kUsualChunk - 2 * kLine));
  EXPECT_EQ(Receiver(memory_, 0).bytes_ready(), sent);
  EXPECT_EQ(read(2 * sent), bytes_from(0, sent));
}

// Bytes that come into a line which the receiver has given back already must not be written over.
TEST_F(StreamTest, CrowdsComeInOrderWhoeverReadsMeanwhile) {
  std::uint64_t sent = 0, received = 0;
  std::size_t crowded = 0;
  for (int round = 0; round < testing::rounds(200'000); ++round) {
    const bool many = random_() % 8 == 0;
    for (int i = 0; i < (many ? 300 : 1); ++i) {
      const auto bytes = bytes_from(sent, 1 + random_() % (random_() % 8 == 0 ? 20'000 : 40));
      const std::size_t now = random_() % 3 == 0 ? 0 : write(bytes);
      const std::size_t more = now == 0 ? write_crowded(bytes) : 0;
      sent += now + more;
      crowded += more;
      if (now + more == 0) break;
    }
    const auto taken = read(random_() % 3 == 0 ? 100'000 : 1 + random_() % 3000);
    ASSERT_EQ(taken, bytes_from(received, taken.size()));
    received += taken.size();
    if (random_() % 2 != 0) continue;
    const auto rest = read(std::size_t{1} << 20);
    ASSERT_EQ(rest, bytes_from(received, rest.size()));
    received += rest.size();
    ASSERT_EQ(received, sent);
  }
  EXPECT_GT(crowded, kLeastBulkBytes * 16);
}

// The short ways take all that is there or nothing: then the long way has it.
TEST_F(StreamTest, TheShortWaysAreTheSameStream) {
  std::uint64_t sent = 0, received = 0, short_sends = 0, short_reads = 0, seen_reads = 0;
  SlotSeen seen;
  for (int round = 0; round < testing::rounds(40'000); ++round) {
    for (std::uint64_t i = random_() % 3; i > 0; --i) {
      const std::size_t size = 1 + random_() % (random_() % 2 == 0 ? 20 : Sender::kSmallMessage);
      const auto bytes = bytes_from(sent, size);
      if (random_() % 8 == 0) {
        sent += write(bytes_from(sent, size * 20));
      } else if (Sender(memory_, 0).write_small(bytes.data(), size)) {
        sent += size;
        ++short_sends;
      }
    }
    const std::uint64_t ready = Receiver(memory_, 0).bytes_ready();
    ASSERT_EQ(ready, sent - received);
    std::vector<unsigned char> bytes(1 + random_() % (random_() % 2 == 0 ? 10 : 200));
    // A second look would find more; what the last one found is there all the same.
    if (Receiver(memory_, 0).has_seen(bytes.size(), seen)) {
      ASSERT_EQ(Receiver(memory_, 0).read_seen(bytes.data(), bytes.size(), seen), bytes.size());
      ASSERT_EQ(bytes, bytes_from(received, bytes.size()));
      received += bytes.size();
      ++seen_reads;
      continue;
    }
    ASSERT_EQ(Receiver(memory_, 0).read_seen(bytes.data(), bytes.size(), seen), 0u);
    const std::size_t got = Receiver(memory_, 0).read_small(bytes.data(), bytes.size(), seen).bytes;
    if (got != 0) {
      ASSERT_EQ(got, std::min<std::uint64_t>(ready, bytes.size()));
      bytes.resize(got);
      ++short_reads;
    } else {
      bytes = read(bytes.size());
    }
    ASSERT_EQ(bytes, bytes_from(received, bytes.size()));
    received += bytes.size();
  }
  EXPECT_GT(short_sends, 100u);
  EXPECT_GT(short_reads, 100u);
  EXPECT_GT(seen_reads, 100u);
}

TEST_F(StreamTest, ManyPiecesAreOneStream) {
  std::vector<unsigned char> bytes = bytes_from(0, 30'000);
  std::vector<iovec> pieces;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(random_() % 400, bytes.size() - at);
    pieces.push_back({&bytes[at], size});
    at += size;
  }
  Pieces cursor(pieces.data(), pieces.size());
  EXPECT_EQ(cursor.bytes_left(), bytes.size());
  EXPECT_EQ(Sender(memory_, 0).write(cursor), bytes.size());
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(read(bytes.size()), bytes);
}

// To take what a look has found is no further look: what the sender does meanwhile does not matter.
TEST_F(StreamTest, WhatWasSeenIsTakenWithoutAnotherLook) {
  SlotSeen seen;
  unsigned char bytes[24] = {};
  ASSERT_TRUE(Sender(memory_, 0).write_small("abcdefghijklmnop", 16));
  ASSERT_EQ(Receiver(memory_, 0).read_small(bytes, 4, seen).bytes, 4u);
  EXPECT_TRUE(Receiver(memory_, 0).has_seen(12, seen));
  ASSERT_TRUE(Sender(memory_, 0).write_small("qrst", 4));
  EXPECT_FALSE(Receiver(memory_, 0).has_seen(13, seen)) << "that needs a look";
  EXPECT_EQ(Receiver(memory_, 0).read_seen(bytes, 13, seen), 0u);
  ASSERT_EQ(Receiver(memory_, 0).read_seen(bytes + 4, 12, seen), 12u);
  EXPECT_FALSE(Receiver(memory_, 0).has_seen(1, seen));
  ASSERT_EQ(Receiver(memory_, 0).read_small(bytes + 16, 8, seen).bytes, 4u);
  EXPECT_EQ(std::memcmp(bytes, "abcdefghijklmnopqrst", 20), 0);
  // The last slot that was seen is another one now.
  ASSERT_TRUE(Sender(memory_, 0).write_small(bytes, 24));
  ASSERT_TRUE(Sender(memory_, 0).write_small(bytes, 24));
  EXPECT_EQ(read(100).size(), 48u);
  EXPECT_FALSE(Receiver(memory_, 0).has_seen(1, seen));
}

// Eight tiny ones in a row make a stream; where waiting for more was in vain, sixteen, and so on.
TEST_F(StreamTest, AStreamOfTinyMessagesHasToProveItself) {
  const testing::HangGuard guard;
  TinyStream stream;
  const auto find_until_likely = [&] {
    int found = 0;
    for (; !stream.is_likely(); ++found) stream.found(8, 0);
    return found;
  };
  EXPECT_EQ(find_until_likely(), 8);
  stream.found(kInlineBytes * 3 + 1, 2);  // not tiny
  EXPECT_FALSE(stream.is_likely());
  EXPECT_EQ(find_until_likely(), 8);
  stream.interrupted();
  EXPECT_EQ(find_until_likely(), 8);
  // Nothing comes. A look long after the one before does not wait at all.
  while (stream.is_likely()) stream.let_fill(Receiver(memory_, 0));
  EXPECT_EQ(find_until_likely(), 16);
  while (stream.is_likely()) stream.let_fill(Receiver(memory_, 0));
  EXPECT_EQ(find_until_likely(), 32);
  // Lines are there: it is a stream, and the next one needs eight again.
  while (Spot(memory_.direction(0).receiving.head.load()).index() < kFewSlots) {  // the few are for small exchanges
    ASSERT_EQ(write(bytes_from(0, 500)), 500u);
    ASSERT_EQ(read(500).size(), 500u);
  }
  for (int i = 0; i < 10; ++i) ASSERT_EQ(write(bytes_from(0, 56)), 56u);
  for (int i = 0; i < 1000; ++i) stream.let_fill(Receiver(memory_, 0));
  EXPECT_TRUE(stream.is_likely());
  stream.interrupted();
  EXPECT_EQ(find_until_likely(), 8);
}

// What the other side says of its position has no room in it that writing does not find.
TEST_F(StreamTest, NonsenseAboutRoomIsNoRoom) {
  while (write(bytes_from(0, 100'000)) != 0) continue;
  while (write(bytes_from(0, 1)) != 0) continue;
  Direction& direction = memory_.direction(0);
  const std::uint32_t tail = Spot(direction.sending.tail.load()).position();
  const std::uint64_t bulk_tail = direction.sending.bulk_tail.load();
  for (std::uint32_t ahead = 1; ahead < 3; ++ahead) {
    direction.receiving.head.store(Spot(tail + ahead, 0, 1).word());
    direction.receiving.bulk_head.store(0);
    EXPECT_FALSE(Sender(memory_, 0).has_room_now()) << ahead;
    direction.receiving.bulk_head.store(bulk_tail + 64 * ahead);
    direction.receiving.head.store(Spot(tail, 0, 1).word());
    EXPECT_FALSE(Sender(memory_, 0).has_room_now()) << ahead;
  }
}

// A look at other slots than those that were written down says nothing about these.
TEST_F(StreamTest, StillnessIsOfTheSlotsThatWereLookedAt) {
  ASSERT_TRUE(Sender(memory_, 0).write_small(bytes_from(0, 56).data(), 56));
  ASSERT_TRUE(Sender(memory_, 0).write_small(bytes_from(56, 56).data(), 56));
  const Stillness before(memory_, 0);
  ASSERT_EQ(read(112).size(), 112u);  // somebody else, meanwhile
  ASSERT_FALSE(Receiver(memory_, 0).has_data());
  EXPECT_FALSE(before.is_of_head(memory_, 0));
  const Stillness after(memory_, 0);
  ASSERT_FALSE(Receiver(memory_, 0).has_data());
  EXPECT_TRUE(after.is_of_head(memory_, 0));
  EXPECT_TRUE(after.holds());
  ASSERT_TRUE(Sender(memory_, 0).write_small(bytes_from(112, 56).data(), 56));
  EXPECT_TRUE(before.holds()) << "nothing of that is in the slots it knows";
  EXPECT_FALSE(after.holds());
}

TEST_F(StreamTest, AFullRingTakesNoMoreAndHasRoomAgain) {
  std::uint64_t sent = 0;
  while (const std::size_t now = write(bytes_from(sent, 100'000))) sent += now;
  while (const std::size_t now = write(bytes_from(sent, 1))) sent += now;
  EXPECT_FALSE(Sender(memory_, 0).has_room());
  EXPECT_FALSE(Sender(memory_, 0).has_room_now());
  std::uint64_t received = 0;
  for (auto part = read(5000); !part.empty(); part = read(5000)) {
    ASSERT_EQ(part, bytes_from(received, part.size()));
    received += part.size();
  }
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(Sender(memory_, 0).has_room());
}

TEST_F(StreamTest, HowMuchIsUsedIsUpToTheSender) {
  const std::size_t large = bulk_size_for(SIZE_MAX);
  EXPECT_GE(large, std::size_t{512} << 10);
  EXPECT_LE(large, kMostBulkBytes);
  EXPECT_EQ(bulk_size_for(200'000), 200'000u);
  EXPECT_EQ(bulk_size_for(0), kLeastBulkBytes);
  for (const std::size_t size : {kLeastBulkBytes, std::size_t{200'000}, large}) {
    memory_.direction(0).sending.bulk_size.store(static_cast<std::uint32_t>(size));
    std::uint64_t sent = memory_.direction(0).tally.bytes.load(), received = sent;
    for (int round = 0; round < 20; ++round) {
      while (const std::size_t now = write(bytes_from(sent, 1 + random_() % 30'000))) sent += now;
      EXPECT_LE(sent - received, size);
      EXPECT_FALSE(Sender(memory_, 0).has_room());
      // Of what is left in the middle of the area, the sender goes on when there is room, and only then.
      while (!Sender(memory_, 0).has_room_now()) {
        const auto part = read(1 + random_() % 10'000);
        ASSERT_FALSE(part.empty());
        ASSERT_EQ(part, bytes_from(received, part.size()));
        received += part.size();
      }
      const std::size_t more = write(bytes_from(sent, 5000));
      EXPECT_NE(more, 0u) << "there was to be room";
      sent += more;
    }
    for (auto part = read(5000); !part.empty(); part = read(5000)) {
      ASSERT_EQ(part, bytes_from(received, part.size()));
      received += part.size();
    }
    EXPECT_EQ(received, sent);
    // Always read at once: there is room whatever the sender has seen of that.
    for (int round = 0; round < 5000; ++round) {
      const std::size_t now = write(bytes_from(sent, 200 + random_() % 6000));
      ASSERT_NE(now, 0u) << round;
      ASSERT_EQ(read(now), bytes_from(sent, now));
      sent += now;
    }
  }
}

TEST_F(StreamTest, TheTwoDirectionsAreApart) {
  const auto bytes = bytes_from(0, 1000);
  const iovec piece{const_cast<unsigned char*>(bytes.data()), bytes.size()};
  Pieces pieces(&piece, 1);
  EXPECT_EQ(Sender(memory_, 1).write(pieces), bytes.size());
  EXPECT_FALSE(Receiver(memory_, 0).has_data());
  EXPECT_EQ(Receiver(memory_, 1).bytes_ready(), bytes.size());
}

// Whatever is in the control page and the slots: every call comes back, within the memory (which ends where it ends).
TEST_F(StreamTest, NonsenseInSharedMemoryIsSurvived) {
  SlotSeen seen;
  auto* const words = reinterpret_cast<std::uint32_t*>(memory_.base);
  for (int round = 0; round < testing::rounds(4000); ++round) {
    for (int i = 0; i < 40; ++i) {
      const std::size_t where =
          random_() % 2 == 0 ? random_() % (sizeof(StreamControl) / 4) : random_() % (kFirstCommitted / 4);
      words[where] = random_() % 3 == 0 ? static_cast<std::uint32_t>(random_()) : random_() % 600;
    }
    // Headers that look right: the stamps of the next slots, any length.
    const Spot head(memory_.direction(0).receiving.head.load());
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto length = static_cast<std::uint16_t>(random_() % 2 == 0 ? random_() % 70 : random_() * 3);
      const SlotHeader header{static_cast<std::uint16_t>(head.position() + i + 1), length,
                              static_cast<std::uint32_t>(random_())};
      std::memcpy(Slots(memory_.slots(0)).at(i == 0 ? head.index() : head.neighbour()), &header, sizeof header);
    }
    std::vector<unsigned char> little(1 + random_() % 200);
    ASSERT_LE(Receiver(memory_, 0).read_small(little.data(), little.size(), seen).bytes, little.size());
    ASSERT_LE(Receiver(memory_, 0).read_seen(little.data(), 1 + random_() % little.size(), seen), little.size());
    (void)Sender(memory_, 0).write_small(little.data(), 1 + random_() % Sender::kSmallMessage % little.size());
    (void)write(bytes_from(0, 1 + random_() % 70'000));
    (void)write_crowded(bytes_from(0, 1 + random_() % 70'000));
    (void)read(1 + random_() % 70'000, random_() % 2 == 0 ? Receiver::Take::consume : Receiver::Take::peek);
    Receiver receiver(memory_, 0);
    (void)receiver.bytes_ready();
    (void)receiver.has_data();
    (void)receiver.senders_to_wake(false);
    Sender sender(memory_, 0);
    (void)sender.has_room();
    sender.want_room();
  }
}

TEST_F(StreamTest, TwoThreadsTransferEverything) {
  const testing::HangGuard guard;
  constexpr std::uint64_t kBytes = std::uint64_t{4} << 20;
  std::thread sender([this] {
    std::minstd_rand random(7);
    for (std::uint64_t sent = 0; sent < kBytes;) {
      const auto size =
          static_cast<std::size_t>(std::min<std::uint64_t>(1 + random() % (1U << random() % 16), kBytes - sent));
      const StreamLock lock(memory_.direction(0).sending.lock);
      const std::size_t now = write(bytes_from(sent, size));
      sent += now != 0 ? now : write_crowded(bytes_from(sent, size));
    }
  });
  std::uint64_t received = 0;
  bool right = true;
  while (received < kBytes && right) {
    const StreamLock lock(memory_.direction(0).receiving.lock);
    const auto part = read(1 + random_() % 40'000);
    right = part == bytes_from(received, part.size());
    received += part.size();
  }
  EXPECT_TRUE(right);
  sender.join();
  EXPECT_EQ(received, kBytes);
}

// As if its sender had jumped away, or died, after it had published and before it had noted that.
TEST_F(StreamTest, WhatASenderLeftInTheMiddleIsPutRight) {
  SendState& state = memory_.direction(0).sending;
  const auto left_behind = [&] { state.lock.store(0x7fff'fff1); };  // by a thread that never was
  const auto take_over = [&] { const SendingLock lock(memory_, 0); };

  ASSERT_EQ(write(bytes_from(0, 10)), 10U);
  const std::uint64_t before = state.tail.load();
  state.tail.store(Spot(0, Spot(before).neighbour(), 0).word());  // one slot
  left_behind();
  take_over();
  ASSERT_EQ(write(bytes_from(10, 5)), 5U);
  EXPECT_EQ(read(100), bytes_from(0, 15));

  ASSERT_EQ(write(bytes_from(15, 5)), 5U);
  ASSERT_EQ(write(bytes_from(20, 5)), 5U);  // behind the others, in their slot
  state.growing.store(state.growing.load() - 5);
  left_behind();
  take_over();
  ASSERT_EQ(write(bytes_from(25, 5)), 5U);
  EXPECT_EQ(read(100), bytes_from(15, 15));

  Sender sender(memory_, 0);
  struct Kept {
    std::uint64_t tail;
    std::uint8_t few_next, many_next;
  };
  const auto keep = [&] { return Kept{state.tail.load(), state.few_next.load(), state.many_next.load()}; };
  const auto restore = [&](const Kept& kept) {
    state.tail.store(kept.tail);
    state.few_next.store(kept.few_next);
    state.many_next.store(kept.many_next);
  };
  Kept kept = keep();
  ASSERT_TRUE(sender.write_small(bytes_from(30, 100).data(), 100));  // two slots
  const std::uint64_t after = state.tail.load();
  ASSERT_EQ(Spot(after).position(), Spot(kept.tail).position() + 2);
  restore(kept);
  left_behind();
  take_over();
  EXPECT_EQ(state.tail.load(), after);
  EXPECT_EQ(read(200), bytes_from(30, 100));

  state.seen_head.store(Spot(memory_.direction(0).receiving.head.load()).position());
  kept = keep();
  ASSERT_TRUE(sender.write_small(bytes_from(0, 100).data(), 100));
  Slots(memory_.slots(0)).header(Spot(kept.tail).index()).store(0);  // the first of them had not been published
  restore(kept);
  left_behind();
  take_over();
  ASSERT_EQ(write(bytes_from(130, 5)), 5U);
  EXPECT_EQ(read(200), bytes_from(130, 5));
}

TEST_F(StreamTest, WhoDiedOnHisWayIntoTheOthersLockWantsItNoMore) {
  for (End& end : memory_.control().end) end.request.store(kHandBack | kTakeBack | kEmptying);
  Sender(memory_, 0).recover();
  EXPECT_EQ(memory_.control().end[0].request.load(), kHandBack | kTakeBack);
  EXPECT_EQ(memory_.control().end[1].request.load(), kHandBack | kTakeBack | kEmptying) << "that one lives";
}

// What was taken is in one word, so that it cannot be left in the middle. What is given back of the bulk area is not.
TEST_F(StreamTest, WhatAReceiverLeftInTheMiddleIsPutRight) {
  ReceiveState& state = memory_.direction(0).receiving;
  ASSERT_EQ(write(bytes_from(0, 1000)), 1000U);
  ASSERT_EQ(read(300), bytes_from(0, 300));
  const std::uint64_t before = state.bulk_head.load();
  Receiver(memory_, 0).recover();
  EXPECT_EQ(state.bulk_head.load(), before) << "not all of the chunk was taken";
  ASSERT_EQ(read(1000), bytes_from(300, 700));
  const std::uint64_t after = state.bulk_head.load();
  ASSERT_GT(after, before);
  state.bulk_head.store(before);
  Receiver(memory_, 0).recover();
  EXPECT_EQ(state.bulk_head.load(), after);
  ASSERT_EQ(write(bytes_from(1000, 10)), 10U);
  EXPECT_EQ(read(100), bytes_from(1000, 10));
  Receiver(memory_, 0).recover();
  EXPECT_EQ(state.bulk_head.load(), after);
}

}  // namespace
}  // namespace viaduct::sockets
