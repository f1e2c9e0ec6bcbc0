#include "mx/statistics.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string_view>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/processes.hpp"
#include "mx/boards.hpp"

namespace viaduct::mx {

namespace {

constexpr const char* kMemfdName = "viaduct-mx";
constexpr std::uint64_t kLayout = layout_hash(
    "mx statistics 1: nic u64 endpoint u32 unused u32 numbers u64[8] "
    "partners{state u32 endpoint u32 nic u64 numbers u64[8]}");
static_assert(sizeof(Numbers) == 64 && offsetof(EndpointBlock, partners) == 80);

constexpr std::size_t bytes_for(std::size_t partners) {
  return offsetof(EndpointBlock, partners) + partners * sizeof(PartnerEntry);
}

std::string name_of(std::uint64_t nic, std::uint32_t endpoint) {
  return fmt::format("{}/{}", address_text(nic), endpoint);
}

NumbersRead read_numbers(const Numbers& from) {
  NumbersRead to{};
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i].load(std::memory_order_relaxed);
  return to;
}

EndpointReading read_block(const Segment& segment) {
  const EndpointBlock& block = *segment.as<const EndpointBlock>();
  EndpointReading reading;
  reading.name = name_of(block.nic, block.endpoint);
  reading.numbers = read_numbers(block.numbers);
  // The writer is another process and not trusted: how many there are follows from the size.
  const std::size_t fit = (segment.payload().size() - offsetof(EndpointBlock, partners)) / sizeof(PartnerEntry);
  for (std::size_t i = 0; i < std::min(fit, Statistics::kMostPartners); ++i) {
    const PartnerEntry& entry = block.partners[i];
    const std::uint32_t state = entry.state.load(std::memory_order_acquire);  // A1, pairs with R1
    if (state == 0) break;
    if (state > static_cast<std::uint32_t>(Statistics::Way::itself)) continue;
    reading.partners.push_back(
        {name_of(entry.nic, entry.endpoint), static_cast<Statistics::Way>(state), read_numbers(entry.numbers)});
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

std::unique_ptr<Statistics> Statistics::make(std::uint64_t nic, std::uint32_t endpoint) {
  if (!Config::process().flag("VIADUCT_COUNTERS")) return nullptr;
  auto segment = Segment::create({.name = kMemfdName,
                                  .layout = kLayout,
                                  .payload_size = bytes_for(kMostPartners),
                                  .committed = bytes_for(0),
                                  .peers_only_read = true});
  if (!segment) {
    log::fault(segment.error().because("what an endpoint does is not published").message());
    return nullptr;
  }
  std::unique_ptr<Statistics> made(new Statistics(std::move(*segment)));
  made->block().nic = nic;
  made->block().endpoint = endpoint;
  return made;
}

PartnerEntry* Statistics::new_partner(std::uint64_t nic, std::uint32_t endpoint) {
  constexpr std::size_t kStep = 32;  // partners whose memory is taken at once
  if (made_ == kMostPartners) return nullptr;
  if (made_ % kStep == 0 && !segment_.commit(bytes_for(std::min(made_ + kStep, kMostPartners)))) return nullptr;
  PartnerEntry& entry = block().partners[made_++];
  entry.nic = nic;
  entry.endpoint = endpoint;
  show(entry, Way::none);
  return &entry;
}

std::vector<EndpointReading> read_endpoints(int pid) {
  std::vector<EndpointReading> readings;
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

}  // namespace viaduct::mx
