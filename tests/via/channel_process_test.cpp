// Shared-memory channels between real processes: peers that are killed, what waiting costs, limits of the system.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"
#include "via/messages.hpp"

namespace viaduct::via {
namespace {

using namespace via::testing;
using viaduct::testing::Child;
using viaduct::testing::HangGuard;
using viaduct::testing::limit;
using viaduct::testing::open_descriptors;
using viaduct::testing::rounds;

// A child at the other end of a channel. It has said hello: it is there.
class Peer {
 public:
  explicit Peer(const std::function<int(Channel&)>& body, const ChannelOptions& options = {})
      : sockets_(*make_socket_pair(SOCK_STREAM)), child_([&] {
          sockets_.first.reset();
          std::error_code fault;
          auto channel = join_channel(sockets_.second.release(), 10'000, fault);
          CHILD_EXPECT(channel != nullptr);
          CHILD_EXPECT(channel->try_send({}, 0) == Sent::taken);
          const int result = body(*channel);
          (void)channel.release();  // who wants to close in good order does so itself
          return result;
        }) {
    sockets_.second.reset();
    std::error_code fault;
    channel_ = open_channel(sockets_.first.release(), options, fault);
    EXPECT_FALSE(fault) << fault.message();
    EXPECT_TRUE(receive_message(*channel_));
  }
  Channel& channel() { return *channel_; }
  Child& child() { return child_; }
  void close() { channel_.reset(); }

 private:
  FdPair sockets_;
  Child child_;
  std::unique_ptr<Channel> channel_;
};

int sleep_for_ever(Channel&) {
  for (;;) ::pause();
}

// ---- peers that die

TEST(ChannelProcess, WhatAKilledPeerHasSentIsIntact) {
  const HangGuard guard;
  const auto length = [](std::uint32_t n) { return std::size_t{n} * 131 % 1500; };
  Random random(1);
  for (int round = 0; round < rounds(80); ++round) {
    Peer peer(
        [&](Channel& channel) {
          for (std::uint32_t n = 0;; ++n)
            if (!send_message(channel, message(length(n), n), n)) return 1;
        },
        round % 2 == 0 ? kSmall : ChannelOptions{});
    const std::uint64_t kill_at = random.below(round % 4 < 2 ? 20 : 5000);
    std::uint32_t received = 0;
    for (;;) {
      if (received == kill_at) peer.child().kill();
      const auto next = receive_message(peer.channel());
      if (!next) break;
      ASSERT_EQ(next->immediate, received);
      ASSERT_EQ(next->bytes.size(), length(received) % 100'000);
      ASSERT_TRUE(matches(next->bytes, received));
      ++received;
    }
    EXPECT_GE(received, kill_at);
    EXPECT_EQ(peer.channel().close_reason(), CloseReason::peer_died);
  }
}

TEST(ChannelProcess, AKilledReceiverIsNoticedBySending) {
  const HangGuard guard;
  Random random(2);
  for (int round = 0; round < rounds(40); ++round) {
    Peer peer(
        [](Channel& channel) {
          while (receive_message(channel)) {
          }
          return 1;
        },
        kSmall);
    const std::uint64_t kill_at = random.below(3000);
    std::uint64_t sent = 0;
    for (; send_message(peer.channel(), message(random.below(400), 0), 0); ++sent)
      if (sent == kill_at) peer.child().kill();
    EXPECT_GE(sent, kill_at);
    EXPECT_EQ(send_fragment(peer.channel(), {}, 0), Sent::closed);
    EXPECT_EQ(peer.channel().close_reason(), CloseReason::peer_died);
  }
}

// A sender that only tries, without ever waiting, learns it too.
TEST(ChannelProcess, AKilledReceiverIsNoticedByTrying) {
  const HangGuard guard;
  Peer peer(sleep_for_ever, kSmall);
  while (peer.channel().try_send({}, 0) == Sent::taken) {
  }
  peer.child().kill();
  while (peer.channel().try_send({}, 0) == Sent::full) {
  }
  EXPECT_EQ(peer.channel().close_reason(), CloseReason::peer_died);
}

TEST(ChannelProcess, AKilledSenderIsNoticedByLooking) {
  const HangGuard guard;
  Peer peer(sleep_for_ever);
  peer.child().kill();
  Fragment fragment;
  while (peer.channel().peek(fragment) == Got::nothing) {
  }
  EXPECT_EQ(peer.channel().close_reason(), CloseReason::peer_died);
}

TEST(ChannelProcess, DeathWakesWhoeverSleeps) {
  const HangGuard guard;
  Random random(3);
  for (int round = 0; round < rounds(24); ++round) {
    Peer peer(sleep_for_ever, kSmall);
    const bool receive = round % 3 != 0, send = round % 3 != 1;
    while (send && peer.channel().try_send({}, 0) == Sent::taken) {
    }
    std::thread receiver([&] { EXPECT_TRUE(!receive || !peer.channel().wait_to_receive(-1)); });
    std::thread sender([&] { EXPECT_TRUE(!send || !peer.channel().wait_to_send(0, -1)); });
    // At any moment: before they sleep, when they are about to, when they do.
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(4000)));
    peer.child().kill();
    receiver.join();
    sender.join();
    EXPECT_TRUE(!send || peer.channel().try_send({}, 0) == Sent::closed);
    Fragment fragment;
    EXPECT_TRUE(!receive || peer.channel().peek(fragment) == Got::end);
    EXPECT_EQ(peer.channel().close_reason(), CloseReason::peer_died);
  }
}

TEST(ChannelProcess, LeavingWithoutClosingIsDying) {
  const HangGuard guard;
  Peer leaves([](Channel& channel) { return channel.try_send({}, 5) == Sent::taken ? 0 : 1; });
  EXPECT_EQ(leaves.child().wait(), 0);
  const auto received = receive_message(leaves.channel());
  ASSERT_TRUE(received) << "what was sent before can still be received";
  EXPECT_EQ(received->immediate, 5u);
  EXPECT_FALSE(receive_message(leaves.channel()));
  EXPECT_EQ(leaves.channel().close_reason(), CloseReason::peer_died);

  Peer finishes([](Channel& channel) { return channel.finish_sending(), 0; });
  EXPECT_EQ(finishes.child().wait(), 0);
  EXPECT_FALSE(receive_message(finishes.channel()));
  EXPECT_EQ(finishes.channel().close_reason(), CloseReason::peer_finished);
}

// ---- what waiting costs

double processor_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

constexpr double kFewMs = viaduct::testing::kSanitized ? 30 : 6;

TEST(ChannelProcess, SleepingCostsNoProcessorTime) {
  const HangGuard guard;
  Peer peer(
      [](Channel& channel) {
        const double before = processor_ms();
        CHILD_EXPECT(channel.wait_to_receive(300) == std::errc::timed_out);
        CHILD_EXPECT(processor_ms() - before < kFewMs);
        while (channel.try_send({}, 0) == Sent::taken) {
        }
        const double sending = processor_ms();
        CHILD_EXPECT(channel.wait_to_send(0, 300) == std::errc::timed_out);
        CHILD_EXPECT(processor_ms() - sending < kFewMs);
        return 0;
      },
      kSmall);
  EXPECT_EQ(peer.child().wait(), 0);
}

// This program again, with an environment of its own from its first instruction on.
int run_again_without_spinning(const char* filter) {
  Child child([&] {
    ::setenv("VIADUCT_SPIN_US", "0", 1);
    const std::string tests = std::string("--gtest_filter=") + filter;
    ::execl("/proc/self/exe", "test", tests.c_str(), "--gtest_brief=1", nullptr);
    return 127;
  });
  return child.wait();
}

// Every wait sleeps at once: 20,000 times each side in turn, then for room and for data on one end.
TEST(ChannelProcess, NoWakeUpIsLostWithoutSpinning) {
  EXPECT_EQ(run_again_without_spinning("ChannelConformance.QuestionAndAnswer/shm_processes"), 0);
  EXPECT_EQ(run_again_without_spinning("ChannelConformance.*Sleep*"), 0);
}

// ---- memory, descriptors, options

std::set<std::pair<ino_t, off_t>> channel_memory(off_t& reserved) {
  std::set<std::pair<ino_t, off_t>> found;
  DIR* const listing = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(listing)) {
    char target[64] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof target - 1) < 0) continue;
    if (std::string(target).find("memfd:viaduct-channel") == std::string::npos) continue;
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && found.insert({info.st_ino, info.st_size}).second)
      reserved += info.st_blocks * 512;
  }
  ::closedir(listing);
  return found;
}

