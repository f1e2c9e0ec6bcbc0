#include "nic/mac/xdp_sender.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace viaduct::nic {

XdpSender::XdpSender(Fd socket, XdpRings rings) : socket_(std::move(socket)), rings_(std::move(rings)) {
  // The same chunk again while it is free: it is in the cache.
  while (free_count_ < kChunks) {
    free_[free_count_] = std::uint64_t{kChunks - 1 - free_count_} * kChunk;
    ++free_count_;
  }
}

Result<XdpSender> XdpSender::open(const Interface& interface, std::uint32_t max_frame) {
  if (max_frame > kChunk) return Error(EMSGSIZE, "frames do not fit one chunk");
  Fd socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno("open an AF_XDP socket");
  // The kernel doubles it; a frame of its own takes a page and a little more.
  const int buffer = static_cast<int>(kChunks * (kChunk + 512));
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) != 0)
    return Error::from_errno("set a send buffer");
  VIADUCT_TRY(XdpRings rings, XdpRings::make_for_sending(socket.get(), kChunk, kChunks));
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = static_cast<std::uint32_t>(interface.index);
  address.sxdp_flags = XDP_COPY;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Error::from_errno("bind an AF_XDP socket to " + interface.name);
  return XdpSender(std::move(socket), std::move(rings));
}

std::size_t XdpSender::send(std::span<const Frame> frames, bool& broken) {
  reap();
  const std::size_t count = std::min<std::size_t>({frames.size(), free_count_, rings_.transmit.space()});
  for (const Frame& frame : frames.first(count)) {
    const std::uint64_t chunk = free_[--free_count_];
    std::memcpy(rings_.chunks.get() + chunk, frame.data, frame.length);
    rings_.transmit.put({chunk, frame.length, 0});
  }
  if (count != 0) rings_.transmit.publish();
  if (kick()) return count;
  broken = true;
  return count - std::min<std::size_t>(count, kChunks - rings_.transmit.space());
}

// The kernel takes some tens of frames a call. False: it takes none any more.
bool XdpSender::kick() {
  constexpr int kMostCalls = 64;
  for (int i = 0; i < kMostCalls && !rings_.transmit.empty(); ++i) {
    if (::sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) < 0 && errno != EAGAIN && errno != EINTR)
      return errno == ENOBUFS;
    if (i != 0) reap();
  }
  return true;
}

void XdpSender::reap() {
  const std::uint32_t done = std::min(rings_.completion.available(), kChunks - free_count_);
  if (done == 0) return;
  for (std::uint32_t i = 0; i < done; ++i) free_[free_count_ + i] = rings_.completion.peek(i) / kChunk * kChunk;
  free_count_ += done;
  rings_.completion.consume(done);
}

}  // namespace viaduct::nic
