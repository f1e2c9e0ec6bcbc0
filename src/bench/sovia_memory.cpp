#include "bench/sovia_memory.hpp"

#include <algorithm>
#include <cstring>

namespace viaduct::bench {

SoviaMemory::SoviaMemory(ViplAdapter& adapter, std::uint32_t descriptors, std::uint32_t buffers, std::uint32_t chunks)
    : adapter_(adapter), descriptor_bytes_((descriptors * sizeof(VIP_DESCRIPTOR) + 4095) / 4096 * 4096) {
  auto memory = Memory::make(descriptor_bytes_ + (buffers + chunks) * kStride);
  if (!memory) give_up(memory.error().message());
  memory_ = std::make_unique<Memory>(std::move(*memory));
  std::memset(memory_->data(), 0, descriptor_bytes_);
  handle_ = adapter_.register_memory(memory_->data(), memory_->size());
  for (std::uint32_t i = buffers + chunks; i-- > buffers;) free_chunks_.push_back(buffer(i));
}

void SoviaMemory::deregister() {
  adapter_.deregister_memory(memory_->data(), handle_);
}

std::byte* SoviaMemory::take_chunk() {
  if (free_chunks_.empty()) return nullptr;
  std::byte* const chunk = free_chunks_.back();
  free_chunks_.pop_back();
  return chunk;
}

// ---- registrations

namespace {

void* begin_of(std::span<const std::byte> memory) {
  return const_cast<std::byte*>(memory.data());
}

bool contains(std::span<const std::byte> outer, std::span<const std::byte> inner) {
  return outer.data() <= inner.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

}  // namespace

VIP_MEM_HANDLE Registrations::begin(std::span<const std::byte> memory) {
  for (const Kept& kept : kept_)
    if (contains(kept.memory, memory)) return kept.handle;
  const VIP_MEM_HANDLE handle = adapter_.register_memory(begin_of(memory), memory.size());
  if (!keep_) return handle;
  if (kept_.size() < kMostKept) {
    kept_.push_back({memory, handle});
  } else {
    Kept& victim = kept_[oldest_++ % kMostKept];
    adapter_.deregister_memory(begin_of(victim.memory), victim.handle);
    victim = {memory, handle};
  }
  return handle;
}

void Registrations::end(std::span<const std::byte> memory, VIP_MEM_HANDLE handle) {
  if (!keep_) adapter_.deregister_memory(begin_of(memory), handle);
}

void Registrations::clear() {
  for (const Kept& kept : kept_) adapter_.deregister_memory(begin_of(kept.memory), kept.handle);
  kept_.clear();
}

// ---- copying or registering

namespace {

// The least of several tries: what disturbs only ever adds.
template <class Work>
double least_ns(Work&& work) {
  constexpr int kTries = 7, kTimes = 100;
  double least = nanoseconds(work);
  for (int i = 0; i < kTries; ++i)
    least = std::min(least, nanoseconds([&] {
                              for (int j = 0; j < kTimes; ++j) work();
                            }) / kTimes);
  return least;
}

}  // namespace

std::size_t measure_copy_limit() {
  auto source = Memory::make(kSoviaChunk), target = Memory::make(kSoviaChunk);
  if (!source || !target) give_up("no memory");
  ViplAdapter adapter;
  adapter.open();
  constexpr std::size_t kSmallest = 64;
  std::size_t limit = 0;
  for (std::size_t size = kSmallest; size <= kSoviaChunk; size *= 2) {
    const double registered =
        least_ns([&] { adapter.deregister_memory(source->data(), adapter.register_memory(source->data(), size)); });
    const double copied = least_ns([&] {
      std::memcpy(target->data(), source->data(), size);
      asm volatile("" ::"r"(target->data()) : "memory");
    });
    if (copied > registered) break;
    limit = size;
  }
  adapter.close();
  return limit;
}

}  // namespace viaduct::bench
