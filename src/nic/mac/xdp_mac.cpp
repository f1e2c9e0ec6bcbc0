// The MAC `xdp`: frames of one queue of an interface, taken before the kernel makes packets of them (AF_XDP, copy
// mode).
//
// Chunks of the first half of the shared memory receive, those of the second half send, so that the two halves of the
// MAC share nothing. A frame longer than a chunk arrives in pieces and is put together in a buffer of ours.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "nic/mac/counts.hpp"
#include "nic/mac/interface.hpp"
#include "nic/mac/macs.hpp"
#include "nic/mac/xdp_program.hpp"
#include "nic/mac/xdp_rings.hpp"

namespace viaduct::nic {

namespace {

// Newer than some kernels' headers.
constexpr std::uint16_t kUseFrags = 1 << 4;     // XDP_USE_SG
constexpr std::uint32_t kMorePieces = 1u << 0;  // XDP_PKT_CONTD
constexpr std::uint32_t kKernelHeadroom = 256;  // of every chunk it fills

struct Geometry {
  std::uint32_t chunk, frames, max_frame;
  bool in_pieces() const { return max_frame > chunk - kKernelHeadroom; }
};

class XdpMac final : public Mac {
 public:
  XdpMac(Interface interface, const Geometry& geometry, Fd control, Fd socket, XdpRings rings, XdpProgram program)
      : interface_(std::move(interface)),
        geometry_(geometry),
        control_(std::move(control)),
        socket_(std::move(socket)),
        rings_(std::move(rings)),
        program_(std::move(program)),
        held_(geometry.frames),
        whole_(geometry.in_pieces() ? std::size_t{geometry.frames} * geometry.max_frame : 0) {
    for (std::uint32_t i = 0; i < geometry.frames; ++i)
      unsent_.push_back(std::uint64_t{geometry.frames + i} * geometry.chunk);
  }

  std::string name() const override { return "xdp:" + interface_.name; }
  MacAddress address() const override { return interface_.address; }
  std::uint32_t max_frame() const override { return geometry_.max_frame; }
  Link link() const override { return link_of(control_.get(), interface_.index); }
  MacCounters counters() const override;
  Capabilities capabilities() const override {
    return {
        .max_frame = std::min(geometry_.max_frame, frame_now(control_.get(), interface_.index, geometry_.max_frame)),
        .checked_arrivals = true,  // by the card, where there is one
        .probes_path_mtu = true,
        .privilege = "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"};
  }
  std::size_t transmit(std::span<const Frame> frames) override;
  std::size_t receive(std::span<Frame> frames) override;
  void release(std::size_t count) override;
  int fd() const override { return gone_.load(std::memory_order_relaxed) ? -1 : socket_.get(); }

 private:
  static constexpr std::uint64_t kCopied = UINT64_MAX;  // in held_: its chunks have gone back already

  bool enqueue(const Frame& frame);
  bool kick();
  void reap();
  std::uint32_t pieces_ahead(std::uint32_t available) const;
  bool put_together(std::uint32_t pieces, Frame& frame);
  void give_back(std::uint64_t address) { rings_.fill.put(address / geometry_.chunk * geometry_.chunk); }
  void look_for_errors();

