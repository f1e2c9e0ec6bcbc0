#include "copy/cuda_placement.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace viaduct::copy {

namespace {

struct HostRange {
  AddressRange range;
  int error = 0;  // of pinning it
};

std::vector<Leg> legs_of(const OperationRecord& operation, const CudaDriver& driver) {
  std::vector<Leg> legs;
  const auto place = [&](const void* address) {
    return driver.is_device_memory(address) ? Place::device : Place::pinned;
  };
  const auto add = [&](const void* source, void* destination, std::size_t length) {
    if (length > 0)
      legs.push_back({static_cast<const std::byte*>(source), static_cast<std::byte*>(destination), length,
                      place(source), place(destination)});
  };
  if (operation.pieces.empty()) add(operation.source, operation.destination, operation.length);
  for (const Piece& piece : operation.pieces) add(piece.source, piece.destination, piece.length);
  return legs;
}

// The pages of the program's memory that the legs touch, each once: neighbours often share a page, which can be pinned
// only once. No page is added that holds none of the caller's bytes: it may be somebody else's to unmap. The pieces of
// a batch are joined where they touch, because pinning costs by the range; two buffers that happen to are not, because
// they live and die separately.
std::vector<HostRange> host_ranges(const std::vector<Leg>& legs) {
  std::vector<HostRange> ranges;
  for (const Leg& leg : legs) {
    if (leg.from != Place::device) ranges.push_back({pages_of(leg.source, leg.length)});
    if (leg.to != Place::device) ranges.push_back({pages_of(leg.destination, leg.length)});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const HostRange& a, const HostRange& b) { return a.range.begin < b.range.begin; });
  const std::uintptr_t reach = legs.size() > 1 ? 1 : 0;
  std::vector<HostRange> merged;
  for (const HostRange& next : ranges) {
    if (!merged.empty() && next.range.begin < merged.back().range.end + reach)
      merged.back().range.end = std::max(merged.back().range.end, next.range.end);
    else
      merged.push_back(next);
  }
  return merged;
}

// A range may be refused because the program pinned it itself, as cudaMallocHost does: all the better.
Place place_in(const std::vector<HostRange>& ranges, const void* address, std::size_t length,
               const CudaDriver& driver) {
  const AddressRange pages = pages_of(address, length);
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), pages.begin,
                       [](std::uintptr_t begin, const HostRange& host) { return begin < host.range.begin; });
  assert(after != ranges.begin() && std::prev(after)->range.contains(pages));
  const int error = std::prev(after)->error;
  if (error == 0) return Place::pinned;
  return error == EALREADY && driver.knows_all_of(address, length) ? Place::pinned : Place::unpinned;
}

}  // namespace

std::optional<Placement> place_operation(const OperationRecord& operation, const CudaDriver& driver, PinCache& pins,
                                         bool others_under_way) {
  Placement placement{legs_of(operation, driver), {}};
  std::vector<HostRange> ranges = host_ranges(placement.legs);
  for (HostRange& host : ranges) {
    PinCache::Pin pin = pins.pin(reinterpret_cast<const void*>(host.range.begin), host.range.length());
    host.error = pin.error();
    if (host.error == EBUSY && others_under_way) return std::nullopt;
    if (pin) placement.pins.push_back(std::move(pin));
  }
  for (Leg& leg : placement.legs) {
    if (leg.from != Place::device) leg.from = place_in(ranges, leg.source, leg.length, driver);
    if (leg.to != Place::device) leg.to = place_in(ranges, leg.destination, leg.length, driver);
  }
  return placement;
}

}  // namespace viaduct::copy
