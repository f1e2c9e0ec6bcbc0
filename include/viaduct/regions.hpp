// regions.hpp: engine-owned memory (adma_alloc) as other rooms need it: which shared region some bytes lie in, so that
// another process can map it.
#pragma once

#include <viaduct/api.h>

#include <cstddef>
#include <cstdint>

namespace viaduct::copy {

struct RegionPlace {
  std::uint64_t id = 0;      // never used twice in one process
  std::uint64_t offset = 0;  // into the region's payload
  std::uint64_t inode = 0;   // of the memory file, to be compared by whoever opens it
  int fd = -1;               // in this process; stays open as long as the region is allocated
};

// False: ordinary memory.
VIADUCT_API bool region_of(const void* address, std::size_t length, RegionPlace& place);

// What a region's segment header says (base/segment.hpp), for adopting one.
VIADUCT_API std::uint64_t region_layout();

}  // namespace viaduct::copy