  const Interface interface_;
  const Geometry geometry_;
  const Fd control_;  // a socket that can be asked about the interface
  const Fd socket_;
  XdpRings rings_;
  XdpProgram program_;
  std::atomic<bool> gone_{false};
  MacCounts counts_;
  // The receive half's: chunks given out, oldest first.
  std::vector<std::uint64_t> held_;
  std::uint64_t head_ = 0, tail_ = 0;
  std::vector<std::byte> whole_;  // one place per frame given out
  std::uint32_t idle_ = 0;
  // The transmit half's.
  std::vector<std::uint64_t> unsent_;  // chunks free to send from
  bool down_ = false;
};

MacCounters XdpMac::counters() const {
  MacCounters counters = counts_.read();
  xdp_statistics kernel{};
  socklen_t size = sizeof kernel;
  if (::getsockopt(socket_.get(), SOL_XDP, XDP_STATISTICS, &kernel, &size) == 0) {
    counters.receive_drops += kernel.rx_dropped + kernel.rx_ring_full + kernel.rx_fill_ring_empty_descs;
    counters.transmit_drops += kernel.tx_invalid_descs;
  }
  return counters;
}

std::size_t XdpMac::transmit(std::span<const Frame> frames) {
  reap();
  if (down_ && !kick()) {
    counts_.refused(frames.size());
    return frames.size();
  }
  std::size_t taken = 0;
  std::uint64_t sent = 0;
  for (; taken < frames.size(); ++taken) {
    if (frames[taken].length > geometry_.max_frame || frames[taken].length < kEthernetHeader)
      counts_.refused(1);
    else if (enqueue(frames[taken]))
      ++sent;
    else
      break;
  }
  rings_.transmit.publish();
  counts_.sent(sent);
  if (!rings_.transmit.empty()) (void)kick();
  return taken;
}

bool XdpMac::enqueue(const Frame& frame) {
  const std::uint32_t pieces = (frame.length + geometry_.chunk - 1) / geometry_.chunk;
  if (unsent_.size() < pieces || rings_.transmit.space() < pieces) return false;
  for (std::uint32_t at = 0; at < frame.length;) {
    const std::uint32_t length = std::min(geometry_.chunk, frame.length - at);
    const std::uint64_t chunk = unsent_.back();
    unsent_.pop_back();
    std::memcpy(rings_.chunks.get() + chunk, frame.data + at, length);
    at += length;
    rings_.transmit.put({chunk, length, at < frame.length ? kMorePieces : 0});
  }
  return true;
}

// The kernel sends what is in the ring, a batch at a call. False: the interface is down or gone.
bool XdpMac::kick() {
  for (int i = 0; i < 64; ++i) {
    const bool refused = ::sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) < 0;
    if (refused && errno != EAGAIN && errno != EINTR) {
      down_ = errno == ENETDOWN || errno == ENXIO || errno == ENODEV;
      return !down_;
    }
    if (!refused || rings_.transmit.empty()) break;
    reap();
  }
  down_ = false;
  return true;
}

void XdpMac::reap() {
  const std::uint32_t done = rings_.completion.available();
  for (std::uint32_t i = 0; i < done; ++i) unsent_.push_back(rings_.completion.peek(i));
  if (done != 0) rings_.completion.consume(done);
}

// How many descriptors the next frame has; 0: not all of it is there.
std::uint32_t XdpMac::pieces_ahead(std::uint32_t available) const {
  for (std::uint32_t i = 0; i < available; ++i)
    if ((rings_.receive.peek(i).options & kMorePieces) == 0) return i + 1;
  return 0;
}

std::size_t XdpMac::receive(std::span<Frame> frames) {
  std::size_t count = 0;
  std::uint32_t available = rings_.receive.available();
  while (count < frames.size() && available != 0 && tail_ - head_ < held_.size()) {
    const std::uint32_t pieces = pieces_ahead(available);
    if (pieces == 0) break;
    const xdp_desc& first = rings_.receive.peek(0);
    if (pieces == 1) {
      frames[count++] = {rings_.chunks.get() + first.addr, first.len};
      held_[tail_++ % held_.size()] = first.addr;
    } else if (put_together(pieces, frames[count])) {
      held_[tail_++ % held_.size()] = kCopied;
      ++count;
    } else {
      counts_.lost(1);
    }
    rings_.receive.consume(pieces);
    available -= pieces;
  }
  if (count != 0) {
    counts_.received(count);
    idle_ = 0;
  } else if ((++idle_ & 0xff) == 0) {
    look_for_errors();
  }
  return count;
}

bool XdpMac::put_together(std::uint32_t pieces, Frame& frame) {
  std::byte* const place =
      whole_.empty() ? nullptr : whole_.data() + tail_ % held_.size() * std::size_t{geometry_.max_frame};
  std::uint32_t length = 0;
  bool fits = place != nullptr;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const xdp_desc& piece = rings_.receive.peek(i);
    fits = fits && piece.len <= geometry_.max_frame - length;
    if (fits) std::memcpy(place + length, rings_.chunks.get() + piece.addr, piece.len), length += piece.len;
    give_back(piece.addr);
  }
  rings_.fill.publish();
  frame = {place, length};
  return fits;
}

void XdpMac::release(std::size_t count) {
  for (; count != 0; --count, ++head_)
    if (held_[head_ % held_.size()] != kCopied) give_back(held_[head_ % held_.size()]);
  rings_.fill.publish();
}

// An interface that goes down or away leaves an error on the socket; until it is read, nobody can sleep on it.
void XdpMac::look_for_errors() {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return;
  if (link() == Link::gone) gone_.store(true, std::memory_order_relaxed);
}

Status bind_to(int socket, const Interface& interface, std::uint32_t queue, bool in_pieces) {
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = static_cast<std::uint32_t>(interface.index);
  address.sxdp_queue_id = queue;
  address.sxdp_flags = static_cast<std::uint16_t>(XDP_COPY | (in_pieces ? kUseFrags : 0));
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return {};
  if (errno == EBUSY)
    return Error(EBUSY, fmt::format("queue {} of {} is taken by another AF_XDP socket", queue, interface.name));
  if (errno == EINVAL)
    return Error(EINVAL,
                 fmt::format("{} has no queue {}, or the kernel cannot receive frames of MTU {} this way (6.6 can)",
                             interface.name, queue, interface.mtu));
  return refused(errno, fmt::format("bind an AF_XDP socket to queue {} of {}", queue, interface.name), "CAP_NET_RAW");
}

Result<XdpProgram> attach(const Interface& interface, bool native, bool in_pieces) {
  if (native) {
    auto program = XdpProgram::attach(interface.index, true, in_pieces);
    if (program || program.error().code() == EPERM || program.error().code() == EBUSY) return program;
    log::notice(fmt::format("{}: its driver does not take AF_XDP programs; the generic hook is used", interface.name));
  }
  return XdpProgram::attach(interface.index, false, in_pieces);
}

}  // namespace

Result<std::unique_ptr<Mac>> open_xdp_mac(const XdpMacOptions& options) {
  Fd control(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return Error::from_errno("open a socket to ask about interfaces");
  VIADUCT_TRY(const Interface interface, find_interface(control.get(), options.interface));
  VIADUCT_TRY(const std::uint32_t max_frame, longest_frame(interface, options.max_frame));
  Fd socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket) return refused(errno, "open an AF_XDP socket", "CAP_NET_RAW");

  const std::uint32_t chunk = max_frame <= 2048 - kKernelHeadroom ? 2048 : 4096;
  const Geometry geometry{chunk, std::bit_ceil(std::clamp(options.ring_frames, 64u, 8192u)), max_frame};
  VIADUCT_TRY(XdpRings rings, XdpRings::make(socket.get(), geometry.chunk, geometry.frames));
  VIADUCT_TRY(XdpProgram program, attach(interface, options.native, geometry.in_pieces()));
  VIADUCT_CHECK(bind_to(socket.get(), interface, options.queue, geometry.in_pieces()));
  VIADUCT_CHECK(program.serve(options.queue, socket.get()));
  return std::unique_ptr<Mac>(std::make_unique<XdpMac>(interface, geometry, std::move(control), std::move(socket),
                                                       std::move(rings), std::move(program)));
}

}  // namespace viaduct::nic
