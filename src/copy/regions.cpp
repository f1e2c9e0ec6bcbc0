#include <sys/stat.h>
#include <viaduct/regions.hpp>

#include "copy/region.hpp"

namespace viaduct::copy {

bool region_of(const void* address, std::size_t length, RegionPlace& place) {
  const auto region = RegionHeap::process().find(address, length);
  struct stat info {};
  if (!region || ::fstat(region->segment.fd(), &info) != 0) return false;
  place.id = region->id;
  place.offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - region->base());
  place.inode = info.st_ino;
  place.fd = region->segment.fd();
  return true;
}

std::uint64_t region_layout() {
  return kRegionLayout;
}

}  // namespace viaduct::copy