TEST(ChannelProcess, TakesTheMemoryThatTheDocumentSays) {
  const int before = open_descriptors();
  std::error_code fault;
  const ChannelPair pair = make_channel_pair({}, fault);
  ASSERT_FALSE(fault);
  off_t reserved = 0;
  const auto memory = channel_memory(reserved);
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory.begin()->second, 573'440) << "docs/formats/channel.md";
  EXPECT_EQ(reserved, 573'440);
  EXPECT_EQ(open_descriptors() - before, 4) << "docs/formats/channel.md: two for each end";
  EXPECT_EQ(pair.first->largest_fragment(), 32'768u);
  EXPECT_EQ(pair.first->credits(), 256u);
}

TEST(ChannelProcess, LeavesNothingBehind) {
  const int before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    std::error_code fault;
    const ChannelPair pair = make_channel_pair(kSmall, fault);
    ASSERT_FALSE(fault);
    auto sockets = make_socket_pair(SOCK_STREAM);
    const auto opened = open_channel(sockets->first.release(), kSmall, fault);
    const auto joined = join_channel(sockets->second.release(), 100, fault);
    ASSERT_FALSE(fault);
  }
  // The socket is taken also by a call that fails.
  auto sockets = make_socket_pair(SOCK_STREAM);
  std::error_code fault;
  EXPECT_EQ(open_channel(sockets->first.release(), {.bulk_bytes = 1, .slots = 1}, fault), nullptr);
  EXPECT_EQ(join_channel(sockets->second.release(), 0, fault), nullptr);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(ChannelProcess, RefusesBadOptions) {
  const ChannelOptions bad[] = {{.bulk_bytes = 0, .slots = 256},          {.bulk_bytes = 4096, .slots = 0},
                                {.bulk_bytes = 4095, .slots = 256},       {.bulk_bytes = 2048, .slots = 256},
                                {.bulk_bytes = 12288, .slots = 256},      {.bulk_bytes = SIZE_MAX, .slots = 256},
                                {.bulk_bytes = 1ul << 33, .slots = 256},  {.bulk_bytes = 1ul << 63, .slots = 256},
                                {.bulk_bytes = 4096, .slots = 4},         {.bulk_bytes = 4096, .slots = 100},
                                {.bulk_bytes = 4096, .slots = 1u << 21},  {.bulk_bytes = 4096, .slots = 1u << 31},
                                {.bulk_bytes = 4096, .slots = UINT32_MAX}};
  for (const ChannelOptions& options : bad) {
    std::error_code fault;
    const ChannelPair pair = make_channel_pair(options, fault);
    EXPECT_EQ(fault, std::errc::invalid_argument) << options.bulk_bytes << ", " << options.slots;
    EXPECT_TRUE(pair.first == nullptr && pair.second == nullptr);
  }
  std::error_code fault = std::make_error_code(std::errc::io_error);
  EXPECT_NE(make_channel_pair(kSmall, fault).first, nullptr);
  EXPECT_FALSE(fault) << "success clears it";
}

// Leaves room for that many descriptors more. The limit is on numbers: the first free one counts, not how many are
// open.
bool limit_descriptors(int more) {
  const Fd first_free(::dup(STDERR_FILENO));
  return limit(RLIMIT_NOFILE, static_cast<rlim_t>(first_free.get() + more));
}

TEST(ChannelProcess, TheDescriptorLimitIsAnError) {
  if (viaduct::testing::kSanitized) GTEST_SKIP() << "the sanitizer itself needs descriptors";
  Child child([] {
    int succeeded = 0, failed = 0;
    for (int more = 0; more < 8; ++more) {
      const int before = open_descriptors();
      CHILD_EXPECT(limit_descriptors(more));
      std::error_code fault;
      ChannelPair pair = make_channel_pair(kSmall, fault);
      pair.first ? ++succeeded : ++failed;
      CHILD_EXPECT((pair.first == nullptr) == static_cast<bool>(fault));
      CHILD_EXPECT(pair.first != nullptr || fault == std::errc::too_many_files_open);
      pair = {};
      CHILD_EXPECT(limit(RLIMIT_NOFILE, 1000));
      CHILD_EXPECT(open_descriptors() == before);
    }
    CHILD_EXPECT(succeeded > 0);
    CHILD_EXPECT(failed > 0);
    // The joiner's table is full: the segment's descriptor cannot be received.
    auto sockets = make_socket_pair(SOCK_STREAM);
    std::error_code opened, joined;
    const auto channel = open_channel(sockets->first.release(), kSmall, opened);
    CHILD_EXPECT(channel != nullptr);
    CHILD_EXPECT(limit_descriptors(0));
    CHILD_EXPECT(join_channel(sockets->second.release(), 100, joined) == nullptr);
    CHILD_EXPECT(joined == std::errc::too_many_files_open);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace viaduct::via
