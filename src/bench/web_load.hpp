// The load of the MemNet paper's web benchmark: connections that ask for one file, as httperf does it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace viaduct::bench {

struct WebLoad {
  std::string path = "/file";
  bool http11 = false;   // six requests a connection in bursts of three; else one, and the server closes
  int connections = 16;  // at once
};

// For so long, in this thread. How many requests were answered in full.
Result<std::uint64_t> run_web_load(int port, const WebLoad& load, std::uint64_t for_ns);

}  // namespace viaduct::bench
