// The MAC `packet`: frames of a network interface through AF_PACKET. A receive ring (packet_ring.hpp) on one socket,
// sendmmsg() on another: the two halves share nothing. On a veth frames leave through AF_XDP instead (xdp_sender.hpp),
// as long as it stays up.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/fd.hpp"
#include "nic/mac/checksum.hpp"
#include "nic/mac/counts.hpp"
#include "nic/mac/interface.hpp"
#include "nic/mac/macs.hpp"
#include "nic/mac/packet_ring.hpp"
#include "nic/mac/transmit_batches.hpp"
#include "nic/mac/xdp_sender.hpp"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace viaduct::nic {

namespace {

constexpr std::size_t kBatch = 64;

// What precedes a frame in its slot: struct virtio_net_hdr, whose header is no C++.
struct Offload {
  std::uint8_t flags;    // 1: the checksum is the card's to complete
  std::uint8_t several;  // not 0: several frames in one, the card's to take apart
  std::uint16_t header_length, segment_length, checksum_start, checksum_offset;
  static constexpr std::uint8_t kNeedsChecksum = 1;
};
static_assert(sizeof(Offload) == 10);

Status set(int socket, int option, int value, const char* what) {
  if (::setsockopt(socket, SOL_PACKET, option, &value, sizeof value) == 0) return {};
  return Error::from_errno(what);
}

Result<Fd> open_socket() {
  Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));  // protocol 0: hears nothing yet
  if (!socket) return refused(errno, "open a packet socket", "CAP_NET_RAW");
  return socket;
}

Status bind_to(int socket, int index, std::uint16_t protocol) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  address.sll_ifindex = index;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return {};
  return Error::from_errno("bind a packet socket");
}

// Frames of one endpoint. Jumps count the instructions that they pass over.
std::vector<FilterInstruction> program_for(const PacketMacOptions& options, const EndpointPlace& place) {
  const auto swapped = static_cast<std::uint16_t>(options.endpoint << 8 | options.endpoint >> 8);
  std::vector<FilterInstruction> program{{BPF_LD | BPF_H | BPF_ABS, 0, 0, 12},
                                         {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, place.ether_type},
                                         {BPF_RET | BPF_K, 0, 0, 0}};
  if (!options.promiscuous) {
    program.push_back({BPF_LD | BPF_B | BPF_ABS, 0, 0, static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PKTTYPE)});
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, PACKET_OTHERHOST});
    program.push_back({BPF_RET | BPF_K, 0, 0, 0});
  }
  program.push_back({BPF_LD | BPF_H | BPF_ABS, 0, 0, place.offset});  // ends with 0 where the frame is too short
  if (options.listens) {
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0});
    program.push_back({BPF_RET | BPF_K, 0, 0, UINT32_MAX});
  }
  program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 1, 0, swapped});
  program.push_back({BPF_RET | BPF_K, 0, 0, 0});
  program.push_back({BPF_RET | BPF_K, 0, 0, UINT32_MAX});
  return program;
}

// It stays for the life of the socket, whoever gets hold of that.
Status attach_filter(int socket, const PacketMacOptions& options) {
  static_assert(sizeof(FilterInstruction) == sizeof(sock_filter));
  std::vector<FilterInstruction> program = options.filter;
  if (options.endpoint_at)
    program = program_for(options, *options.endpoint_at);
  else if (program.empty() && options.ether_type != 0)
    program = {{BPF_LD | BPF_H | BPF_ABS, 0, 0, 12},
               {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, options.ether_type},
               {BPF_RET | BPF_K, 0, 0, UINT32_MAX},
               {BPF_RET | BPF_K, 0, 0, 0}};
  if (program.empty()) return {};
  const sock_fprog description{static_cast<unsigned short>(program.size()),
                               reinterpret_cast<sock_filter*>(program.data())};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &description, sizeof description) != 0)
    return Error::from_errno(fmt::format("attach a filter of {} instructions", program.size()));
  const int locked = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_LOCK_FILTER, &locked, sizeof locked) != 0)
    return Error::from_errno("lock the filter");
  return {};
}

