// The table of `viaduct demo` behind the redis one: which rows of which benchmark are set side by side. Both sides of a
// line wait in the same way, unless it says otherwise.
#pragma once

#include <string_view>

namespace viaduct::cli {

struct DemoLine {
  std::string_view job;
  std::string_view benchmark;
  std::string_view case_name;
  std::string_view metric;
  std::string_view before;  // what a program used
  std::string_view after;   // what it gets with us
};

inline constexpr DemoLine kDemoLines[] = {
    {"answer 8 B, both sides sleep", "ring", "8 B message", "one-way latency", "pipe", "viaduct ring, sleeping"},
    {"answer 8 B, both sides sleep", "ring", "8 B message", "one-way latency", "UNIX socket", "viaduct ring, sleeping"},
    {"answer 8 B, both sides spin", "ring", "8 B message", "one-way latency", "UNIX socket, spinning", "viaduct ring"},
    {"answer 8 B, as each does by itself", "ring", "8 B message", "one-way latency", "UNIX socket", "viaduct ring"},
    {"stream 8 B messages", "ring", "8 B messages", "rate", "UNIX socket", "viaduct ring"},
    {"move 64 KB messages", "ring", "64 KB messages", "bandwidth", "pipe", "viaduct ring"},
    {"move 64 KB messages", "ring", "64 KB messages", "bandwidth", "UNIX socket", "viaduct ring"},
    {"copy 1 MB of cold memory", "copy-latency", "1 MB, cold", "latency", "memcpy", "engine, stream, shared"},
    {"copy 64 MB of cold memory", "copy-latency", "64 MB, cold", "latency", "memcpy", "engine, stream, shared"},
    {"hide a 4 MB copy behind work", "copy-overlap", "4 MB, cold", "overlap", "memcpy", "engine, one channel"},
};

}  // namespace viaduct::cli
