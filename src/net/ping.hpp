// Measuring the way to another host: one side answers, the other asks. What `viaduct ping` is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/node.hpp"

namespace viaduct::net {

inline constexpr const char* kPingName = "viaduct-ping";

// Answers whoever asks: echoes messages, and has a megabyte of memory that anybody may write and read.
class PingAnswerer {
 public:
  static Result<std::unique_ptr<PingAnswerer>> open(std::uint16_t port);
  ~PingAnswerer();

  // One turn, sleeping for at most so long where nothing happens.
  void turn(std::uint64_t most_ns);
  std::size_t peers() const;

 private:
  class Memory;
  PingAnswerer();
  void take(const StationEvent& event);

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Node> node_;
};

struct PingOptions {
  std::uint32_t count = 1000;           // round trips of each kind
  std::uint64_t bulk_ns = 500'000'000;  // how long each direction of bulk data is measured
  std::uint64_t timeout_ns = 3'000'000'000;
};

struct PingResult {
  Route route;
  std::string peer;                     // its process's own address
  std::size_t frame_size = 0;           // largest frame in use
  std::vector<std::uint64_t> polling;   // ns, sorted: 4 bytes there and back, looking all the time
  std::vector<std::uint64_t> sleeping;  // the same, sleeping in between
  double put_bytes_per_second = 0;
  double get_bytes_per_second = 0;
  SessionCounters counters;  // of our side
};

Result<PingResult> ping(const std::string& host, const PingOptions& options);

}  // namespace viaduct::net