class PacketMac final : public Mac {
 public:
  PacketMac(Interface interface, std::uint32_t max_frame, Fd receiver, Fd sender, std::optional<XdpSender> express,
            PacketRing ring)
      : interface_(std::move(interface)),
        max_frame_(max_frame),
        receiver_(std::move(receiver)),
        sender_(std::move(sender)),
        ring_(std::move(ring)),
        express_(std::move(express)) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      messages_[i].msg_hdr.msg_iov = &pieces_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  std::string name() const override { return "packet:" + interface_.name; }
  MacAddress address() const override { return interface_.address; }
  std::uint32_t max_frame() const override { return max_frame_; }
  Link link() const override { return link_of(sender_.get(), interface_.index); }
  MacCounters counters() const override;
  Capabilities capabilities() const override {
    return {.max_frame = std::min(max_frame_, frame_now(sender_.get(), interface_.index, max_frame_)),
            .checked_arrivals = true,  // by the card, where there is one
            .probes_path_mtu = true,
            .privilege = "CAP_NET_RAW"};
  }
  std::size_t transmit(std::span<const Frame> frames) override;
  std::size_t receive(std::span<Frame> frames) override;
  void release(std::size_t count) override { ring_.release(count); }
  int fd() const override { return gone_.load(std::memory_order_relaxed) ? -1 : receiver_.get(); }
  int transmit_fd() const override { return sender_.get(); }

 private:
  std::size_t send_batch(std::span<const Frame> frames, bool& full);
  std::size_t send_by_socket(std::span<const Frame> frames, bool& full);
  bool unwrap(const PacketRing::Slot& slot, Frame& frame);
  void look_for_errors();

  const Interface interface_;
  const std::uint32_t max_frame_;
  const Fd receiver_;
  const Fd sender_;
  MacCounts counts_;
  mutable std::atomic<std::uint64_t> ring_drops_{0};
  std::atomic<bool> gone_{false};
  // The receive half's.
  PacketRing ring_;
  std::uint32_t idle_ = 0;
  // The transmit half's.
  std::optional<XdpSender> express_;
  std::array<mmsghdr, kBatch> messages_{};
  std::array<iovec, kBatch> pieces_{};
};

MacCounters PacketMac::counters() const {
  tpacket_stats since{};  // the kernel starts over at every look
  socklen_t size = sizeof since;
  if (::getsockopt(receiver_.get(), SOL_PACKET, PACKET_STATISTICS, &since, &size) == 0)
    ring_drops_.fetch_add(since.tp_drops, std::memory_order_relaxed);
  MacCounters counters = counts_.read();
  counters.receive_drops += ring_drops_.load(std::memory_order_relaxed);
  return counters;
}

std::size_t PacketMac::transmit(std::span<const Frame> frames) {
  return transmit_in_batches(frames, max_frame_, kBatch, counts_,
                             [this](std::span<const Frame> batch, bool& full) { return send_batch(batch, full); });
}

// Says how many it took: sent, or lost for good.
std::size_t PacketMac::send_batch(std::span<const Frame> frames, bool& full) {
  const auto too_short = [](const Frame& frame) { return frame.length < kEthernetHeader; };
  if (!express_ || std::any_of(frames.begin(), frames.end(), too_short)) return send_by_socket(frames, full);
  bool broken = false;
  const std::size_t sent = express_->send(frames, broken);
  counts_.sent(sent);
  if (broken)
    express_.reset();  // the socket says what became of the interface
  else
    full = sent < frames.size();
  return sent;
}

std::size_t PacketMac::send_by_socket(std::span<const Frame> frames, bool& full) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    pieces_[i] = {const_cast<std::byte*>(frames[i].data), frames[i].length};
  const int sent =
      frames.size() == 1
          ? (::send(sender_.get(), frames[0].data, frames[0].length, MSG_DONTWAIT) < 0 ? -1 : 1)
          : ::sendmmsg(sender_.get(), messages_.data(), static_cast<unsigned>(frames.size()), MSG_DONTWAIT);
  if (sent > 0) {
    counts_.sent(static_cast<std::uint64_t>(sent));
    return static_cast<std::size_t>(sent);
  }
  switch (errno) {
    case EINTR:
      return 0;
    case EAGAIN:
    case ENOBUFS:
      full = true;
      return 0;
    case ENETDOWN:
    case ENXIO:
    case ENODEV:
      counts_.refused(frames.size());
      return frames.size();
    default:
      counts_.refused(1);
      return 1;
  }
}

