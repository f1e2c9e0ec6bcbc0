// Table 4 of the SOVIA paper, with what stands beside it here: the configurations, and what the paper's text and tables
// say of each. What can only be read off its plots is not here.
#pragma once

#include <span>
#include <vector>

#include "bench/sovia_options.hpp"

namespace viaduct::bench {

struct SoviaPaper {
  struct Point {
    std::size_t size;
    double clan, mvia;  // 0: not stated
  };
  std::span<const Point> latency = {};  // microseconds
  Point bandwidth = {};                 // of 32 KB messages, Mbps
};

struct SoviaConfiguration {
  const char* name;
  const char* parts;  // M, D, w, t, C of table 4
  SoviaOptions options;
  SoviaPaper paper;
};

// In the order of the table; those that it does not have come last. `copy_limit` is the measured one.
std::vector<SoviaConfiguration> sovia_table(std::size_t copy_limit);
const SoviaPaper& paper_native_via();
const SoviaPaper& paper_tcp();

constexpr const char* kSoviaNotify = "SOVIA_NOTIFY";
constexpr const char* kSoviaHandler = "SOVIA_HANDLER";
constexpr const char* kSoviaSingle = "SOVIA_SINGLE, SOVIA_REG";
constexpr const char* kSoviaCopy = "SOVIA_COPY";
constexpr const char* kSoviaHybrid = "SOVIA_HYBRID";
constexpr const char* kSoviaBase = "SOVIA_BASE";
constexpr const char* kSoviaFlowControl = "SOVIA_FLOWCNTL";
constexpr const char* kSoviaDacks = "SOVIA_DACKS";
constexpr const char* kSoviaCombine = "SOVIA_COMBINE";
constexpr const char* kSoviaKept = "SOVIA_REG, kept";
constexpr const char* kSoviaBlocking = "SOVIA_COMBINE, blocking";
constexpr const char* kSoviaThreeWay = "three-way";
constexpr const char* kSoviaApart = "SOVIA_HANDLER, two processors";

}  // namespace viaduct::bench
