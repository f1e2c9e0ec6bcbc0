// A peer that writes whatever it likes into everything that is shared: errors, never a crash, never a byte outside a
// buffer.
#include "base/guarded_memory.hpp"
#include "copy/link_pair.hpp"

namespace viaduct::copy::testing {
namespace {

using namespace link_format;
using viaduct::testing::GuardedMemory;
using viaduct::testing::rounds;
using viaduct::testing::Touching;

// The hostile side has a real link, so that everything it can share is shared, and scribbles on its table.
void scribble(Link& link, Random& random) {
  auto* const words = reinterpret_cast<std::atomic<std::uint64_t>*>(&link.table());
  const std::size_t count = offsetof(LinkTable, bounce) / 8;
  const std::uint64_t kind = random.below(4);
  const std::uint64_t many = kind == 0 ? count : 1 + random.below(200);
  for (std::uint64_t i = 0; i < many; ++i) {
    const std::size_t at = kind == 0 ? i : random.below(count);
    const std::uint64_t old = words[at].load(std::memory_order_relaxed);
    const std::uint64_t choices[] = {
        random(),           0,         UINT64_MAX,  old + 1, old - 1, old ^ (1ull << random.below(64)),
        random.below(1000), old << 32, old + kSlots};
    words[at].store(choices[random.below(std::size(choices))], std::memory_order_relaxed);
  }
}

// Values that look right where it matters: a matching stamp, lengths and offsets at the edges.
void forge(Link& link, Random& random) {
  LaneTable& lane = link.table().lanes[random.below(2)];
  MatchSlot& slot = lane.slots[random.below(4)];
  PostedHalf& half = random.chance(0.5) ? slot.writer : slot.reader;
  const std::uint64_t lengths[] = {0, 1, kLongest, kLongest + 1, UINT64_MAX, 4096, 1 << 20, random()};
  half.length = lengths[random.below(std::size(lengths))];
  half.offset = lengths[random.below(std::size(lengths))];
  half.region = random.below(4);
  half.address = random.chance(0.5) ? 0x1000 : random();
  half.stamp = random.below(4) + (random.chance(0.3) ? kSlots : 1);
  slot.next = NextWord{static_cast<std::uint32_t>(random.below(5)), static_cast<std::uint32_t>(random())}.word();
  slot.done = DoneWord{static_cast<std::uint32_t>(random.below(5)), random.chance(0.5),
                       static_cast<std::uint8_t>(random.below(3)), static_cast<std::uint32_t>(random.below(20))}
                  .word();
  slot.result = random();
  lane.bounce.filled = random.below(12);
  lane.bounce.emptied = random.below(12);
  PieceHeader& header = lane.bounce.headers[random.below(kPieces)];
  header.stamp = random.below(6);
  header.offset = lengths[random.below(std::size(lengths))];
  header.length = lengths[random.below(std::size(lengths))];
}

class LinkHostile : public ::testing::TestWithParam<Way> {
 protected:
  HangGuard guard_;
};

TEST_P(LinkHostile, GarbageInTheTable) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "one buffer is posted many times at once, as a hostile program may: races are what it is made of";
#endif
  const Way& way = GetParam();
  ::testing::internal::CaptureStderr();  // each round says that the peer wrote something impossible
  for (int round = 0; round < rounds(120); ++round) {
    Random random(static_cast<std::uint64_t>(round) + 1);
    auto pair = std::make_unique<LinkedPair>(way.options);
    Link& victim = *pair->first;
    GuardedMemory memory(300'001, round % 2 == 0 ? Touching::back_guard : Touching::front_guard);
    Buffer region(Buffer::Kind::engine, 300'001), theirs(Buffer::Kind::engine, 300'001);
    std::vector<std::int64_t> cookies;
    for (int step = 0; step < 30; ++step) {
      std::byte* const buffer = random.chance(0.5) ? memory.bytes().data() : region.data();
      const std::size_t length = random.chance(0.3) ? 300'001 : random.below(20'000);
      const std::int64_t cookie = random.chance(0.5) ? iread(victim, buffer, length) : iwrite(victim, buffer, length);
      if (cookie > 0) cookies.push_back(cookie);
      if (random.chance(0.4)) (void)iwrite(*pair->second, theirs.data(), random.below(300'001));
      if (random.chance(0.4)) (void)iread(*pair->second, theirs.data(), random.below(300'001));
      random.chance(0.5) ? scribble(*pair->second, random) : forge(*pair->second, random);
      for (const std::int64_t each : cookies) (void)victim.check(each);
    }
    // Everything ends when the hostile side goes, if not before.
    pair->second->close();
    for (const std::int64_t each : cookies) (void)victim.wait(each);
    EXPECT_LT(iread(victim, memory.bytes().data(), 10), 0);
    pair->first->close();
    EXPECT_TRUE(memory.slack_is_intact());
  }
  (void)::testing::internal::GetCapturedStderr();
}

INSTANTIATE_TEST_SUITE_P(Ways, LinkHostile, ::testing::ValuesIn(kWays), name_of_way);

// The table changes under our eyes, from another process, while transfers run.
TEST(LinkHostileProcess, GarbageWhileRunning) {
  HangGuard guard;
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < rounds(60); ++round) {
    LinkedChild peer([&](Link& link) {
      Random random(static_cast<std::uint64_t>(round) + 99);
      Buffer out(Buffer::Kind::engine, 200'000);
      for (int i = 0; i < 5; ++i) (void)iwrite(link, out.data(), 200'000);
      for (int i = 0; i < 200; ++i) random.chance(0.3) ? scribble(link, random) : forge(link, random);
      return 0;
    });
    GuardedMemory memory(200'001);
    int error = 0;
    for (int i = 0; i < 40 && error == 0; ++i) error = read(peer.link(), memory.bytes().data(), 200'001).error;
    EXPECT_NE(error, 0);
    EXPECT_TRUE(memory.slack_is_intact());
    EXPECT_EQ(peer.child().wait(), 0);
  }
  (void)::testing::internal::GetCapturedStderr();
}

// Garbage on the socket: unknown messages, regions that are not memory.
TEST(LinkHostileProcess, GarbageOnTheSocket) {
  HangGuard guard;
  ::testing::internal::CaptureStderr();
  const ControlMessage messages[] = {{0x12345678, 0, 0},
                                     {ControlMessage::region, 9999, 1},
                                     {ControlMessage::region, 0, 0},
                                     {ControlMessage::forget, 3, 77},
                                     {ControlMessage::region, 1, 5}};
  for (const ControlMessage& message : messages) {
    auto pair = std::move(*make_socket_pair(SOCK_STREAM));
    const Fd spy(::dup(pair.second.get()));
    Link::Options options;
    std::unique_ptr<Link> hostile, victim;
    std::thread other([&] { hostile = std::move(*Link::attach(std::move(pair.second), soon(), options)); });
    victim = std::move(*Link::attach(std::move(pair.first), soon(), options));
    other.join();
    const Fd not_memory(::dup(2));
    const int passed = not_memory.get();
    ASSERT_TRUE(send_with_fds(spy.get(), std::as_bytes(std::span(&message, 1)), {&passed, 1}).ok());
    std::byte byte{};
    EXPECT_EQ(read(*victim, &byte, 1).error, EPROTO) << message.kind << " " << message.index;
  }
  (void)::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace viaduct::copy::testing
