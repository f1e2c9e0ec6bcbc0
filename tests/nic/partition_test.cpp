// The same firmware on threads of its own: every partition carries the same traffic, complete and in order.
#include <gmock/gmock.h>
#include <unistd.h>
#include <viaduct/nic_macs.hpp>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/topology.hpp"
#include "nic/pair.hpp"

namespace viaduct::nic {
namespace {

struct Kind {
  const char* name;
  Partition partition;
  unsigned processors;
  std::uint64_t spin_us;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class Partitions : public testing::TestWithParam<Kind> {
 protected:
  static Config config() {
    Config config;
    config.partition = GetParam().partition;
    config.processors = GetParam().processors;
    config.spin_us = GetParam().spin_us;
    config.hold_when_empty = true;
    if (config.partition == Partition::custom) {
      config.processor_of = parallel_assignment();
      config.processor_of[static_cast<unsigned>(Event::mailbox)] = 2;
    }
    return config;
  }
};

constexpr std::uint32_t kFrames = 4'000;

std::size_t length_of(std::uint32_t number) {
  return 60 + number * 37 % 1400;
}

// Sends and receives `count` frames each way from this thread.
void exchange(Adapter& left, Adapter& right, std::uint32_t count) {
  Adapter* const ends[2] = {&left, &right};
  std::uint32_t sent[2] = {}, received[2] = {};
  while (received[0] < count || received[1] < count) {
    bool idle = true;
    for (int i = 0; i < 2; ++i) {
      Host& host = ends[i]->host();
      while (sent[i] < count && host.send_copy(numbered_frame(sent[i], length_of(sent[i])))) ++sent[i], idle = false;
      host.ring();
      (void)ends[i]->poll();
      for (const Bytes& frame : receive_all(host)) {
        ASSERT_EQ(frame, numbered_frame(received[i], length_of(received[i])));
        ++received[i], idle = false;
      }
    }
    if (idle) std::this_thread::yield();
  }
}

TEST_P(Partitions, CarryEverythingInOrder) {
  Pair pair(config());
  exchange(*pair.left, *pair.right, kFrames);
  for (const Adapter* adapter : {pair.left.get(), pair.right.get()}) {
    const Reading reading = adapter->statistics();
    EXPECT_EQ(reading.totals.packets_received, kFrames);
    EXPECT_EQ(reading.totals.packets_sent, kFrames);
    EXPECT_EQ(reading.totals.bad_send_packets + reading.totals.bad_frames + reading.totals.bad_indices, 0u);
    EXPECT_EQ(reading.processors.size(), GetParam().processors);
    // Every packet was reported: by an interrupt of its own, or together with others.
    EXPECT_LE(reading.totals.interrupts + reading.totals.interrupts_avoided, 2 * kFrames);
    EXPECT_GE(reading.totals.interrupts + reading.totals.interrupts_avoided, kFrames);
  }
}

// Whether that thread of ours sleeps in the kernel.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.substr(text.rfind(')') + 2, 1) == "S";
}

// Frame after frame from a thread of its own, each only when the host at the other end sleeps.
void wake_again_and_again(Adapter& from, Adapter& to) {
  const pid_t waiter = ::gettid();
  std::atomic<std::uint32_t> wanted{0};
  constexpr std::uint32_t kFramesToSend = 40;
  std::thread sender([&] {
    for (std::uint32_t i = 1; i <= kFramesToSend; ++i) {
      while (wanted.load() != i || !is_asleep(waiter)) std::this_thread::yield();
      EXPECT_TRUE(from.host().send_copy(numbered_frame(i, 60)));
      from.host().ring();
      while (from.poll()) continue;
    }
  });
  std::uint32_t got = 0;
  for (; got < kFramesToSend; ++got) {
    wanted.store(got + 1);
    if (!to.host().wait(0, 10'000'000'000)) break;
    const auto frames = receive_all(to.host());
    EXPECT_EQ(frames.size(), 1u);
    for (const Bytes& frame : frames) EXPECT_EQ(number_of(frame), got + 1);
  }
  EXPECT_EQ(got, kFramesToSend);
  while (got < kFramesToSend) wanted.store(++got), std::this_thread::yield();
  sender.join();
}

TEST_P(Partitions, WakeAWaitingHost) {
  Pair pair(config());
  wake_again_and_again(*pair.left, *pair.right);
}

// It has a MAC that one can sleep on; the wire has to be looked at again and again.
TEST(Partition, InlinedSleepsOnItsMac) {
  const int port = 10'000 + 2 * (::getpid() % 10'000);
  const std::string left = "127.0.0.1:" + std::to_string(port), right = "127.0.0.1:" + std::to_string(port + 1);
  Failure why;
  auto here = Adapter::create(inlined(), make_udp_mac({.local = left, .remote = right}, why), why);
  auto there = Adapter::create({}, make_udp_mac({.local = right, .remote = left}, why), why);
  ASSERT_TRUE(here && there) << why.message;
  EXPECT_FALSE(there->host().wait(0, 1'000'000));
  wake_again_and_again(*here, *there);
}

INSTANTIATE_TEST_SUITE_P(, Partitions,
                         testing::Values(Kind{"inlined", Partition::inlined, 1, UINT64_MAX},
                                         Kind{"release", Partition::release, 1, UINT64_MAX},
                                         Kind{"parallel", Partition::parallel, 2, UINT64_MAX},
                                         Kind{"dynamic_2", Partition::dynamic, 2, UINT64_MAX},
                                         Kind{"dynamic_4", Partition::dynamic, 4, UINT64_MAX},
                                         Kind{"custom_3", Partition::custom, 3, UINT64_MAX},
                                         Kind{"release_sleeping", Partition::release, 1, 0},
                                         Kind{"parallel_sleeping", Partition::parallel, 2, 0},
                                         Kind{"dynamic_sleeping", Partition::dynamic, 3, 0}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Only DMA Read Complete, Send Data Ready and their kin may share the read channel's processor.
TEST(Partition, OfThePaperSplitsTheEventsAsItSays) {
  const Assignment assignment = parallel_assignment();
  const auto of = [&](Event event) { return assignment[static_cast<unsigned>(event)]; };
  for (const Event event :
       {Event::mailbox, Event::dma_write_complete, Event::receive_complete, Event::update_receive_return_producer})
    EXPECT_EQ(of(event), 0) << name_of(event);
  for (const Event event : {Event::dma_read_complete, Event::send_descriptors_ready, Event::send_data_ready,
                            Event::receive_descriptors_ready, Event::update_send_consumer})
    EXPECT_EQ(of(event), 1) << name_of(event);
  EXPECT_FALSE(fault_of(assignment, 2));
  EXPECT_TRUE(fault_of(assignment, 1));
}

}  // namespace
}  // namespace viaduct::nic
