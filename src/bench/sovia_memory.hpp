// The memory of one end of SOVIA: descriptors, receive buffers and send chunks, registered once; and the registrations
// of the application's own memory, which come and go with its sends.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bench/copy_buffers.hpp"
#include "bench/vipl_adapter.hpp"

namespace viaduct::bench {

constexpr std::size_t kSoviaChunk = 32768;  // the largest packet

class SoviaMemory {
 public:
  // `buffers` are for receiving, the rest of the chunks for sending.
  SoviaMemory(ViplAdapter& adapter, std::uint32_t descriptors, std::uint32_t buffers, std::uint32_t chunks);
  void deregister();

  VIP_DESCRIPTOR* descriptor(std::uint32_t i) { return reinterpret_cast<VIP_DESCRIPTOR*>(memory_->data()) + i; }
  std::byte* buffer(std::uint32_t i) { return memory_->data() + descriptor_bytes_ + i * kStride; }
  std::byte* take_chunk();  // null: all are under way
  void give_chunk(std::byte* chunk) { free_chunks_.push_back(chunk); }
  VIP_MEM_HANDLE handle() const { return handle_; }

 private:
  // Beginnings that are a power of two apart would fight for the same few places in the first-level cache.
  static constexpr std::size_t kStride = kSoviaChunk + 5 * 64;

  ViplAdapter& adapter_;
  std::size_t descriptor_bytes_;
  std::unique_ptr<Memory> memory_;
  std::vector<std::byte*> free_chunks_;  // the last one given back is taken first: it is in the cache
  VIP_MEM_HANDLE handle_;
};

class Registrations {
 public:
  Registrations(ViplAdapter& adapter, bool keep) : adapter_(adapter), keep_(keep) {}

  // From begin() to end() of the same memory it is registered; kept registrations serve later ones inside them.
  VIP_MEM_HANDLE begin(std::span<const std::byte> memory);
  void end(std::span<const std::byte> memory, VIP_MEM_HANDLE handle);
  void clear();

 private:
  // The paper's caution holds: memory that is unmapped and mapped anew while its registration is kept is another
  // memory. Our provider goes through the page tables at every access, so that here nothing stale is ever read.
  struct Kept {
    std::span<const std::byte> memory;
    VIP_MEM_HANDLE handle;
  };
  static constexpr std::size_t kMostKept = 64;

  ViplAdapter& adapter_;
  const bool keep_;
  std::vector<Kept> kept_;
  std::size_t oldest_ = 0;
};

// Up to which size copying costs less than registering and deregistering, here and now: what the paper found to be
// 1 KB to 4 KB, and set to 2 KB.
std::size_t measure_copy_limit();

}  // namespace viaduct::bench
