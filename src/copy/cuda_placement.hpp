// Where the pieces of an operation are, for a GPU's copy engines: on the device, or in host memory that is pinned or
// could not be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "copy/cuda_driver.hpp"
#include "copy/operation.hpp"
#include "copy/pin_cache.hpp"

namespace viaduct::copy {

enum class Place : std::uint8_t { pinned, unpinned, device };

// One piece of an operation, or a chunk of one.
struct Leg {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::size_t length = 0;
  Place from = Place::pinned;
  Place to = Place::pinned;
  bool bounces() const { return from == Place::unpinned || to == Place::unpinned; }
};

struct Placement {
  std::vector<Leg> legs;            // in order, none of them empty
  std::vector<PinCache::Pin> pins;  // to be held until the last leg is done
};

// Finds out, and pins what can be pinned. Nothing where a part overlaps what is pinned for another operation and
// `others_under_way` says that this will pass; otherwise such a part counts as unpinned.
std::optional<Placement> place_operation(const OperationRecord& operation, const CudaDriver& driver, PinCache& pins,
                                         bool others_under_way);

}  // namespace viaduct::copy
