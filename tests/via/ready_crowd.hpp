// Ready queues for tests: channels by the dozen, and what one does with them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "via/messages.hpp"

namespace viaduct::via::testing {

using Tags = std::vector<std::uint64_t>;

inline std::unique_ptr<ReadyQueue> make_queue(std::uint32_t most) {
  std::error_code fault;
  auto queue = ReadyQueue::make(most, fault);
  EXPECT_FALSE(fault) << fault.message();
  return queue;
}

inline ChannelPair make_pair() {
  std::error_code fault;
  ChannelPair pair = make_channel_pair(kSmall, fault);
  EXPECT_FALSE(fault) << fault.message();
  return pair;
}

inline std::unique_ptr<Channel> open_to(Fd& socket) {
  std::error_code fault;
  auto channel = open_channel(socket.release(), kSmall, fault);
  EXPECT_NE(channel, nullptr) << fault.message();
  return channel;
}

inline Tags take(ReadyQueue& queue, std::size_t most = 64) {
  Tags tags(most);
  tags.resize(queue.take(tags));
  return tags;
}

inline Tags wait(ReadyQueue& queue, int timeout_ms = -1, std::size_t most = 64) {
  Tags tags(most);
  tags.resize(queue.wait(tags, timeout_ms));
  return tags;
}

inline bool ended(Channel& channel) {
  Fragment fragment;
  return channel.peek(fragment) == Got::end;
}

// So many looks in vain that every channel is armed again.
inline void look_until_all_are_armed(ReadyQueue& queue) {
  for (int look = 0; look < 5000; ++look) ASSERT_THAT(take(queue), ::testing::IsEmpty());
}

// The first channel is armed for the queue, whose owner is awake: who sends on it gives a hint and rings nobody.
inline void arm_first_only(ReadyQueue& queue, const ChannelPair& other, std::uint64_t others_tag) {
  ASSERT_THAT(wait(queue, 1), ::testing::IsEmpty());
  ASSERT_EQ(other.second->try_send({}, 0), Sent::taken);
  ASSERT_THAT(take(queue), ::testing::ElementsAre(others_tag));
  ASSERT_EQ(consume_all(*other.first), 1u);
}

inline double processor_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// Channels by the dozen: `here` are in the queue with their index as tag, `there` are their peers.
struct Crowd {
  explicit Crowd(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      ChannelPair pair = make_pair();
      here.push_back(std::move(pair.first));
      there.push_back(std::move(pair.second));
    }
    queue = make_queue(static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i) EXPECT_FALSE(queue->add(*here[i], i));
  }
  std::vector<std::unique_ptr<Channel>> here, there;
  std::unique_ptr<ReadyQueue> queue;  // goes before its channels
};

// Five descriptors a pair: two ends of two, and the queue that the peer has received.
inline bool may_open_descriptors(std::size_t count) {
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  return now.rlim_max >= count && viaduct::testing::limit(RLIMIT_NOFILE, now.rlim_max);
}

}  // namespace viaduct::via::testing
