#include "nic/statistics.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/processes.hpp"

namespace viaduct::nic {

namespace {

constexpr const char* kMemfdName = "viaduct-nic";

template <std::size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return {field, ::strnlen(field, kSize)};
}

std::uint64_t get(const Count& count) {
  return count.load(std::memory_order_relaxed);
}

Totals read_totals(const StatisticsBlock& block) {
  const auto& [send, receive, mailbox] = std::tie(block.send, block.receive, block.mailbox);
  Totals totals;
  totals.packets_sent = get(send.packets);
  totals.bytes_sent = get(send.bytes);
  totals.packets_received = get(receive.packets);
  totals.bytes_received = get(receive.bytes);
  totals.interrupts = get(send.interrupts) + get(receive.interrupts);
  totals.interrupts_avoided = get(send.interrupts_avoided) + get(receive.interrupts_avoided);
  totals.no_buffer_drops = get(receive.no_buffer);
  totals.short_buffer_drops = get(receive.short_buffer);
  totals.bad_frames = get(receive.bad_frames);
  totals.filtered_frames = get(receive.filtered);
  totals.bad_send_packets = get(send.bad_packets);
  totals.bad_receive_descriptors = get(receive.bad_descriptors);
  totals.bad_indices = get(mailbox.bad_indices);
  totals.bad_commands = get(mailbox.bad_commands);
  return totals;
}

// Calls `use` with every adapter's segment of a process.
template <class Use>
void for_each_block(int pid, Use&& use) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* const listing = ::opendir(folder.c_str());
  if (listing == nullptr) return;
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kMemfdName);
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = folder + "/" + entry->d_name;
    char target[128];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    if (length < 0 || std::string_view(target, static_cast<std::size_t>(length)) != wanted) continue;
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) continue;
    auto segment = Segment::adopt_to_read(std::move(fd), kStatisticsLayout);
    if (!segment) continue;
    // The writer is another process and not trusted: how many processors there are follows from the size.
    const std::size_t size = segment->payload().size();
    if (size < StatisticsBlock::bytes(1)) continue;
    const auto& block = *segment->template as<const StatisticsBlock>();
    const std::size_t fit = (size - sizeof(StatisticsBlock)) / sizeof(ProcessorStatistics) + 1;
    use(block, static_cast<unsigned>(std::min({fit, std::size_t{block.processors}, std::size_t{kMostProcessors}})));
  }
  ::closedir(listing);
}

}  // namespace

Result<Segment> make_statistics(unsigned processors) {
  return Segment::create({.name = kMemfdName,
                          .layout = kStatisticsLayout,
                          .payload_size = StatisticsBlock::bytes(processors),
                          .peers_only_read = true});
}

Reading read_block(const StatisticsBlock& block, unsigned processors) {
  Reading reading;
  reading.name = text_of(block.name);
  reading.mac = text_of(block.mac);
  reading.partition = text_of(block.partition);
  reading.queues = std::clamp(block.queues, 1u, kMostQueues);
  std::copy_n(block.queue_core, kMostQueues, reading.queue_core.begin());
  reading.totals = read_totals(block);
  reading.levels.send_waiting = block.send.waiting.load(std::memory_order_relaxed);
  reading.levels.receive_available = block.receive.available[0].load(std::memory_order_relaxed);
  reading.levels.mini_available = block.receive.available[1].load(std::memory_order_relaxed);
  for (unsigned queue = 0; queue < kMostQueues; ++queue)
    reading.levels.returned[queue] = block.receive.returned[queue].load(std::memory_order_relaxed);
  for (unsigned i = 0; i < processors; ++i) {
    const ProcessorStatistics& from = block.processor[i];
    ProcessorReading& to = reading.processors.emplace_back();
    to.core = from.core.load(std::memory_order_relaxed);
    to.rounds = get(from.rounds);
    to.idle_rounds = get(from.idle_rounds);
    for (unsigned event = 0; event < kEvents; ++event)
      to.handlers[event] = {get(from.handlers[event].calls), get(from.handlers[event].items),
                            get(from.handlers[event].ns)};
  }
  return reading;
}

std::vector<TraceEntry> read_block_trace(const StatisticsBlock& block, unsigned processors) {
  std::vector<TraceEntry> entries;
  for (unsigned i = 0; i < processors; ++i) {
    const ProcessorStatistics& from = block.processor[i];
    const std::uint64_t end = from.traced.load(std::memory_order_acquire);  // A1
    // The writer goes on meanwhile; the oldest slots are the ones it overwrites.
    constexpr std::uint64_t kSafe = kTraceSlots - 16;
    for (std::uint64_t at = end > kSafe ? end - kSafe : 0; at < end; ++at) {
      const std::uint64_t word = get(from.trace[at % kTraceSlots].when_and_what);
      const auto event = static_cast<unsigned>(word >> 16 & 0xf);
      if (event < kEvents)
        entries.push_back({word >> 20, i, static_cast<Event>(event), static_cast<std::uint32_t>(word & 0xffff)});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.ns < b.ns; });
  return entries;
}

std::vector<Reading> read_adapters(int pid) {
  std::vector<Reading> readings;
  for (const int process : pid != 0 ? std::vector<int>{pid} : all_processes())
    for_each_block(process, [&](const StatisticsBlock& block, unsigned processors) {
      readings.push_back(read_block(block, processors));
      readings.back().pid = process;
    });
  return readings;
}

std::vector<TraceEntry> read_trace(int pid, std::string_view adapter) {
  std::vector<TraceEntry> entries;
  for_each_block(pid, [&](const StatisticsBlock& block, unsigned processors) {
    if (entries.empty() && text_of(block.name) == adapter) entries = read_block_trace(block, processors);
  });
  return entries;
}

}  // namespace viaduct::nic
