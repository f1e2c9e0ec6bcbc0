#include "base/slot_ring.hpp"

#include <fmt/format.h>

#include <bit>

namespace viaduct {

namespace {

Status check_memory(std::span<std::byte> memory, SlotRingGeometry geometry) {
  VIADUCT_CHECK(geometry.check());
  if (memory.size() < geometry.bytes())
    return Error(EINVAL, fmt::format("slot ring: needs {} bytes, given {}", geometry.bytes(), memory.size()));
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kCacheLine != 0)
    return Error(EINVAL, "slot ring: memory is not aligned to a cache line");
  return {};
}

}  // namespace

Status SlotRingGeometry::check() const {
  if (!std::has_single_bit(slot_size) || slot_size < 64 || slot_size > 32768)
    return Error(EINVAL, fmt::format("slot ring: slot size {} is not a power of two in 64..32768", slot_size));
  if (!std::has_single_bit(slot_count) || slot_count < 2 || slot_count > (1u << 30))
    return Error(EINVAL, fmt::format("slot ring: slot count {} is not a power of two in 2..2^30", slot_count));
  return {};
}

Result<SlotProducer> SlotProducer::attach(std::span<std::byte> memory, SlotRingGeometry geometry) {
  VIADUCT_CHECK(check_memory(memory, geometry));
  SlotProducer end(memory.data(), geometry);
  end.shared_->space.promise_heavy_fence();
  return end;
}

Result<SlotConsumer> SlotConsumer::attach(std::span<std::byte> memory, SlotRingGeometry geometry) {
  VIADUCT_CHECK(check_memory(memory, geometry));
  SlotConsumer end(memory.data(), geometry);
  end.shared_->data.promise_heavy_fence();
  return end;
}

}  // namespace viaduct
