// Statistics and trace, read as an outsider reads them.
#include <gmock/gmock.h>
#include <unistd.h>

#include "nic/pair.hpp"
#include "nic/statistics.hpp"

namespace viaduct::nic {
namespace {

using testing::Contains;
using testing::Field;
using testing::SizeIs;

TEST(Statistics, AreFoundFromOutsideTheProcess) {
  Pair pair(inlined());
  for (std::uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(i, 100)));
  pair.left->host().ring();
  pair.turn();
  const auto readings = read_adapters(::getpid());
  ASSERT_THAT(readings, SizeIs(2));
  const Reading& left = readings[0].name == "left" ? readings[0] : readings[1];
  EXPECT_EQ(left.pid, ::getpid());
  EXPECT_EQ(left.mac, "wire");
  EXPECT_EQ(left.partition, "inline");
  EXPECT_EQ(left.totals.packets_sent, 10u);
  EXPECT_EQ(left.totals.bytes_sent, 1000u);
  ASSERT_THAT(left.processors, SizeIs(1));
  const auto& handlers = left.processors[0].handlers;
  EXPECT_EQ(handlers[static_cast<unsigned>(Event::send_data_ready)].items, 10u);
  EXPECT_EQ(handlers[static_cast<unsigned>(Event::send_descriptors_ready)].items, 10u);
  EXPECT_GT(handlers[static_cast<unsigned>(Event::send_data_ready)].ns, 0u);
  EXPECT_GT(left.processors[0].idle_rounds, 0u);
}

TEST(Statistics, GoWithTheAdapter) {
  { Pair pair(inlined()); }
  EXPECT_THAT(read_adapters(::getpid()), SizeIs(0));
}

TEST(Trace, TellsTheLastEventsInTheirOrder) {
  Pair pair(inlined());
  pair.turn();
  const std::size_t before = pair.left->trace().size();
  ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(1, 100)));
  pair.left->host().ring();
  pair.turn();
  const auto trace = read_trace(::getpid(), "left");
  std::vector<Event> events;
  for (std::size_t i = before; i < trace.size(); ++i) events.push_back(trace[i].event);
  EXPECT_THAT(events, testing::ElementsAre(Event::mailbox, Event::send_descriptors_ready, Event::dma_read_complete,
                                           Event::send_data_ready, Event::dma_read_complete,
                                           Event::update_send_consumer, Event::dma_write_complete));
  EXPECT_TRUE(std::is_sorted(trace.begin(), trace.end(), [](auto& a, auto& b) { return a.ns < b.ns; }));
  EXPECT_THAT(read_trace(::getpid(), "nobody"), SizeIs(0));
}

TEST(Trace, KeepsOnlyTheLast) {
  Pair pair(inlined());
  for (std::uint32_t i = 0; i < 5000; ++i) {
    ASSERT_TRUE(pair.left->host().send_copy(numbered_frame(i, 60)));
    pair.left->host().ring();
    pair.turn(4);
    (void)receive_all(pair.right->host());
  }
  EXPECT_GT(pair.left->trace().size(), kTraceSlots / 2);
  EXPECT_LE(pair.left->trace().size(), kTraceSlots);
}

}  // namespace
}  // namespace viaduct::nic
