// An unmodified redis-server and redis-benchmark, first on kernel TCP, then both under `viaduct run`.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace viaduct::cli {

struct RedisFigures {
  double requests_per_second = 0;
  double median_us = 0;           // of the latency that the benchmark sees
  double cpu_us_per_request = 0;  // of server and benchmark together
};

struct RedisComparison {
  std::string job;
  RedisFigures kernel, viaduct;
};

// Takes a few seconds. ENOENT: redis is not installed.
Result<std::vector<RedisComparison>> compare_on_redis();

// A line of `redis-benchmark --csv`, under its head line: requests per second and median latency.
Result<RedisFigures> parse_redis_csv(const std::string& text);

}  // namespace viaduct::cli
