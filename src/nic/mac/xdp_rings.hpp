// The memory that an AF_XDP socket shares with the kernel: chunks for frames (UMEM), and four rings of descriptors.
//
// Ordering: R1: the producer's release store of its index publishes the entries; pairs with A1, the consumer's acquire.
// R2: the consumer's release store says "done reading"; pairs with A2. The kernel is the other side of each.
#pragma once

#include <linux/if_xdp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.hpp"

namespace viaduct::nic {

class Mapping {
 public:
  Mapping() = default;
  Mapping(void* memory, std::size_t size) : memory_(static_cast<std::byte*>(memory)), size_(size) {}
  Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();
  std::byte* get() const { return memory_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

// One side of one ring. Entry: std::uint64_t (fill, completion) or xdp_desc (receive, transmit).
template <class Entry>
class XdpRing {
 public:
  XdpRing() = default;
  XdpRing(Mapping mapping, const xdp_ring_offset& at, std::uint32_t size)
      : mapping_(std::move(mapping)),
        producer_(reinterpret_cast<std::uint32_t*>(mapping_.get() + at.producer)),
        consumer_(reinterpret_cast<std::uint32_t*>(mapping_.get() + at.consumer)),
        entries_(reinterpret_cast<Entry*>(mapping_.get() + at.desc)),
        size_(size) {}

  // As producer.
  std::uint32_t space() const {
    return size_ - (mine_ - std::atomic_ref(*consumer_).load(std::memory_order_acquire));  // A2
  }
  bool empty() const { return space() == size_; }
  void put(const Entry& entry) { entries_[mine_++ & (size_ - 1)] = entry; }
  void publish() { std::atomic_ref(*producer_).store(mine_, std::memory_order_release); }  // R1

  // As consumer.
  std::uint32_t available() const { return std::atomic_ref(*producer_).load(std::memory_order_acquire) - mine_; }  // A1
  const Entry& peek(std::uint32_t ahead) const { return entries_[(mine_ + ahead) & (size_ - 1)]; }
  void consume(std::uint32_t count) {
    mine_ += count;
    std::atomic_ref(*consumer_).store(mine_, std::memory_order_release);  // R2
  }

 private:
  Mapping mapping_;
  std::uint32_t* producer_ = nullptr;
  std::uint32_t* consumer_ = nullptr;
  Entry* entries_ = nullptr;
  std::uint32_t size_ = 0, mine_ = 0;
};

struct XdpRings {
  Mapping chunks;
  XdpRing<std::uint64_t> fill, completion;
  XdpRing<xdp_desc> receive, transmit;

  // `frames` (a power of two) entries in each ring, and twice as many chunks: the first half to receive into.
  static Result<XdpRings> make(int socket, std::uint32_t chunk, std::uint32_t frames);
  // The same for a socket that only sends: as many chunks as entries, no receive ring, nothing in the fill ring (which
  // the kernel wants to be there all the same).
  static Result<XdpRings> make_for_sending(int socket, std::uint32_t chunk, std::uint32_t frames);

 private:
  static Result<XdpRings> make_rings(int socket, std::uint32_t chunk, std::uint32_t chunks, std::uint32_t frames,
                                     bool receives);
};

}  // namespace viaduct::nic
