// Writes meet reads in the order they were posted: many outstanding, both directions at once, lengths that differ.
#include <thread>

#include "copy/link_pair.hpp"

namespace viaduct::copy::testing {
namespace {

class LinkFifo : public ::testing::TestWithParam<Way> {
 protected:
  HangGuard guard_;
};

constexpr int kMany = 200;  // more than there are slots
constexpr std::size_t kRoom = 300'000;

std::size_t length_of(int number) {
  constexpr std::size_t kLengths[] = {64, 0, 5000, 1, 200'000, 4096, 33};
  return kLengths[static_cast<std::size_t>(number) % std::size(kLengths)];
}

// Posts kMany writes and kMany reads, then waits for them out of order.
int exchange(Link& link, const Way& way, std::uint64_t own_seed, std::uint64_t peer_seed) {
  std::vector<std::unique_ptr<Buffer>> out, in;
  std::vector<std::int64_t> writes, reads;
  for (int i = 0; i < kMany; ++i) {
    out.push_back(std::make_unique<Buffer>(way.writer, std::max<std::size_t>(1, length_of(i))));
    in.push_back(std::make_unique<Buffer>(way.reader, std::max<std::size_t>(1, length_of(i))));
    out.back()->fill(own_seed + static_cast<std::uint64_t>(i));
    writes.push_back(iwrite(link, out.back()->data(), length_of(i)));
    reads.push_back(iread(link, in.back()->data(), length_of(i)));
    CHILD_EXPECT(writes.back() > 0 && reads.back() > 0);
  }
  for (int i = kMany - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const Link::Outcome read_end = link.wait(reads[at]);
    CHILD_EXPECT(read_end.error == 0 && read_end.moved == length_of(i));
    CHILD_EXPECT(in[at]->holds(peer_seed + at, length_of(i)));
  }
  for (int i = 0; i < kMany; ++i) {
    const Link::Outcome write_end = link.wait(writes[static_cast<std::size_t>(i)]);
    CHILD_EXPECT(write_end.error == 0 && write_end.moved == length_of(i));
  }
  return 0;
}

TEST_P(LinkFifo, ManyOutstandingBothWays) {
  const Way& way = GetParam();
  LinkedChild peer([&](Link& link) { return exchange(link, way, 2000, 1000); }, way.options, way.options);
  EXPECT_EQ(exchange(peer.link(), way, 1000, 2000), 0);
  EXPECT_EQ(peer.child().wait(), 0);
}

TEST_P(LinkFifo, TheShorterLengthMovesAndBothAreTold) {
  const Way& way = GetParam();
  constexpr std::size_t kLengths[][2] = {{100, 50}, {50, 100}, {0, 10}, {10, 0}, {0, 0}, {300'000, 150'001}, {1, 200}};
  LinkedChild peer(
      [&](Link& link) {
        for (const auto& [written, wanted] : kLengths) {
          Buffer buffer(way.writer, kRoom);
          buffer.fill(written + 1);
          const Link::Outcome outcome = write(link, buffer.data(), written);
          CHILD_EXPECT(outcome.error == 0 && outcome.moved == std::min(written, wanted));
        }
        return 0;
      },
      way.options, way.options);
  for (const auto& [written, wanted] : kLengths) {
    Buffer buffer(way.reader, kRoom);
    const Link::Outcome outcome = read(peer.link(), buffer.data(), wanted);
    ASSERT_EQ(outcome.error, 0);
    const std::size_t moved = std::min(written, wanted);
    EXPECT_EQ(outcome.moved, moved);
    EXPECT_TRUE(buffer.holds(written + 1, moved / 8 * 8));
    EXPECT_EQ(buffer.data()[moved], std::byte{0}) << "a byte more than was asked for";
  }
  EXPECT_EQ(peer.child().wait(), 0);
}

TEST_P(LinkFifo, SixtyFourMegabytes) {
  const Way& way = GetParam();
  constexpr std::size_t kSize = 64 << 20;
  LinkedChild peer(
      [&](Link& link) {
        Buffer buffer(way.writer, kSize);
        buffer.fill(7);
        const Link::Outcome outcome = write(link, buffer.data(), kSize);
        CHILD_EXPECT(outcome.error == 0 && outcome.moved == kSize);
        return 0;
      },
      way.options, way.options);
  Buffer buffer(way.reader, kSize);
  const Link::Outcome outcome = read(peer.link(), buffer.data(), kSize);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_EQ(outcome.moved, kSize);
  EXPECT_TRUE(buffer.holds(7));
  EXPECT_EQ(peer.child().wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, LinkFifo, ::testing::ValuesIn(kWays), name_of_way);

// Threads of one process on one link: each pair of a write and the read it meets carries the same number.
TEST(LinkThreads, SeveralOnOneLink) {
  HangGuard guard;
  LinkedPair pair;
  constexpr int kThreads = 3;
  const int kEach = viaduct::testing::rounds(400);
  std::atomic<std::uint64_t> sent{0}, received{0};
  const auto writer = [&](Link& link) {
    Buffer buffer(Buffer::Kind::engine, 4096);
    for (int i = 0; i < kEach; ++i) {
      const auto value = static_cast<std::uint64_t>(i) + 1;
      std::memcpy(buffer.data(), &value, sizeof value);
      sent += value;
      EXPECT_EQ(write(link, buffer.data(), 4096).error, 0);
    }
  };
  const auto reader = [&](Link& link) {
    Buffer buffer(Buffer::Kind::engine, 4096);
    for (int i = 0; i < kEach; ++i) {
      EXPECT_EQ(read(link, buffer.data(), 4096).moved, 4096u);
      std::uint64_t value;
      std::memcpy(&value, buffer.data(), sizeof value);
      received += value;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] { writer(*pair.first); });
    threads.emplace_back([&] { reader(*pair.second); });
    threads.emplace_back([&] { writer(*pair.second); });
    threads.emplace_back([&] { reader(*pair.first); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent.load(), received.load());
}

TEST(LinkThreads, LargeTransfersShareTheLink) {
  HangGuard guard;
  LinkedPair pair;
  constexpr std::size_t kSize = 2 << 20;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      Buffer buffer(Buffer::Kind::engine, kSize);
      buffer.fill(5);
      for (int round = 0; round < 5; ++round) EXPECT_EQ(write(*pair.first, buffer.data(), kSize).moved, kSize);
    });
    threads.emplace_back([&] {
      Buffer buffer(Buffer::Kind::engine, kSize);
      for (int round = 0; round < 5; ++round) {
        std::memset(buffer.data(), 0, kSize);
        const std::int64_t cookie = iread(*pair.second, buffer.data(), kSize);
        EXPECT_EQ(pair.second->wait(cookie).moved, kSize);
        EXPECT_TRUE(buffer.holds(5));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace viaduct::copy::testing
