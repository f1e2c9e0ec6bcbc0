#include "net/statistics.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/processes.hpp"

namespace viaduct::net {

namespace {

constexpr const char* kMemfdName = "viaduct-net";
constexpr std::uint64_t kLayout = layout_hash(
    "net statistics 1: carrier[16] station u64[7] mac u64[4] sessions{state u32 sealed u32 peer[64] interface[24] "
    "counters u64[21] round trips u64[96]}");
constexpr std::uint32_t kUsed = 1;
static_assert(sizeof(StationCounters) == 7 * 8 && sizeof(SessionCounters) == (21 + 96) * 8);
static_assert(offsetof(EngineBlock, sessions) == 16 + 7 * 8 + 4 * 8 && sizeof(SessionEntry) == 96 + 117 * 8);

constexpr std::size_t bytes_for(std::size_t sessions) {
  return offsetof(EngineBlock, sessions) + sessions * sizeof(SessionEntry);
}

template <std::size_t kSize>
void set_text(char (&field)[kSize], const std::string& text) {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(field, text.data(), size);
  std::memset(field + size, 0, kSize - size);
}

template <std::size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  std::string text(field, ::strnlen(field, kSize));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// Numbers that somebody else is counting: each is whole, for it is read at once.
template <class Numbers>
Numbers read_numbers(const Numbers& from) {
  Numbers to;
  const auto* source = reinterpret_cast<const std::uint64_t*>(&from);
  auto* target = reinterpret_cast<std::uint64_t*>(&to);
  for (std::size_t i = 0; i < sizeof(Numbers) / sizeof(std::uint64_t); ++i) {
    target[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
  }
  return to;
}

EngineReading read_block(const Segment& segment) {
  const EngineBlock& block = *segment.as<const EngineBlock>();
  EngineReading reading;
  reading.carrier = text_of(block.carrier);
  reading.station = read_numbers(block.station);
  reading.mac = {__atomic_load_n(&block.mac_sent, __ATOMIC_RELAXED),
                 __atomic_load_n(&block.mac_received, __ATOMIC_RELAXED),
                 __atomic_load_n(&block.mac_transmit_drops, __ATOMIC_RELAXED),
                 __atomic_load_n(&block.mac_receive_drops, __ATOMIC_RELAXED)};
  // The writer is another process and not trusted: how many there are follows from the size.
  const std::size_t fit = (segment.payload().size() - offsetof(EngineBlock, sessions)) / sizeof(SessionEntry);
  for (std::size_t i = 0; i < std::min(fit, Statistics::kMostSessions); ++i) {
    const SessionEntry& entry = block.sessions[i];
    if (entry.state.load(std::memory_order_acquire) != kUsed) continue;  // A1, pairs with R1
    reading.sessions.push_back(
        {text_of(entry.peer), text_of(entry.interface), entry.sealed != 0, read_numbers(entry.counters)});
  }
  return reading;
}

std::string command_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

std::unique_ptr<Statistics> Statistics::make(const std::string& carrier) {
  if (!Config::process().flag("VIADUCT_COUNTERS")) return nullptr;
  auto segment = Segment::create({.name = kMemfdName,
                                  .layout = kLayout,
                                  .payload_size = bytes_for(kMostSessions),
                                  .committed = bytes_for(0),
                                  .peers_only_read = true});
  if (!segment) {
    log::fault(segment.error().because("what goes between hosts is not published").message());
    return nullptr;
  }
  std::unique_ptr<Statistics> made(new Statistics(std::move(*segment)));
  set_text(made->block().carrier, carrier);
  return made;
}

SessionCounters* Statistics::open(std::uint64_t session) {
  if (free_.empty()) {
    if (made_ == kMostSessions || !segment_.commit(bytes_for(made_ + 1))) return nullptr;
    free_.push_back(block().sessions + made_++);
  }
  SessionEntry* const entry = free_.back();
  free_.pop_back();
  entry->counters = {};
  entries_[session] = entry;
  return &entry->counters;
}

void Statistics::show(std::uint64_t session, const std::string& peer, const std::string& interface, bool sealed) {
  const auto found = entries_.find(session);
  if (found == entries_.end()) return;
  SessionEntry& entry = *found->second;
  set_text(entry.peer, peer);
  set_text(entry.interface, interface);
  entry.sealed = sealed ? 1 : 0;
  entry.state.store(kUsed, std::memory_order_release);  // R1
}

void Statistics::close(std::uint64_t session) {
  const auto found = entries_.find(session);
  if (found == entries_.end()) return;
  found->second->state.store(0, std::memory_order_relaxed);
  free_.push_back(found->second);
  entries_.erase(found);
}

void Statistics::set_mac(const nic::MacCounters& counters) {
  EngineBlock& mine = block();
  mine.mac_sent = counters.sent;
  mine.mac_received = counters.received;
  mine.mac_transmit_drops = counters.transmit_drops;
  mine.mac_receive_drops = counters.receive_drops;
}

std::vector<EngineReading> read_engines(int pid) {
  std::vector<EngineReading> readings;
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kMemfdName);
  for (const int process : pid != 0 ? std::vector<int>{pid} : all_processes()) {
    const std::string folder = fmt::format("/proc/{}/fd", process);
    DIR* const listing = ::opendir(folder.c_str());
    if (listing == nullptr) continue;
    while (const dirent* entry = ::readdir(listing)) {
      const std::string path = folder + "/" + entry->d_name;
      char target[128];
      const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
      if (length < 0 || std::string_view(target, static_cast<std::size_t>(length)) != wanted) continue;
      Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd) continue;
      const auto segment = Segment::adopt_to_read(std::move(fd), kLayout);
      if (!segment || segment->payload().size() < bytes_for(0)) continue;
      readings.push_back(read_block(*segment));
      readings.back().pid = process;
      readings.back().command = command_of(process);
    }
    ::closedir(listing);
  }
  return readings;
}

}  // namespace viaduct::net
