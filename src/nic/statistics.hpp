// The statistics block (docs/formats/nic-statistics.md): one sealed segment per adapter, written by its processors,
// read by anybody.
//
// One writer per field: a processor writes its own ProcessorStatistics; the totals of a group are written only by the
// handlers that share that group's DMA channel, which never run at the same time. So a count is a load and a store.
// Readers see each number whole, not all of them at one moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/segment.hpp"
#include "nic/rings.hpp"

namespace viaduct::nic {

using Count = std::atomic<std::uint64_t>;
using Level = std::atomic<std::uint32_t>;

inline void bump(Count& count, std::uint64_t by = 1) {
  count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

struct HandlerStatistics {
  Count calls, items, ns;
};

struct TraceSlot {
  Count when_and_what;  // ns in the upper 44 bits, event in the next 4, items (at most 65535) in the lowest 16
};
constexpr unsigned kTraceSlots = 1024;

struct alignas(64) ProcessorStatistics {
  HandlerStatistics handlers[kEvents];
  Count rounds, idle_rounds;
  std::atomic<std::int32_t> core;
  alignas(64) Count traced;  // R1: published after the slot; pairs with A1 in the reader
  TraceSlot trace[kTraceSlots];
};

struct SendTotals {  // written by the handlers on the DMA read channel
  alignas(64) Count packets, bytes, bad_packets, interrupts, interrupts_avoided;
  Level waiting;
};

struct ReceiveTotals {  // by those on the DMA write channel
  alignas(64) Count packets, bytes, no_buffer, short_buffer, bad_frames, filtered, bad_descriptors, interrupts,
      interrupts_avoided;
  Level available[kBufferRings];
  Level returned[kMostQueues];
};

struct MailboxTotals {  // by Mailbox
  alignas(64) Count bad_indices, bad_commands;
};

struct StatisticsBlock {
  char name[64];
  char mac[64];
  char partition[16];
  std::uint32_t processors;
  std::uint32_t queues;
  std::int32_t queue_core[kMostQueues];
  SendTotals send;
  ReceiveTotals receive;
  MailboxTotals mailbox;
  ProcessorStatistics processor[1];  // as many as there are processors

  static constexpr std::size_t bytes(unsigned processors) {
    return sizeof(StatisticsBlock) + (processors - 1) * sizeof(ProcessorStatistics);
  }
};
constexpr std::uint64_t kStatisticsLayout = layout_hash(
    "nic statistics 1: name[64] mac[64] partition[16] processors u32 queues u32 queue_core i32[16] send receive "
    "mailbox "
    "processor[]{handlers[9]{calls,items,ns} rounds idle core traced trace[1024] u64}");

Result<Segment> make_statistics(unsigned processors);
Reading read_block(const StatisticsBlock& block, unsigned processors);
std::vector<TraceEntry> read_block_trace(const StatisticsBlock& block, unsigned processors);

inline void trace(ProcessorStatistics& statistics, std::uint64_t ns, Event event, unsigned items) {
  const std::uint64_t at = statistics.traced.load(std::memory_order_relaxed);
  const std::uint64_t entry =
      ns << 20 | std::uint64_t{static_cast<unsigned>(event)} << 16 | (items > 0xffff ? 0xffff : items);
  statistics.trace[at % kTraceSlots].when_and_what.store(entry, std::memory_order_relaxed);
  statistics.traced.store(at + 1, std::memory_order_release);  // R1
}

}  // namespace viaduct::nic
