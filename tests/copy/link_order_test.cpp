// The three orders in which a write and a read can meet, on every way for the bytes to travel.
#include "copy/link_pair.hpp"

namespace viaduct::copy::testing {
namespace {

constexpr std::size_t kSizes[] = {1, 1000, 4096, 100'000, 128 << 10, (128 << 10) + 1, 3 << 20};

class LinkOrder : public ::testing::TestWithParam<Way> {
 protected:
  HangGuard guard_;
};

// Case 1: the writer waits, asleep; the reader posts.
TEST_P(LinkOrder, WriterWaitsForReader) {
  const Way& way = GetParam();
  LinkedChild peer(
      [&](Link& link) {
        for (const std::size_t size : kSizes) {
          Buffer buffer(way.writer, size);
          buffer.fill(size);
          const Link::Outcome outcome = write(link, buffer.data(), size);
          CHILD_EXPECT(outcome.error == 0 && outcome.moved == size);
        }
        return 0;
      },
      way.options, way.options);
  for (const std::size_t size : kSizes) {
    Buffer buffer(way.reader, size);
    peer.until_asleep();
    const std::int64_t cookie = iread(peer.link(), buffer.data(), size);
    ASSERT_GT(cookie, 0);
    const Link::Outcome outcome = peer.link().wait(cookie);
    ASSERT_EQ(outcome.error, 0) << size;
    ASSERT_EQ(outcome.moved, size);
    ASSERT_TRUE(buffer.holds(size)) << size;
    if (way.path != nullptr) {
      EXPECT_STREQ(peer.link().path(), way.path);
    }
  }
  EXPECT_EQ(peer.child().wait(), 0);
}

// Case 2: the reader waits, asleep; the writer posts.
TEST_P(LinkOrder, ReaderWaitsForWriter) {
  const Way& way = GetParam();
  LinkedChild peer(
      [&](Link& link) {
        for (const std::size_t size : kSizes) {
          Buffer buffer(way.reader, size);
          const Link::Outcome outcome = read(link, buffer.data(), size);
          CHILD_EXPECT(outcome.error == 0 && outcome.moved == size);
          CHILD_EXPECT(buffer.holds(size));
          CHILD_EXPECT(way.path == nullptr || std::string_view(link.path()) == way.path);
        }
        return 0;
      },
      way.options, way.options);
  for (const std::size_t size : kSizes) {
    Buffer buffer(way.writer, size);
    buffer.fill(size);
    peer.until_asleep();
    const std::int64_t cookie = iwrite(peer.link(), buffer.data(), size);
    const Link::Outcome outcome = peer.link().wait(cookie);
    ASSERT_EQ(outcome.error, 0) << size;
    ASSERT_EQ(outcome.moved, size);
  }
  EXPECT_EQ(peer.child().wait(), 0);
}

// Case 3: both have posted before either waits.
TEST_P(LinkOrder, BothPostedBeforeWaiting) {
  const Way& way = GetParam();
  Baton here, there;
  LinkedChild peer(
      [&](Link& link) {
        for (const std::size_t size : kSizes) {
          Buffer buffer(way.writer, size);
          buffer.fill(size);
          const std::int64_t cookie = iwrite(link, buffer.data(), size);
          there.give();
          CHILD_EXPECT(here.take());
          const Link::Outcome outcome = link.wait(cookie);
          CHILD_EXPECT(outcome.error == 0 && outcome.moved == size);
        }
        return 0;
      },
      way.options, way.options);
  for (const std::size_t size : kSizes) {
    Buffer buffer(way.reader, size);
    const std::int64_t cookie = iread(peer.link(), buffer.data(), size);
    here.give();
    ASSERT_TRUE(there.take());
    const Link::Outcome outcome = peer.link().wait(cookie);
    ASSERT_EQ(outcome.error, 0) << size;
    ASSERT_EQ(outcome.moved, size);
    ASSERT_TRUE(buffer.holds(size)) << size;
  }
  EXPECT_EQ(peer.child().wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, LinkOrder, ::testing::ValuesIn(kWays), name_of_way);

// With engine-owned memory on one side only, the way is that of whoever copies: here the side that posts second, while
// the other does not call in. docs/copy.md says so.
class OneSided : public ::testing::TestWithParam<Buffer::Kind> {
 protected:
  HangGuard guard_;
};

TEST_P(OneSided, TheWayIsThatOfWhoeverCopies) {
  const Buffer::Kind second = GetParam();
  const Buffer::Kind first = second == Buffer::Kind::engine ? Buffer::Kind::ordinary : Buffer::Kind::engine;
  constexpr std::size_t kSize = 4096;
  const Link::Options ways = Link::Options::of_process();
  Baton posted, moved;
  LinkedChild peer(
      [&](Link& link) {
        Buffer buffer(first, kSize);
        buffer.fill(1);
        const std::int64_t cookie = iwrite(link, buffer.data(), kSize);
        posted.give();
        CHILD_EXPECT(moved.take());
        CHILD_EXPECT(link.wait(cookie).error == 0);
        return 0;
      },
      ways, ways);
  const bool cma = std::string_view(peer.link().path()) == "cma";  // what ordinary memory on both sides would use
  ASSERT_TRUE(posted.take());
  Buffer buffer(second, kSize);
  const std::int64_t cookie = iread(peer.link(), buffer.data(), kSize);
  if (second == Buffer::Kind::engine && !cma) {
    moved.give();  // the owner cannot, and leaves it to the other
    EXPECT_EQ(peer.link().wait(cookie).error, 0);
    EXPECT_STREQ(peer.link().path(), "mapped");
  } else {
    EXPECT_EQ(peer.link().wait(cookie).error, 0);
    EXPECT_STREQ(peer.link().path(), second == Buffer::Kind::engine ? "cma" : "mapped");
    moved.give();
  }
  EXPECT_TRUE(buffer.holds(1));
  EXPECT_EQ(peer.child().wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Owner, OneSided, ::testing::Values(Buffer::Kind::engine, Buffer::Kind::ordinary),
                         [](const auto& tested) {
                           return tested.param == Buffer::Kind::engine ? "PostsSecond" : "PostedFirst";
                         });

// The transfer runs by itself once both halves are there: the side that posted last never calls in again.
class LinkBackground : public ::testing::TestWithParam<std::size_t> {
 protected:
  HangGuard guard_;
};

TEST_P(LinkBackground, SleeperIsWokenWithoutFurtherCalls) {
  const std::size_t size = GetParam();
  LinkedChild peer([&](Link& link) {
    Buffer buffer(Buffer::Kind::engine, size);
    buffer.fill(1);
    return write(link, buffer.data(), size).error;
  });
  Buffer buffer(Buffer::Kind::engine, size);
  peer.until_asleep();
  const std::int64_t cookie = iread(peer.link(), buffer.data(), size);
  EXPECT_EQ(peer.child().wait(), 0);  // no call into the link here
  EXPECT_EQ(peer.link().wait(cookie).error, 0);
  EXPECT_TRUE(buffer.holds(1));
}

TEST_P(LinkBackground, EndsWithoutAnyWait) {
  const std::size_t size = GetParam();
  Baton posted, over;
  LinkedChild peer([&](Link& link) {
    Buffer buffer(Buffer::Kind::engine, size);
    buffer.fill(2);
    CHILD_EXPECT(posted.take());
    const std::int64_t cookie = iwrite(link, buffer.data(), size);
    CHILD_EXPECT(over.take());  // the child sits here until the parent has all bytes
    return link.wait(cookie).error;
  });
  Buffer buffer(Buffer::Kind::engine, size);
  const std::int64_t cookie = iread(peer.link(), buffer.data(), size);
  posted.give();
  const auto ended = [&] {
    using link_format::DoneWord;
    return DoneWord::from(peer.link().table().lanes[0].slots[0].done.load()).finished ||
           DoneWord::from(peer.link().table().lanes[1].slots[0].done.load()).finished;
  };
  while (!ended()) std::this_thread::yield();
  EXPECT_TRUE(buffer.holds(2));
  const auto outcome = peer.link().check(cookie);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->moved, size);
  over.give();
  EXPECT_EQ(peer.child().wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinkBackground, ::testing::Values(1000, 128 << 10, 4 << 20));

}  // namespace
}  // namespace viaduct::copy::testing
