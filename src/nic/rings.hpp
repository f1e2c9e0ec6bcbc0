// The rings in host memory, byte for byte (docs/formats/nic-rings.md): the adapter reads and writes them by DMA only.
//
// Indices run freely through 32 bits; the slot of an index is its remainder by the ring's size. A producer may be ahead
// of its consumer by the ring's size at most.
//
//   ring             slots  slot  produced by  consumed by
//   send               256    16  driver       firmware
//   receive            512    16  driver       firmware     buffers of any length
//   mini              1024    16  driver       firmware     buffers for short frames
//   receive return    2048    32  firmware     driver       one per queue
//   command             64     8  driver       firmware     in the adapter's registers
//
// The driver keeps at most 512 + 1024 buffers with the adapter and gives one back only after reading its return
// descriptor, so a return ring never overflows and the firmware keeps no consumer index for it.
#pragma once

#include <viaduct/nic.hpp>

#include <cstddef>
#include <cstdint>

namespace viaduct::nic {

// A place in host memory: region in the upper 16 bits, offset below.
using HostAddress = std::uint64_t;

struct SendDescriptor {
  static constexpr std::uint16_t kEnd = 1;  // the last fragment of its packet

  HostAddress address;
  std::uint32_t length;
  std::uint16_t flags;
  std::uint16_t reserved;
};
static_assert(sizeof(SendDescriptor) == 16);

struct ReceiveDescriptor {
  HostAddress address;
  std::uint32_t length;
  std::uint32_t buffer;  // the driver's; comes back in the return descriptor
};
static_assert(sizeof(ReceiveDescriptor) == 16);

enum class BufferRing : std::uint8_t { standard, mini };
constexpr unsigned kBufferRings = 2;
constexpr std::uint32_t size_of(unsigned ring) {
  return ring == 0 ? kReceiveRing : kMiniRing;
}
// A mask, since a division by a size that is not known beforehand costs more than the rest of a handler's step.
constexpr std::uint32_t slot_of(unsigned ring, std::uint32_t index) {
  return index & (size_of(ring) - 1);
}
static_assert((kReceiveRing & (kReceiveRing - 1)) == 0 && (kMiniRing & (kMiniRing - 1)) == 0);

struct ReturnDescriptor {
  static constexpr std::uint16_t kRefused = 1;  // the receive descriptor could not be used; nothing was written

  HostAddress address;
  std::uint32_t length;  // of the frame
  std::uint32_t buffer;
  std::uint32_t consumer;  // of the receive ring it came from, after this buffer
  std::uint16_t flags;
  std::uint8_t ring;  // BufferRing
  std::uint8_t queue;
  std::uint64_t reserved;
};
static_assert(sizeof(ReturnDescriptor) == 32);

// An index that the firmware writes by DMA and the driver reads.
struct alignas(64) IndexLine {
  std::uint32_t value;
};

// Region 0. Every index and the return rings: written by the adapter. Everything else: by the driver.
struct HostRings {
  IndexLine send_consumer;
  IndexLine return_producer[kMostQueues];
  SendDescriptor send[kSendRing];
  ReceiveDescriptor receive[kReceiveRing];
  ReceiveDescriptor mini[kMiniRing];
  ReturnDescriptor returned[1][kReturnRing];  // as many as there are queues

  static constexpr std::size_t bytes(unsigned queues) {
    return sizeof(HostRings) + (queues - 1) * sizeof(ReturnDescriptor) * kReturnRing;
  }
};
static_assert(offsetof(HostRings, send) == 64 * 17);
static_assert(offsetof(HostRings, receive) == 64 * 17 + 4096);
static_assert(offsetof(HostRings, mini) == 64 * 17 + 4096 + 8192);
static_assert(offsetof(HostRings, returned) == 64 * 17 + 4096 + 8192 + 16384);

}  // namespace viaduct::nic
