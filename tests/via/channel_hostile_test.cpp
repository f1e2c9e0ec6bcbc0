// A channel against a peer that sends what it should not: at joining, in the shared memory, on the socket.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "via/channel_victim.hpp"

namespace viaduct::via::testing {
namespace {

using viaduct::testing::kSanitized;
using viaduct::testing::open_descriptors;
using viaduct::testing::rounds;

// ---- joining

struct Lie {
  const char* name;
  std::function<void(int socket)> tell;
};

Lie geometry(const char* name, std::uint32_t slots, std::uint64_t bulk_bytes) {
  return {name, [=](int socket) {
            (void)send_segment(socket, segment_with(kChannelLayout, kGeometry.bytes(), slots, bulk_bytes));
          }};
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

std::uint64_t nasty(Random& random) {
  constexpr std::uint64_t kEdges[] = {0, 8, 52, 56, 64, 512, 4096, 1ull << 16, 1ull << 31, 1ull << 32, 1ull << 63};
  if (random.chance(0.3)) return random();
  return kEdges[random.below(std::size(kEdges))] + random.below(9) - 4;
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
      (void)channel.shared()->arm_to_receive();
      channel.shared()->disarm();
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
      while (sent == Sent::taken);
      EXPECT_EQ(sent, Sent::closed);
    } else if (seed % 3 == 1) {
      EXPECT_FALSE(victim.channel->wait_to_receive(-1));
    } else {
      while (victim.channel->try_send({}, 0) == Sent::taken) {
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
      victim.channel->shared()->disarm();
    }
    EXPECT_EQ(victim.channel->close_reason(), CloseReason::open);
    EXPECT_EQ(victim.channel->try_send({}, 0), Sent::taken);
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
    victim.channel->shared()->disarm();
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

}  // namespace
}  // namespace viaduct::via::testing
