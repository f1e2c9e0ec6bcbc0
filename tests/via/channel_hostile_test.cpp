// A channel against a peer that sends what it should not: at joining, in the shared memory, on the socket.
//
// The peer's side is played by hand: the test holds the peer's socket and maps the same segment. Fragments must lie
// inside the channel's own mapping, which has pages around it that must not be touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "base/child.hpp"
#include "base/config.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/segment.hpp"
#include "via/channel_format.hpp"
#include "via/messages.hpp"
#include "via/ready_queue.hpp"

namespace viaduct::via {
namespace {

using namespace via::testing;
using viaduct::testing::HangGuard;
using viaduct::testing::kSanitized;
using viaduct::testing::open_descriptors;
using viaduct::testing::rounds;

constexpr ChannelOptions kSmall{.bulk_bytes = 4096, .slots = 8};
constexpr ChannelGeometry kGeometry{kSmall.slots, kSmall.bulk_bytes};

class ChannelHostile : public ::testing::Test {
 protected:
  ChannelHostile() {
    (void)Config::process();  // sets the level when it is first read
    log::set_level("off");    // each of these is a line for the user
  }
  ~ChannelHostile() override { log::set_level("warn"); }
  const HangGuard guard_;
};

// ---- joining

struct Lie {
  const char* name;
  std::function<void(int socket)> tell;
};

Segment segment_with(std::uint64_t layout, std::size_t bytes, std::uint32_t slots, std::uint64_t bulk_bytes) {
  Segment segment = *Segment::create({"test-channel", layout, bytes});
  segment.as<ChannelControl>()->slots = slots;
  segment.as<ChannelControl>()->bulk_bytes = bulk_bytes;
  return segment;
}

Lie geometry(const char* name, std::uint32_t slots, std::uint64_t bulk_bytes) {
  return {name, [=](int socket) {
            (void)send_segment(socket, segment_with(kChannelLayout, kGeometry.bytes(), slots, bulk_bytes));
          }};
}

void send_descriptor(int socket, char byte, int fd) {
  const std::byte bytes[] = {static_cast<std::byte>(byte)};
  (void)send_with_fds(socket, bytes, {&fd, 1});
}

const Lie kLies[] = {
    {"nothing", [](int) {}},
    {"a byte", [](int socket) { (void)!::write(socket, "S", 1); }},
    {"garbage", [](int socket) { (void)!::write(socket, Bytes(5000, std::byte{'S'}).data(), 5000); }},
    {"the end", [](int socket) { ::shutdown(socket, SHUT_RDWR); }},
    {"a descriptor that is no memory", [](int socket) { send_descriptor(socket, 'S', socket); }},
    {"memory that is not sealed",
     [](int socket) {
       const Fd memory(::memfd_create("test", MFD_CLOEXEC));
       (void)!::ftruncate(memory.get(), 1 << 20);
       send_descriptor(socket, 'S', memory.get());
     }},
    {"another layout",
     [](int socket) { (void)send_segment(socket, segment_with(kChannelLayout + 1, kGeometry.bytes(), 8, 4096)); }},
    {"the wrong byte",
     [](int socket) { send_descriptor(socket, 'X', segment_with(kChannelLayout, kGeometry.bytes(), 8, 4096).fd()); }},
    {"a segment that is too small",
     [](int socket) { (void)send_segment(socket, segment_with(kChannelLayout, 1, 8, 4096)); }},
    {"a segment that lacks a page",
     [](int socket) { (void)send_segment(socket, segment_with(kChannelLayout, kGeometry.bytes() - 4096, 8, 4096)); }},
    geometry("no slots", 0, 4096),
    geometry("an odd number of slots", 7, 4096),
    geometry("more slots than there are", 64, 4096),
    geometry("very many slots", 1u << 20, 4096),
    geometry("as many slots as can be said", 1u << 31, 4096),
    geometry("no bulk area", 8, 0),
    geometry("an odd bulk area", 8, 4095),
    geometry("more bulk area than there is", 8, 8192),
    geometry("a huge bulk area", 8, 1ull << 32),
    geometry("a bulk area that overflows", 8, 1ull << 63),
    geometry("a bulk area of all ones", 8, UINT64_MAX),
};

TEST_F(ChannelHostile, JoiningAnImpostorIsAnError) {
  const int before = open_descriptors();
  for (const Lie& lie : kLies) {
    auto sockets = make_socket_pair(SOCK_STREAM);
    lie.tell(sockets->first.get());
    std::error_code fault;
    EXPECT_EQ(join_channel(sockets->second.release(), 20, fault), nullptr) << lie.name;
    EXPECT_TRUE(fault) << lie.name;
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ChannelHostile, JoiningWaitsForASilentPeerOnlyAsLongAsTold) {
  auto sockets = make_socket_pair(SOCK_STREAM);
  std::error_code fault;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(join_channel(sockets->second.release(), 50, fault), nullptr);
  EXPECT_EQ(fault, std::errc::timed_out);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
}

TEST_F(ChannelHostile, SomethingThatIsNoSocketIsAnError) {
  for (const int fd : {-1, ::open("/dev/null", O_RDWR | O_CLOEXEC), ::open("/dev/zero", O_RDWR | O_CLOEXEC)}) {
    std::error_code fault;
    EXPECT_EQ(join_channel(::dup(fd), 20, fault), nullptr);
    EXPECT_TRUE(fault);
    EXPECT_EQ(open_channel(fd, kSmall, fault), nullptr);
    EXPECT_TRUE(fault);
  }
}

// ---- a peer played by hand

struct Range {
  std::uintptr_t from = 0, to = 0;
  bool holds(std::span<const std::byte> bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return at >= from && bytes.size() <= to - from && at <= to - bytes.size();
  }
};

// The mapping of the memfd of that name that is not yet in `known`.
Range find_mapping(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:" + name + " ") != std::string::npos) {
      Range range;
      if (std::sscanf(line.c_str(), "%lx-%lx", &range.from, &range.to) == 2) return range;
    }
  return {};
}

// Pages around a mapping that must not be touched, where nothing else is there already.
class Guards {
 public:
  explicit Guards(Range range) : at_{place(range.from - kPage), place(range.to)} {}
  ~Guards() {
    for (void* page : at_)
      if (page != MAP_FAILED) ::munmap(page, kPage);
  }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

