// How many cache lines go from one processor to another when small messages are received: a model of one endpoint's
// lines, fed with which processor moved which frame into which buffer.
//
// A line is in the caches of those who have read it since somebody wrote it; reading or writing a line that one does
// not have moves it. Lines that only one processor ever touches cost nothing. The frame itself comes from wherever the
// interface put it, which is the same for all ways to move it, and is not counted.
#pragma once

#include <cstdint>
#include <span>

namespace viaduct::bench {

struct MovedFrame {
  std::uint32_t queue;   // whose processor moved it
  std::uint32_t buffer;  // where to
};

// Lines per frame, where the endpoint's thread runs on processor `home` and the processor of queue q on processor q.
double lines_moved(std::uint32_t home, std::span<const MovedFrame> frames);

}  // namespace viaduct::bench
