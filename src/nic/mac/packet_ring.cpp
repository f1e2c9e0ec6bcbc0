#include "nic/mac/packet_ring.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace viaduct::nic {

namespace {
// Before the frame: headers, alignment, and the virtio header that says whether its checksum is complete.
constexpr std::uint32_t kBeforeFrame = 128;
constexpr std::uint32_t kBlock = 1 << 16;  // one piece of kernel memory; the larger, the harder to get
}  // namespace

PacketRing::PacketRing(PacketRing&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      frame_(other.frame_),
      block_(other.block_),
      per_block_(other.per_block_),
      size_(other.size_),
      head_(other.head_),
      at_(other.at_),
      given_(other.given_),
      skipped_(std::move(other.skipped_)) {}

PacketRing::~PacketRing() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

Result<PacketRing> PacketRing::map(int socket, std::uint32_t max_frame, std::uint32_t frames) {
  PacketRing ring;
  // Slots of whole lines, not powers of two: those in a row must not compete for the same lines of the cache.
  ring.frame_ = (kBeforeFrame + max_frame + 63) & ~std::uint32_t{63};
  ring.block_ = std::max(kBlock, std::bit_ceil(ring.frame_));
  ring.per_block_ = ring.block_ / ring.frame_;
  const std::uint32_t blocks = (std::max(frames, 8u) + ring.per_block_ - 1) / ring.per_block_;
  ring.size_ = blocks * ring.per_block_;
  ring.skipped_.resize(ring.size_);
  ring.bytes_ = std::size_t{blocks} * ring.block_;

  tpacket_req request{ring.block_, blocks, ring.frame_, ring.size_};
  if (::setsockopt(socket, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
    return Error::from_errno(fmt::format("make a receive ring of {} frames of {} bytes", ring.size_, ring.frame_));
  void* const memory = ::mmap(nullptr, ring.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, 0);
  if (memory == MAP_FAILED) return Error::from_errno("map the receive ring");
  ring.memory_ = static_cast<std::byte*>(memory);
  ring.head_.header = ring.at_.header = static_cast<tpacket2_hdr*>(memory);
  return ring;
}

}  // namespace viaduct::nic
