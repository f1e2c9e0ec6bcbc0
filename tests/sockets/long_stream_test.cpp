// Long messages through a stream, to readers near and far.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "plain_stream.hpp"
#include "sockets/stream_lock.hpp"

namespace viaduct::sockets {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 20;

// As if every copy so far had told it so.
FarReader one_that_is_far() {
  FarReader reader;
  for (int i = 0; i < 1000; ++i)
    if (const FarReader::Way way = reader.next(kUsualChunk); way.timed)
      reader.took(kUsualChunk, way.past_caches ? 400 : 6000);
  return reader;
}

class LongStreamTest : public StreamTest {
 protected:
  // So many from there on, out of memory that begins so many bytes behind a line.
  std::size_t write_long(FarReader& reader, std::uint64_t from, std::size_t size, std::size_t behind_line) {
    const auto bytes = bytes_from(from, size);
    std::byte* const start =
        from_.data() + kLine - reinterpret_cast<std::uintptr_t>(from_.data()) % kLine + behind_line;
    std::memcpy(start, bytes.data(), size);
    const iovec piece{start, size};
    Pieces pieces(&piece, 1);
    Sender sender(memory_, 0);
    sender.learn(reader);
    sender.part_of(size);
    return sender.write(pieces);
  }
  // Of what is unread.
  std::size_t first_chunk() const {
    const Spot head(memory_.direction(0).receiving.head.load());
    const Slots slots(memory_.slots(0));
    const bool read_already = head.taken() != 0;
    const std::uint8_t index = read_already ? head.neighbour() : head.index();
    return slots.length(head.position() + (read_already ? 1 : 0), index) & ~std::uint32_t{kInBulk};
  }
  BulkPlace place_of_first() const {
    BulkPlace place;
    const Spot head(memory_.direction(0).receiving.head.load());
    std::memcpy(&place, Slots(memory_.slots(0)).payload(head.index()), sizeof place);
    return place;
  }

  std::vector<std::byte> from_ = std::vector<std::byte>(kLargest + 3 * kLine);
};

// Of the chunks only the first may end elsewhere.
TEST_F(LongStreamTest, WhatFollowsTheFirstChunkBeginsWithALineOfItsSource) {
  memory_.direction(0).sending.bulk_size.store(kMostBulkBytes);
  FarReader reader;
  std::uint64_t sent = 0;
  for (const std::size_t behind_line : {0U, 1U, 16U, 63U}) {
    ASSERT_EQ(write_long(reader, sent, kLargest, behind_line), kLargest);
    std::size_t first = 0;
    for (std::size_t received = 0; received < kLargest;) {
      const std::size_t chunk = first_chunk();
      if (first == 0) first = chunk;
      EXPECT_EQ((behind_line + received) % kLine, received == 0 ? behind_line : 0);
      const auto part = read(chunk);
      ASSERT_EQ(part, bytes_from(sent + received, chunk));
      received += chunk;
    }
    EXPECT_EQ(first, behind_line == 0 ? kLargestChunk : 4096 - behind_line);
    sent += kLargest;
  }
}

TEST_F(LongStreamTest, OnlyForOneThatIsFarItGoesPastTheCaches) {
  FarReader near, far = one_that_is_far();
  ASSERT_EQ(write_long(near, 0, 5000, 16), 5000U);
  EXPECT_EQ(place_of_first().in_memory, 0U);
  ASSERT_EQ(read(5000), bytes_from(0, 5000));
  ASSERT_EQ(write_long(far, 5000, 5000, 16), 5000U);
  ASSERT_EQ(write_long(far, 10000, 5000, 16), 5000U);
  ASSERT_EQ(read(5000), bytes_from(5000, 5000));
  ASSERT_EQ(read(1), bytes_from(10000, 1));
  EXPECT_EQ(place_of_first().in_memory, 1U);
  ASSERT_EQ(read(4999), bytes_from(10001, 4999));
}

TEST_F(LongStreamTest, EverythingComesInOrderNearAndFar) {
  const testing::HangGuard guard;
  memory_.direction(0).sending.bulk_size.store(std::size_t{512} << 10);
  const std::uint64_t bytes = static_cast<std::uint64_t>(testing::rounds(32)) << 20;
  std::thread sender([&] {
    std::minstd_rand random(7);
    FarReader near, far = one_that_is_far();
    for (std::uint64_t sent = 0; sent < bytes;) {
      const std::size_t size = std::min<std::uint64_t>(1 + random() % kLargest, bytes - sent);
      const StreamLock lock(memory_.direction(0).sending.lock);
      sent += write_long(random() % 2 == 0 ? near : far, sent, size, random() % kLine);
    }
  });
  std::uint64_t received = 0;
  bool right = true;
  while (received < bytes && right) {
    const StreamLock lock(memory_.direction(0).receiving.lock);
    const auto part = read(1 + random_() % kLargest);
    right = part == bytes_from(received, part.size());
    received += part.size();
  }
  EXPECT_TRUE(right);
  sender.join();
  EXPECT_EQ(received, bytes);
}

}  // namespace
}  // namespace viaduct::sockets
