#include "nic/mac/xdp_rings.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace viaduct::nic {

namespace {

Result<Mapping> map(int socket, std::size_t size, std::uint64_t what) {
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, static_cast<off_t>(what));
  if (memory == MAP_FAILED) return Error::from_errno("map a ring of an AF_XDP socket");
  return Mapping(memory, size);
}

template <class Entry>
Result<XdpRing<Entry>> make_ring(int socket, int option, std::uint64_t what, const xdp_ring_offset& at,
                                 std::uint32_t size) {
  if (::setsockopt(socket, SOL_XDP, option, &size, sizeof size) != 0)
    return Error::from_errno(fmt::format("make a ring of {} entries for an AF_XDP socket", size));
  VIADUCT_TRY(Mapping mapping, map(socket, at.desc + size * sizeof(Entry), what));
  return XdpRing<Entry>(std::move(mapping), at, size);
}

}  // namespace

Mapping::~Mapping() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

Result<XdpRings> XdpRings::make(int socket, std::uint32_t chunk, std::uint32_t frames) {
  VIADUCT_TRY(XdpRings rings, make_rings(socket, chunk, 2 * frames, frames, true));
  for (std::uint32_t i = 0; i < frames; ++i) rings.fill.put(std::uint64_t{i} * chunk);
  rings.fill.publish();
  return rings;
}

Result<XdpRings> XdpRings::make_for_sending(int socket, std::uint32_t chunk, std::uint32_t frames) {
  return make_rings(socket, chunk, frames, frames, false);
}

Result<XdpRings> XdpRings::make_rings(int socket, std::uint32_t chunk, std::uint32_t chunks, std::uint32_t frames,
                                      bool receives) {
  XdpRings rings;
  const std::size_t bytes = std::size_t{chunks} * chunk;
  // Shared, so that it stays the kernel's memory too in a child that inherits the socket.
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return Error::from_errno("get memory for frames");
  rings.chunks = Mapping(memory, bytes);
  xdp_umem_reg registration{};
  registration.addr = reinterpret_cast<std::uintptr_t>(memory);
  registration.len = bytes;
  registration.chunk_size = chunk;
  if (::setsockopt(socket, SOL_XDP, XDP_UMEM_REG, &registration, sizeof registration) != 0)
    return Error::from_errno(fmt::format("register {} KB for frames (ulimit -l bounds it)", bytes >> 10));

  // The sizes of fill and completion ring must be known before the offsets are of use; the offsets do not depend on
  // them.
  xdp_mmap_offsets offsets{};
  socklen_t size = sizeof offsets;
  if (::getsockopt(socket, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &size) != 0)
    return Error::from_errno("ask where the rings of an AF_XDP socket are");
  VIADUCT_TRY(rings.fill,
              make_ring<std::uint64_t>(socket, XDP_UMEM_FILL_RING, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, frames));
  VIADUCT_TRY(rings.completion, make_ring<std::uint64_t>(socket, XDP_UMEM_COMPLETION_RING,
                                                         XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, frames));
  if (receives) {
    VIADUCT_TRY(rings.receive, make_ring<xdp_desc>(socket, XDP_RX_RING, XDP_PGOFF_RX_RING, offsets.rx, frames));
  }
  VIADUCT_TRY(rings.transmit, make_ring<xdp_desc>(socket, XDP_TX_RING, XDP_PGOFF_TX_RING, offsets.tx, frames));
  return rings;
}

}  // namespace viaduct::nic
