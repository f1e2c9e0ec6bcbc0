// Ready queues against a peer that says what it should not of its own, and writes what it should not into ours.
#include <fcntl.h>
#include <unistd.h>

#include "via/channel/ready_queue.hpp"
#include "via/channel_victim.hpp"

namespace viaduct::via::testing {
namespace {

using viaduct::testing::rounds;

// The victim's channel is where the peer says that its ready queue wants hints.
void claim_a_place(Victim& victim, std::uint32_t queue, std::uint32_t number, bool armed = true) {
  auto* const control = victim.peer_memory.as<ChannelControl>();
  control->side[1].place.store(QueuePlace{queue, number}.word());
  auto* const ring = reinterpret_cast<SlotRingShared*>(victim.peer_memory.payload().data() + kGeometry.ring_offset(0));
  if (armed) (void)ring->data.arm();
}

bool rang(Victim& victim) {
  char byte;
  return ::recv(victim.socket(), &byte, 1, MSG_DONTWAIT) == 1;
}

TEST_F(ChannelHostile, AnImpossibleReadyQueueIsNotUsed) {
  const auto queue_of = [](std::uint64_t layout, std::size_t bytes, std::uint32_t capacity) {
    Segment segment = *Segment::create({"test-ready", layout, bytes});
    segment.as<ReadyQueueHeader>()->capacity = capacity;
    return segment;
  };
  const std::size_t right = sizeof(ReadyQueueHeader) + hint_queue_bytes(100);
  const Segment queues[] = {queue_of(kReadyQueueLayout + 1, right, 100), queue_of(kReadyQueueLayout, 4096, 100'000),
                            queue_of(kReadyQueueLayout, right, 0), queue_of(kReadyQueueLayout, right, UINT32_MAX),
                            queue_of(kReadyQueueLayout, right, kMostHints + 1)};
  for (const Segment& queue : queues) {
    Victim victim(false);
    send_descriptor(victim.socket(), 'Q', queue.fd());
    claim_a_place(victim, 1, 1);
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::taken);
    EXPECT_TRUE(rang(victim)) << "the doorbell is always there";
  }
  {
    Victim victim(false);  // shorter than the header of a queue
    Fd tiny(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const SegmentHeader header{kSegmentMagic, kSegmentVersion, kSegmentPayloadOffset, 4097, kReadyQueueLayout, {}};
    ASSERT_EQ(::ftruncate(tiny.get(), 4097), 0);
    ASSERT_EQ(::pwrite(tiny.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
    ASSERT_EQ(::fcntl(tiny.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    send_descriptor(victim.socket(), 'Q', tiny.get());
    claim_a_place(victim, 1, 1);
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::taken);
    EXPECT_TRUE(rang(victim));
  }
}

TEST_F(ChannelHostile, AnImpossiblePlaceIsNotUsed) {
  Segment queue = *Segment::create({"test-ready", kReadyQueueLayout, sizeof(ReadyQueueHeader) + hint_queue_bytes(100)});
  queue.as<ReadyQueueHeader>()->capacity = 100;
  HintQueue hints = *HintQueue::attach(queue.payload().subspan(sizeof(ReadyQueueHeader)), 100);
  Victim victim(false);
  send_descriptor(victim.socket(), 'Q', queue.fd());
  const auto send_from = [&](std::uint32_t announced, std::uint32_t number) {
    claim_a_place(victim, announced, number);
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::taken);
    std::uint32_t numbers[8];
    const std::size_t count = hints.take(numbers);
    return count == 1 ? static_cast<int>(numbers[0]) : -static_cast<int>(count) - 1;
  };
  EXPECT_EQ(send_from(1, 100), 99);
  EXPECT_FALSE(rang(victim)) << "the queue's owner is awake: the hint is enough";
  (void)hints.ready().arm();
  EXPECT_EQ(send_from(1, 1), 0);
  EXPECT_TRUE(rang(victim)) << "it sleeps";
  for (const auto& [announced, number] : {std::pair{1u, 0u}, {1u, 101u}, {1u, UINT32_MAX}, {2u, 1u}, {0u, 1u}}) {
    EXPECT_EQ(send_from(announced, number), -1) << announced << ", " << number;
    EXPECT_TRUE(rang(victim)) << announced << ", " << number;
  }
}

// The queue's announcement goes out over the peer's socket, which the peer has filled and does not read.
TEST_F(ChannelHostile, APeerThatDoesNotReadItsSocketDoesNotBlockAdding) {
  Victim victim(false);
  std::error_code fault;
  const auto queue = ReadyQueue::make(4, fault);
  ASSERT_NE(queue, nullptr);
  int added = 0;
  while (!(fault = queue->add(*victim.channel, 1))) queue->remove(*victim.channel), ++added;
  EXPECT_GT(added, 0);
  EXPECT_TRUE(fault == std::errc::resource_unavailable_try_again || fault == std::errc::operation_would_block ||
              fault.value() == ETOOMANYREFS)
      << fault.message();
  EXPECT_EQ(victim.channel->try_send({}, 0), Sent::taken);
}

// All peers of a queue write to it. Garbage in it makes the owner look in vain, at channels that are there.
TEST_F(ChannelHostile, GarbageInTheOwnersReadyQueue) {
  constexpr std::uint64_t kTag = 1000;
  std::error_code fault;
  Victim victim(false);
  const ChannelPair honest = make_channel_pair(kSmall, fault);
  const auto queue = ReadyQueue::make(300, fault);
  ASSERT_FALSE(queue->add(*victim.channel, kTag));
  auto announced = receive_with_fds(victim.socket(), 1, 1);
  ASSERT_TRUE(announced && announced->fds.size() == 1);
  const Segment memory = *Segment::adopt(std::move(announced->fds[0]), kReadyQueueLayout);
  ASSERT_FALSE(queue->add(*honest.first, kTag + 1));
  Random random(5);
  std::uint64_t tags[16];
  for (int round = 0; round < rounds(4000); ++round) {
    for (int i = 0; i < 5; ++i) write_word(memory.payload(), random.below(memory.payload().size() / 8), random());
    if (round % 100 == 0) write_everywhere(memory.payload(), random);
    const std::size_t count = round % 3 == 0 ? queue->wait(tags, 1) : queue->take(tags);
    ASSERT_EQ(count, 0u) << "nobody has sent anything";
  }
  // What is left of the garbage is taken, and then the queue works.
  ASSERT_EQ(honest.second->try_send({}, 0), Sent::taken);
  std::size_t count = 0;
  for (int look = 0; look < 100'000 && count == 0; ++look) count = queue->take(tags);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(tags[0], kTag + 1);
}

}  // namespace
}  // namespace viaduct::via::testing