std::size_t PacketMac::receive(std::span<Frame> frames) {
  std::size_t count = 0;
  while (count < frames.size()) {
    const PacketRing::Slot slot = ring_.next();
    if (slot.header == nullptr) break;
    if (unwrap(slot, frames[count])) {
      ring_.give();
      ++count;
    } else {
      counts_.lost(1);
      ring_.skip();
    }
  }
  if (count != 0) {
    counts_.received(count);
    idle_ = 0;
  } else if ((++idle_ & 0x1ff) == 0) {
    look_for_errors();
  }
  return count;
}

// False: it is no frame that an Ethernet could carry: cut off, or several that a card would still have to take apart.
bool PacketMac::unwrap(const PacketRing::Slot& slot, Frame& frame) {
  const tpacket2_hdr& header = *slot.header;
  auto* data = reinterpret_cast<std::byte*>(slot.header) + header.tp_mac;
  __builtin_prefetch(data + 64);  // another core wrote it: what is behind the first line is on its way meanwhile
  std::uint32_t length = header.tp_snaplen;
  if (header.tp_len > length) return false;
  Offload offload;
  std::memcpy(&offload, data - sizeof offload, sizeof offload);
  if (offload.several != 0 && length > max_frame_) return false;
  if ((offload.flags & Offload::kNeedsChecksum) != 0 &&
      !complete_checksum({data, length}, offload.checksum_start, offload.checksum_offset))
    return false;
  if ((slot.status & TP_STATUS_VLAN_VALID) != 0 && length >= 12) {
    const bool named = (slot.status & TP_STATUS_VLAN_TPID_VALID) != 0;
    insert_vlan_tag(data, named ? header.tp_vlan_tpid : ETH_P_8021Q, header.tp_vlan_tci);
    data -= 4, length += 4;
  }
  frame = {data, length};
  return true;
}

// An interface that goes down or away leaves an error on the socket; until it is read, nobody can sleep on it.
void PacketMac::look_for_errors() {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(receiver_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return;
  if (link() == Link::gone) gone_.store(true, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<Mac>> open_packet_mac(const PacketMacOptions& options) {
  VIADUCT_TRY(Fd receiver, open_socket());
  VIADUCT_TRY(Fd sender, open_socket());
  VIADUCT_TRY(const Interface interface, find_interface(receiver.get(), options.interface));
  VIADUCT_TRY(const std::uint32_t max_frame, longest_frame(interface, options.max_frame));

  VIADUCT_CHECK(set(receiver.get(), PACKET_VERSION, TPACKET_V2, "ask for a ring of version 2"));
  VIADUCT_CHECK(set(receiver.get(), PACKET_VNET_HDR, 1, "ask for unfinished checksums to be told"));
  VIADUCT_CHECK(set(receiver.get(), PACKET_IGNORE_OUTGOING, 1, "ask not to hear what is sent (Linux 4.20)"));
  VIADUCT_CHECK(attach_filter(receiver.get(), options));
  VIADUCT_TRY(PacketRing ring, PacketRing::map(receiver.get(), max_frame, options.ring_frames));
  if (options.promiscuous) {
    packet_mreq membership{};
    membership.mr_ifindex = interface.index;
    membership.mr_type = PACKET_MR_PROMISC;
    if (::setsockopt(receiver.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)
      return Error::from_errno("hear every frame (promiscuous)");
  }
  // An endpoint's socket is not even asked about frames of other types.
  const std::uint16_t heard = options.endpoint_at ? options.endpoint_at->ether_type : std::uint16_t{ETH_P_ALL};
  VIADUCT_CHECK(bind_to(receiver.get(), interface.index, heard));
  VIADUCT_CHECK(set(sender.get(), PACKET_QDISC_BYPASS, 1, "go past the queueing discipline"));
  VIADUCT_CHECK(bind_to(sender.get(), interface.index, 0));
  std::optional<XdpSender> express;
  if (options.express && is_veth(sender.get(), interface.name))
    if (auto made = XdpSender::open(interface, max_frame)) express.emplace(std::move(*made));
  return std::unique_ptr<Mac>(std::make_unique<PacketMac>(interface, max_frame, std::move(receiver), std::move(sender),
                                                          std::move(express), std::move(ring)));
}

}  // namespace viaduct::nic
