// What endpoints count, in memory that other processes of this user read without stopping anyone: the segment
// `viaduct-mx`, one for each endpoint (docs/formats/mx-statistics.md). `viaduct ls` shows it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/segment.hpp"

namespace viaduct::mx {

// Of an endpoint, or of a partner. Written by whoever has the endpoint's lock.
enum class Number : std::size_t {
  messages_sent,
  messages_received,
  bytes_sent,
  bytes_received,
  // As it is now.
  sending,           // sends in line, that have not gone
  posted,            // receives that nothing has matched; of an endpoint
  unexpected,        // messages that nobody has received; of an endpoint
  unexpected_bytes,  // what they take; of an endpoint
  count,
};
using Numbers = std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Number::count)>;

struct PartnerEntry {
  std::atomic<std::uint32_t> state;  // R1: kShown and more (release) publishes the name; pairs with A1 in the reader
  std::uint32_t endpoint;
  std::uint64_t nic;
  Numbers numbers;
};
static_assert(sizeof(PartnerEntry) == 80);

struct EndpointBlock {
  std::uint64_t nic;
  std::uint32_t endpoint;
  std::uint32_t unused;
  Numbers numbers;
  PartnerEntry partners[1];  // as many as there is memory for
};

class Statistics {
 public:
  static constexpr std::size_t kMostPartners = 4096;  // those beyond are not shown

  // Nothing where counters are off, or there is no memory.
  static std::unique_ptr<Statistics> make(std::uint64_t nic, std::uint32_t endpoint);

  void add(Number number, std::uint64_t by) { add(block().numbers, number, by); }
  void set(Number number, std::uint64_t to) { set(block().numbers, number, to); }
  static void add(Numbers& numbers, Number number, std::uint64_t by) {
    auto& one = numbers[static_cast<std::size_t>(number)];
    one.store(one.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  static void set(Numbers& numbers, Number number, std::uint64_t to) {
    numbers[static_cast<std::size_t>(number)].store(to, std::memory_order_relaxed);
  }

  // Null: not shown.
  PartnerEntry* new_partner(std::uint64_t nic, std::uint32_t endpoint);
  enum class Way : std::uint32_t { none = 1, memory = 2, network = 3, itself = 4 };
  static void show(PartnerEntry& entry, Way way) {
    entry.state.store(static_cast<std::uint32_t>(way), std::memory_order_release);  // R1
  }

 private:
  explicit Statistics(Segment segment) : segment_(std::move(segment)) {}
  EndpointBlock& block() const { return *segment_.as<EndpointBlock>(); }

  Segment segment_;
  std::size_t made_ = 0;
};

using NumbersRead = std::array<std::uint64_t, static_cast<std::size_t>(Number::count)>;

struct PartnerReading {
  std::string name;  // "192.0.2.1/3"
  Statistics::Way way = Statistics::Way::none;
  NumbersRead numbers{};
};

struct EndpointReading {
  int pid = 0;
  std::string command;
  std::string name;
  NumbersRead numbers{};
  std::vector<PartnerReading> partners;
};

// Of a process; 0: of all that may be read.
std::vector<EndpointReading> read_endpoints(int pid);

}  // namespace viaduct::mx