 private:
  static constexpr std::size_t kPage = 4096;
  static void* place(std::uintptr_t at) {
    return ::mmap(reinterpret_cast<void*>(at), kPage, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
  }
  void* at_[2];
};

struct Victim {
  // `joins`: the peer has made the segment; else the channel has.
  explicit Victim(bool joins) : sockets(*make_socket_pair(SOCK_STREAM)) {
    std::error_code fault;
    if (joins) {
      peer_memory = segment_with(kChannelLayout, kGeometry.bytes(), kSmall.slots, kSmall.bulk_bytes);
      (void)send_segment(sockets.second.get(), peer_memory);
      channel = join_channel(sockets.first.release(), 1000, fault);
    } else {
      channel = open_channel(sockets.first.release(), kSmall, fault);
    }
    EXPECT_NE(channel, nullptr) << fault.message();
    mapping = find_mapping(joins ? "test-channel" : "viaduct-channel");
    if (joins) {  // two mappings of that name: the one that is not the peer's
      const auto peers = reinterpret_cast<std::uintptr_t>(peer_memory.payload().data()) - kSegmentPayloadOffset;
      if (mapping.from <= peers && peers < mapping.to) mapping = {};
    }
    if (mapping.from != 0) guards.emplace(mapping);
    if (!joins) peer_memory = *receive_segment(sockets.second.get(), kChannelLayout);
  }

  std::span<std::byte> memory() const { return peer_memory.payload().first(kGeometry.bytes()); }
  int socket() const { return sockets.second.get(); }

