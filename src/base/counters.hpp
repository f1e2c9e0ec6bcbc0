// Counters: named 64-bit numbers in a segment of the process, which others read without stopping anyone.
//
// Layout (docs/formats/counters.md): a header line, then entries of 64 bytes { value u64, state u32, -, name[48] }.
// Readers find the segment by its name in /proc/PID/fd, so nothing has to be registered anywhere and nothing is left
// behind. After fork the child counts from zero in a segment of its own, at the same address: handles stay valid.
//
// Thread safety: everything here may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace viaduct {

class Counter {
 public:
  explicit Counter(std::atomic<std::uint64_t>* value) : value_(value) {}
  void add(std::uint64_t by = 1) { value_->fetch_add(by, std::memory_order_relaxed); }
  void set(std::uint64_t to) { value_->store(to, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_->load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t>* value_;
};

// The counter of that name in this process, made on first use. Names are room.what_is_counted, at most 47 bytes. Never
// fails: where there is no memory or no room left, all such counters are one that nobody can read.
Counter counter(std::string_view name);

struct CounterReading {
  std::string name;
  std::uint64_t value;
};

struct ProcessCounters {
  int pid;
  std::string command;
  std::vector<CounterReading> counters;
};

// Reads another process (or this one). ENOENT: it publishes no counters. EACCES: not ours to read.
Result<ProcessCounters> read_counters(int pid);

// Every process that publishes counters and may be read by us.
std::vector<ProcessCounters> read_all_counters();

}  // namespace viaduct
