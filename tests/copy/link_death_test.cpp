// The end of a link: a peer that is killed, exits or closes; our own close; fork.
#include <csignal>

#include "copy/link_pair.hpp"

namespace viaduct::copy::testing {
namespace {

class LinkDeath : public ::testing::TestWithParam<Way> {
 protected:
  HangGuard guard_;
};

// Both sides transfer as fast as they can until the peer is killed, wherever it is at that moment.
TEST_P(LinkDeath, KilledAtAnyMoment) {
  const Way& way = GetParam();
  Random random(4711);
  const int kRounds = viaduct::testing::rounds(12);
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t size = 1 + random.below(random.chance(0.5) ? 10'000 : 2'000'000);
    LinkedChild peer(
        [&](Link& link) {
          Buffer out(way.writer, size), in(way.reader, size);
          for (;;) {
            const std::int64_t writing = iwrite(link, out.data(), size);
            if (read(link, in.data(), size).error != 0 || link.wait(writing).error != 0) return 1;
          }
        },
        way.options, way.options);
    Buffer out(way.writer, size), in(way.reader, size);
    const std::uint64_t checked = random.below(30);  // of the transfers, how many are waited for by checking
    std::thread killer([&, pause = random.below(2000)] {
      const timespec moment = to_timespec(pause * 1000);
      ::nanosleep(&moment, nullptr);
      peer.child().kill();
    });
    int error = 0;
    for (std::uint64_t i = 0; error == 0; ++i) {
      const std::int64_t reading = iread(peer.link(), in.data(), size);
      if (reading < 0) {
        error = static_cast<int>(-reading);
        break;
      }
      error = write(peer.link(), out.data(), size).error;
      std::optional<Link::Outcome> outcome;
      if (i % 2 == 0 && i < checked)
        while (!outcome) outcome = peer.link().check(reading);
      else
        outcome = peer.link().wait(reading);
      if (error == 0) error = outcome->error;
    }
    killer.join();
    EXPECT_EQ(error, ECONNRESET) << "round " << round << ", " << size << " bytes";
    EXPECT_EQ(iread(peer.link(), in.data(), size), -ECONNRESET);
    EXPECT_EQ(peer.child().wait(), -SIGKILL);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, LinkDeath, ::testing::ValuesIn(kWays), name_of_way);

TEST(LinkEnd, SleeperLearnsThatThePeerIsKilled) {
  HangGuard guard;
  LinkedChild peer([](Link&) { return ::pause(); });
  Buffer buffer(Buffer::Kind::ordinary, 100);
  std::thread killer([&] {
    while (peer.link().table().sides[0].sleeping.load() + peer.link().table().sides[1].sleeping.load() == 0)
      std::this_thread::yield();
    peer.child().kill();
  });
  EXPECT_EQ(read(peer.link(), buffer.data(), 100).error, ECONNRESET);
  killer.join();
}

TEST(LinkEnd, WhatEndedBeforeThePeerWentIsReportedAsItEnded) {
  HangGuard guard;
  LinkedChild peer([](Link& link) {
    Buffer buffer(Buffer::Kind::engine, 1000);
    buffer.fill(3);
    return write(link, buffer.data(), 1000).error;
  });
  Buffer in(Buffer::Kind::engine, 1000), never(Buffer::Kind::engine, 1000);
  const std::int64_t first = iread(peer.link(), in.data(), 1000);
  const std::int64_t second = iread(peer.link(), never.data(), 1000);
  EXPECT_EQ(peer.child().wait(), 0);
  EXPECT_EQ(peer.link().wait(second).error, ECONNRESET);
  const Link::Outcome outcome = peer.link().wait(first);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_EQ(outcome.moved, 1000u);
  EXPECT_TRUE(in.holds(3));
}

TEST(LinkEnd, ClosingCancelsHereAndResetsThere) {
  HangGuard guard;
  LinkedPair pair;
  std::vector<std::byte> here(100), there(100);
  const std::int64_t theirs = iwrite(*pair.second, there.data(), 0) > 0 ? iread(*pair.second, there.data(), 100) : -1;
  std::thread waiting([&] { EXPECT_EQ(read(*pair.first, here.data(), 100).error, 0); });
  waiting.join();  // met the empty write
  std::thread cancelled([&] { EXPECT_EQ(read(*pair.first, here.data(), 100).error, ECANCELED); });
  auto& sides = pair.first->table().sides;
  while (sides[0].sleeping.load() + sides[1].sleeping.load() == 0) std::this_thread::yield();
  pair.first->close();
  cancelled.join();
  EXPECT_EQ(pair.second->wait(theirs).error, ECONNRESET);
  EXPECT_EQ(iwrite(*pair.first, here.data(), 1), -ECANCELED);
}

// Closing in the middle of a large transfer: afterwards the buffer is ours alone.
TEST(LinkEnd, BuffersAreUntouchedAfterClose) {
  HangGuard guard;
  constexpr std::size_t kSize = 32 << 20;
  for (const Way& way : kWays) {
    Baton begun;
    LinkedChild peer(
        [&](Link& link) {
          Buffer out(way.writer, kSize);
          std::memset(out.data(), 1, kSize);
          begun.give();
          const int error = write(link, out.data(), kSize).error;
          CHILD_EXPECT(error == ECONNRESET || error == 0);
          return 0;
        },
        way.options, way.options);
    Buffer in(way.reader, kSize);
    ASSERT_TRUE(begun.take());
    peer.until_asleep();
    const std::int64_t cookie = iread(peer.link(), in.data(), kSize);
    while (in.data()[0] == std::byte{0} && !peer.link().check(cookie)) std::this_thread::yield();
    peer.close();
    std::memset(in.data(), 2, kSize);
    EXPECT_EQ(peer.child().wait(), 0) << way.name;
    EXPECT_TRUE(std::all_of(in.data(), in.data() + kSize, [](std::byte b) { return b == std::byte{2}; })) << way.name;
  }
}

TEST(LinkFork, TheChildCannotUseItAndDoesNotKeepItAlive) {
  HangGuard guard;
  Baton close_it, grandchild_done;
  // The peer forks a child of its own, then dies; that child lives on.
  LinkedChild peer([&](Link& link) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      const bool refused = !link.of_this_process();
      link.close();  // nothing
      (void)close_it.take();
      grandchild_done.give();
      ::_exit(refused ? 0 : 1);
    }
    std::byte byte{5};
    CHILD_EXPECT(write(link, &byte, 1).error == 0);
    return 0;
  });
  std::byte byte{};
  EXPECT_EQ(read(peer.link(), &byte, 1).moved, 1u);
  EXPECT_EQ(byte, std::byte{5});
  EXPECT_EQ(peer.child().wait(), 0);
  EXPECT_EQ(read(peer.link(), &byte, 1).error, ECONNRESET) << "though its child still lives";
  close_it.give();
  EXPECT_TRUE(grandchild_done.take());
}

TEST(LinkFork, TheParentGoesOn) {
  HangGuard guard;
  LinkedChild peer([](Link& link) {
    std::byte byte{};
    for (int i = 0; i < 2; ++i) CHILD_EXPECT(read(link, &byte, 1).moved == 1);
    return 0;
  });
  std::byte byte{1};
  EXPECT_EQ(write(peer.link(), &byte, 1).error, 0);
  Child bystander([&] { return peer.link().of_this_process() ? 1 : 0; });
  EXPECT_EQ(bystander.wait(), 0);
  EXPECT_EQ(write(peer.link(), &byte, 1).error, 0);
  EXPECT_EQ(peer.child().wait(), 0);
}

TEST(LinkRegions, FreedWhileThePeerMapsIt) {
  HangGuard guard;
  constexpr std::size_t kSize = 2 << 20;
  const Link::Options options{.cma = false};
  LinkedChild peer(
      [&](Link& link) {
        for (int i = 0; i < 100; ++i) {  // more regions than a link remembers
          auto buffer = std::make_unique<Buffer>(Buffer::Kind::engine, kSize);
          buffer->fill(static_cast<std::uint64_t>(i), 4096);
          const std::int64_t cookie = iwrite(link, buffer->data(), 4096);
          CHILD_EXPECT(link.wait(cookie).error == 0);
          CHILD_EXPECT(std::string_view(link.path()) == "mapped");
          if (i % 3 == 0) (void)buffer.release();  // stays
        }
        return 0;
      },
      options, options);
  Buffer in(Buffer::Kind::ordinary, 4096);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(read(peer.link(), in.data(), 4096).error, 0) << i;
    ASSERT_TRUE(in.holds(static_cast<std::uint64_t>(i))) << i;
  }
  EXPECT_EQ(peer.child().wait(), 0);
}

}  // namespace
}  // namespace viaduct::copy::testing