  FdPair sockets;
  std::unique_ptr<Channel> channel;
  Segment peer_memory;
  Range mapping;
  std::optional<Guards> guards;
};

std::uint64_t nasty(Random& random) {
  constexpr std::uint64_t kEdges[] = {0, 8, 52, 56, 64, 512, 4096, 1ull << 16, 1ull << 31, 1ull << 32, 1ull << 63};
  if (random.chance(0.3)) return random();
  return kEdges[random.below(std::size(kEdges))] + random.below(9) - 4;
}

void write_word(std::span<std::byte> memory, std::size_t word, std::uint64_t value) {
  // One store, as a process makes it.
  reinterpret_cast<std::atomic<std::uint64_t>*>(memory.data())[word].store(value, std::memory_order_relaxed);
}

void write_everywhere(std::span<std::byte> memory, Random& random) {
  for (std::size_t word = 0; word < memory.size() / 8; ++word) write_word(memory, word, random());
}

// A message that the channel expects next, with a header that lies in one respect or not at all.
void forge_message(std::span<std::byte> memory, int direction, std::uint64_t position, Random& random) {
  const std::size_t slot = kGeometry.ring_offset(direction) + sizeof(SlotRingShared) + position % kSmall.slots * 64;
  const std::uint64_t bulk = nasty(random);
  write_word(memory, slot / 8 + 1, random.chance(0.5) ? random.below(600) << 32 : nasty(random));
  write_word(memory, slot / 8 + 2, random.chance(0.5) ? bulk % 4096 : bulk);
  const std::uint64_t tag = random.chance(0.7) ? random.below(3) | (random.chance(0.3) ? kMore : 0) : nasty(random);
  const std::uint64_t length = random.chance(0.7) ? 16 : random.below(70);
  write_word(memory, slot / 8, (position + 1) % (1ull << 32) | (tag & 0xffff) << 32 | (length & 0xffff) << 48);
}

void write_to_socket(int socket, Random& random) {
  switch (random.below(3)) {
    case 0: {
      const Bytes bytes = message(random.below(600), random());
      (void)::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      break;
    }
    case 1:
      send_descriptor(socket, random.chance(0.5) ? 'Q' : '!', random.chance(0.5) ? socket : STDERR_FILENO);
      break;
    default:
      if (random.chance(0.1)) ::shutdown(socket, SHUT_WR);
      break;
  }
}

// One operation of the channel's owner. False: something was wrong with the answer.
bool use(Victim& victim, Random& random, std::uint64_t& sum) {
  Channel& channel = *victim.channel;
  const std::size_t length = random.below(channel.largest_fragment() + 1);
  Fragment fragment;
  switch (random.below(24)) {
    case 0:
      (void)channel.wait_to_receive(0);
      return true;
    case 1:
      (void)channel.wait_to_send(length, 0);
      return true;
    case 2:
      (void)channel.arm_to_receive();
      channel.disarm();
      return true;
    case 3:
      return channel.credits(length) <= kSmall.slots;
    case 4:
      if (random.chance(0.05)) channel.finish_sending();
      return true;
    case 5:
    case 6:
    case 7:
    case 8:
      (void)send_fragment(channel, message(length, 1), 3, random.chance(0.5));
      return true;
    default:
      if (channel.peek(fragment) != Got::fragment) return true;
      if (fragment.bytes.size() > channel.largest_fragment()) return false;
      if (victim.mapping.from != 0 && !victim.mapping.holds(fragment.bytes)) return false;
      for (const std::byte byte : fragment.bytes) sum += static_cast<std::uint8_t>(byte);
      channel.consume();
      return true;
  }
}

TEST_F(ChannelHostile, WhateverIsInTheMemoryTheChannelStaysInside) {
  const int before = open_descriptors();
  std::uint64_t sum = 0, broken = 0, forged = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(rounds(4000)); ++seed) {
    Random random(seed);
    const bool joins = random.chance(0.5);
    Victim victim(joins);
    ASSERT_NE(victim.channel, nullptr);
    for (int turn = 0; turn < 100; ++turn) {
      switch (random.below(24)) {
        case 0:
          write_word(victim.memory(), random.below(64), nasty(random));  // the control block
          break;
        case 1:
        case 2: {
          const std::size_t ring = kGeometry.ring_offset(static_cast<int>(random.below(2))) / 8;
          write_word(victim.memory(), ring + random.below(3 * 8), nasty(random));  // heads and wait words
          break;
        }
        case 3:
          if (random.chance(0.1)) write_everywhere(victim.memory(), random);
          break;
        case 4:
          if (random.chance(0.3)) write_to_socket(victim.socket(), random);
          break;
        default:
          forge_message(victim.memory(), joins ? 0 : 1, victim.channel->statistics().fragments_received, random);
          break;
      }
      ASSERT_TRUE(use(victim, random, sum)) << "seed " << seed << ", turn " << turn;
    }
    forged += victim.channel->statistics().fragments_received;
    broken += victim.channel->close_reason() == CloseReason::broken;
    Fragment fragment;
    if (victim.channel->close_reason() == CloseReason::broken) {
      ASSERT_EQ(victim.channel->peek(fragment), Got::end) << "for good";
      ASSERT_EQ(victim.channel->try_send({}, 0), Sent::closed);
    }
  }
  EXPECT_GT(broken, 100u);
  EXPECT_GT(forged, 100u) << "the forgery is too bad to test anything";
  EXPECT_NE(sum, 0u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ChannelHostile, GarbageEverywhereBreaksTheChannel) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Victim victim(seed % 2 == 0);
    for (std::uint64_t n = random.below(20); n > 0; --n) (void)victim.channel->try_send({}, 0);
    write_everywhere(victim.memory(), random);
    Fragment fragment;
    if (seed % 3 == 0) {
      Sent sent;  // the sender alone finds out
      do sent = victim.channel->try_send({}, 0);
      while (sent == Sent::yes);
      EXPECT_EQ(sent, Sent::closed);
    } else if (seed % 3 == 1) {
      EXPECT_FALSE(victim.channel->wait_to_receive(-1));
    } else {
      while (victim.channel->try_send({}, 0) == Sent::yes) {
      }
      EXPECT_FALSE(victim.channel->wait_to_send(0, -1));
    }
    EXPECT_EQ(victim.channel->peek(fragment), Got::end);
    EXPECT_EQ(victim.channel->close_reason(), CloseReason::broken) << seed;
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::closed);
    EXPECT_EQ(victim.channel->credits(), 0u);
  }
}

