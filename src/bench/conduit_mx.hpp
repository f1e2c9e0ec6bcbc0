// A conduit over the MX interface, as a program would write it: receives posted ahead, requests that are tested in
// turn.
#pragma once

#include <memory>

#include "bench/conduit.hpp"

namespace viaduct::bench {

struct MxOptions {
  bool engine_memory = false;    // data in memory that the other process can map
  bool waits = false;            // mx_wait in place of mx_test
  std::uint32_t posted = 0;      // further receives, for messages that never come
  std::uint32_t unexpected = 0;  // messages that nobody receives
};

Result<std::unique_ptr<Conduit>> make_mx(const MxOptions& options);

}  // namespace viaduct::bench
