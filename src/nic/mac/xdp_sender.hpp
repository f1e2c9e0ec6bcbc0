// Sends frames through an AF_XDP socket that receives nothing: one system call for a batch, and less work in the kernel
// per frame than a packet socket has. It takes one queue of the interface from other AF_XDP sockets, and needs no
// program there.
//
// As many chunks as ring entries, few enough for the socket's send buffer: the kernel never leaves a frame in the ring
// for want of memory, so a frame that was taken is on its way when send() returns. That holds for interfaces that are
// never busy, such as veth.
//
// Belongs to the transmit half of a MAC.
#pragma once

#include <array>
#include <span>

#include "base/fd.hpp"
#include "nic/mac/interface.hpp"
#include "nic/mac/xdp_rings.hpp"

namespace viaduct::nic {

class XdpSender {
 public:
  static constexpr std::uint32_t kChunks = 64;
  static constexpr std::uint32_t kChunk = 2048;  // the longest frame

  static Result<XdpSender> open(const Interface& interface, std::uint32_t max_frame);

  // Sends frames of at most max_frame bytes from the front and says how many. `broken`: the interface went down or
  // away; the sender is of no more use and must go before the other frames are sent in another way.
  std::size_t send(std::span<const Frame> frames, bool& broken);

 private:
  XdpSender(Fd socket, XdpRings rings);
  void reap();
  bool kick();

  Fd socket_;
  XdpRings rings_;
  std::array<std::uint64_t, kChunks> free_{};  // chunks that no frame is in
  std::uint32_t free_count_ = 0;
};

}  // namespace viaduct::nic
