// nic_stat.hpp: what an adapter counts, and how anybody on the machine reads it while it runs.
//
// An adapter publishes one statistics block (docs/formats/nic-statistics.md) in a sealed memory segment. Readers find
// it in /proc/PID/fd, map it read-only, and disturb nobody.
#pragma once

#include <viaduct/api.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace viaduct::nic {

// The nine events, highest priority first. The first four come from hardware, the others from handlers.
enum class Event : std::uint8_t {
  mailbox,
  dma_read_complete,
  dma_write_complete,
  receive_complete,
  send_descriptors_ready,
  send_data_ready,
  update_send_consumer,
  receive_descriptors_ready,
  update_receive_return_producer,
};
constexpr unsigned kEvents = 9;
VIADUCT_API std::string_view name_of(Event event);

constexpr unsigned kMostProcessors = 16;
constexpr unsigned kMostQueues = 16;

struct HandlerReading {
  std::uint64_t calls = 0;
  std::uint64_t items = 0;  // packets, descriptors, completions: what the handler counts
  std::uint64_t ns = 0;     // 0 throughout where time is not measured
};

// Totals since the adapter was made.
struct Totals {
  std::uint64_t packets_sent = 0;  // handed to the MAC
  std::uint64_t bytes_sent = 0;
  std::uint64_t packets_received = 0;  // handed to the host
  std::uint64_t bytes_received = 0;
  std::uint64_t interrupts = 0;
  std::uint64_t interrupts_avoided = 0;  // completions that had none of their own
  // What was counted and dropped.
  std::uint64_t no_buffer_drops = 0;     // a frame came and the receive ring was empty
  std::uint64_t short_buffer_drops = 0;  // a frame longer than the buffer it was to go to
  std::uint64_t bad_frames = 0;          // shorter than an Ethernet header or longer than the MTU allows
  std::uint64_t filtered_frames = 0;
  std::uint64_t bad_send_packets = 0;         // descriptors that cannot be
  std::uint64_t bad_receive_descriptors = 0;  // given back to the host with an error
  std::uint64_t bad_indices = 0;              // a mailbox value further than its ring is long
  std::uint64_t bad_commands = 0;
};

struct RingLevels {
  std::uint32_t send_waiting = 0;       // descriptors the host produced that are not consumed yet
  std::uint32_t receive_available = 0;  // buffers the adapter can fill
  std::uint32_t mini_available = 0;
  std::array<std::uint32_t, kMostQueues> returned{};  // producer index of each receive-return ring
};

struct ProcessorReading {
  int core = -1;  // -1: the caller's thread
  std::array<HandlerReading, kEvents> handlers;
  std::uint64_t rounds = 0;  // turns of the dispatch loop; idle ones are those in which no handler ran
  std::uint64_t idle_rounds = 0;
};

struct Reading {
  int pid = 0;
  std::string name;       // of the adapter
  std::string mac;        // of its MAC
  std::string partition;  // "inline", "release", "parallel", "dynamic", "custom"
  unsigned queues = 1;
  std::array<int, kMostQueues> queue_core{};  // -1: none said
  Totals totals;
  RingLevels levels;
  std::vector<ProcessorReading> processors;
};

struct TraceEntry {
  std::uint64_t ns = 0;  // since the adapter was made
  unsigned processor = 0;
  Event event{};
  std::uint32_t items = 0;
};

// Every adapter of that process; of all processes that we may read, where pid is 0.
VIADUCT_API std::vector<Reading> read_adapters(int pid = 0);
// The last events of one adapter, oldest first. Nothing where there is no such adapter.
VIADUCT_API std::vector<TraceEntry> read_trace(int pid, std::string_view adapter);

}  // namespace viaduct::nic
