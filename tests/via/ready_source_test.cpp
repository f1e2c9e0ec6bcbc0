// Ready queues with sources of their own beside the channels in shared memory: looking, sleeping, and neither starving
// the other.
#include <gtest/gtest.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <thread>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "via/channel/ready_queue.hpp"
#include "via/messages.hpp"

namespace viaduct::via::testing {
namespace {

using viaduct::testing::HangGuard;

// Tags that somebody puts in, and a descriptor that is rung for who sleeps.
class Letterbox final : public ReadySource {
 public:
  void put(std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    tags_.push_back(tag);
    ++news_;
    if (asleep_) (void)::eventfd_write(bell_.get(), 1);
  }
  std::size_t take(std::span<std::uint64_t> tags) override {
    const std::lock_guard lock(mutex_);
    seen_ = news_;
    std::size_t count = 0;
    for (; count < tags.size() && !tags_.empty(); tags_.pop_front()) tags[count++] = tags_.front();
    return count;
  }
  bool prepare_to_sleep() override {
    const std::lock_guard lock(mutex_);
    return asleep_ = seen_ == news_ && tags_.empty();
  }
  void woke() override {
    const std::lock_guard lock(mutex_);
    asleep_ = false;
    ++sleeps;
    eventfd_t value;
    (void)::eventfd_read(bell_.get(), &value);
  }
  int descriptor() const override { return bell_.get(); }
  int sleeps = 0;

 private:
  const Fd bell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::deque<std::uint64_t> tags_;
  std::uint64_t news_ = 0, seen_ = 0;
  bool asleep_ = false;
};

// As much of a channel as brings a source along.
class Slip final : public Channel {
 public:
  explicit Slip(ReadySource& source) : source_(source) {}
  std::error_code enter(ReadyEntrance& entrance, std::uint64_t) override { return entrance.add(source_); }
  void leave(ReadyEntrance& entrance) override { entrance.remove(source_); }

  Sent try_send(std::span<const iovec>, std::uint32_t, bool) override { return Sent::closed; }
  std::size_t largest_fragment() const override { return 0; }
  std::size_t credits(std::size_t) override { return 0; }
  std::uint64_t delivered() const override { return 0; }
  std::uint64_t taken() const override { return 0; }
  void tell_when_delivered(std::uint64_t) override {}
  Got peek(Fragment&) override { return Got::nothing; }
  void consume() override {}
  void finish_sending() override {}
  CloseReason close_reason() const override { return CloseReason::open; }
  std::error_code wait_to_receive(int) override { return {}; }
  std::error_code wait_to_send(std::size_t, int) override { return {}; }
  bool progress() override { return false; }
  Statistics statistics() const override { return {}; }

 private:
  ReadySource& source_;
};

constexpr std::uint64_t kShared = UINT64_MAX;

class ReadySources : public ::testing::Test {
 protected:
  void SetUp() override {
    std::error_code fault;
    queue_ = ReadyQueue::make(8, fault);
    ASSERT_FALSE(fault);
    pair_ = make_channel_pair(kSmall, fault);
    ASSERT_FALSE(queue_->add(*pair_.first, kShared) || queue_->add(first_, 0) || queue_->add(second_, 0));
  }
  void TearDown() override {
    queue_->remove(first_);
    queue_->remove(second_);
    queue_->remove(*pair_.first);
  }
  const HangGuard guard_;
  Letterbox box_;
  Slip first_{box_}, second_{box_};
  ChannelPair pair_;
  std::unique_ptr<ReadyQueue> queue_;
};

TEST_F(ReadySources, StayUntilTheLastOfTheirChannelsHasLeft) {
  std::uint64_t tags[4];
  box_.put(7);
  EXPECT_EQ(queue_->take(tags), 1u);
  EXPECT_EQ(tags[0], 7u);
  queue_->remove(first_);
  box_.put(8);
  EXPECT_EQ(queue_->take(tags), 1u);
  queue_->remove(second_);
  box_.put(9);
  EXPECT_EQ(queue_->take(tags), 0u);
  EXPECT_EQ(queue_->wait(tags, 0), 0u);
  ASSERT_FALSE(queue_->add(first_, 0) || queue_->add(second_, 0));
}

TEST_F(ReadySources, NeitherStarvesTheOther) {
  std::uint64_t tag[1];
  ASSERT_EQ(pair_.second->try_send({}, 0), Sent::taken);
  int shared = 0, others = 0;
  for (int i = 0; i < 100; ++i) {
    box_.put(1);
    ASSERT_EQ(queue_->take(tag), 1u);
    (tag[0] == kShared ? shared : others)++;
  }
  EXPECT_GT(shared, 10);
  EXPECT_GT(others, 10);
}

// Whichever of the two says something while the queue sleeps or is about to.
TEST_F(ReadySources, BothWakeASleeper) {
  constexpr std::uint64_t kMessages = 20'000;
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      if (i % 2 == 0) {
        box_.put(i);
      } else {
        while (pair_.second->try_send({}, 0) != Sent::taken) std::this_thread::yield();
      }
      if (i % 512 == 0) std::this_thread::sleep_for(std::chrono::microseconds(700));  // longer than anybody spins
    }
  });
  std::uint64_t received = 0;
  while (received < kMessages) {
    std::uint64_t tags[4];
    const std::size_t count = queue_->wait(tags, -1);
    for (std::size_t i = 0; i < count; ++i) received += tags[i] == kShared ? consume_all(*pair_.first) : 1;
  }
  sender.join();
  EXPECT_EQ(received, kMessages);
  EXPECT_GT(box_.sleeps, 0);
}

TEST_F(ReadySources, ATimeoutIsKept) {
  std::uint64_t tags[4];
  EXPECT_EQ(queue_->wait(tags, 5), 0u);
  EXPECT_GT(box_.sleeps, 0);
}

}  // namespace
}  // namespace viaduct::via::testing