// The peer writes while the channel reads: what was checked is what is used.
TEST_F(ChannelHostile, MemoryThatChangesUnderTheReader) {
  std::uint64_t sum = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kSanitized ? 1500 : 700);
  for (std::uint64_t seed = 0; std::chrono::steady_clock::now() < until; ++seed) {
    Victim victim(seed % 2 == 0);
    std::atomic<bool> stop = false;
    std::thread vandal([&] {
      Random random(seed);
      for (std::uint64_t position = 0; !stop; position += random.below(2))
        forge_message(victim.memory(), seed % 2 == 0 ? 0 : 1, position, random);
    });
    Random random(seed);
    for (int turn = 0; turn < 2000 && victim.channel->close_reason() == CloseReason::open; ++turn)
      EXPECT_TRUE(use(victim, random, sum));
    stop = true;
    vandal.join();
  }
}

// ---- the socket

TEST_F(ChannelHostile, GarbageOnTheSocketOnlyCostsTime) {
  const int before = open_descriptors();
  {
    Victim victim(false);
    for (int i = 0; i < 50; ++i) {
      const Bytes noise(400, std::byte{'Q'});
      (void)::send(victim.socket(), noise.data(), noise.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      send_descriptor(victim.socket(), 'Q', STDERR_FILENO);
      EXPECT_EQ(victim.channel->wait_to_receive(2), std::errc::timed_out);
      victim.channel->disarm();
    }
    EXPECT_EQ(victim.channel->close_reason(), CloseReason::open);
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::yes);
  }
  EXPECT_EQ(open_descriptors(), before);
}

// A peer that never stops writing must not hold a thread that only wants to look.
TEST_F(ChannelHostile, AFloodOnTheSocketHoldsNobody) {
  Victim victim(false);
  std::atomic<bool> stop = false;
  std::thread flood([&] {
    const Bytes noise(4096, std::byte{'!'});
    while (!stop) (void)::send(victim.socket(), noise.data(), noise.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  for (int i = 0; i < 100; ++i) {
    victim.channel->disarm();
    EXPECT_EQ(victim.channel->wait_to_receive(1), std::errc::timed_out);
  }
  stop = true;
  flood.join();
}

TEST_F(ChannelHostile, ShuttingDownTheSocketIsDying) {
  for (const int how : {SHUT_WR, SHUT_RDWR}) {
    Victim victim(false);
    ::shutdown(victim.socket(), how);
    EXPECT_FALSE(victim.channel->wait_to_receive(-1));
    Fragment fragment;
    EXPECT_EQ(victim.channel->peek(fragment), Got::end);
    EXPECT_EQ(victim.channel->close_reason(), CloseReason::peer_died);
  }
}

// ---- ready queues of the other side

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
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::yes);
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
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::yes);
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
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::yes);
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
  EXPECT_EQ(victim.channel->try_send({}, 0), Sent::yes);
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
  ASSERT_EQ(honest.second->try_send({}, 0), Sent::yes);
  std::size_t count = 0;
  for (int look = 0; look < 100'000 && count == 0; ++look) count = queue->take(tags);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(tags[0], kTag + 1);
}

}  // namespace
}  // namespace viaduct::via
