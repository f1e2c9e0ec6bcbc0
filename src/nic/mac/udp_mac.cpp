// The MAC `udp`: one frame in each UDP datagram. Frames of one length in a row go to the kernel as one send that it
// takes apart (UDP_SEGMENT), and come back as one that it has gathered (UDP_GRO).
//
// Joined to one peer, it is a cable: its socket is connected and the addresses in the frames are the hosts'. As a
// switch it has many peers, and the addresses in its frames are those of its table.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/fd.hpp"
#include "nic/mac/counts.hpp"
#include "nic/mac/datagram_slots.hpp"
#include "nic/mac/macs.hpp"
#include "nic/mac/socket_address.hpp"
#include "nic/mac/transmit_batches.hpp"
#include "nic/mac/udp_peers.hpp"

namespace viaduct::nic {

namespace {

constexpr std::size_t kBatch = 64;               // frames in one sendmmsg
constexpr std::size_t kMostSegments = 64;        // the kernel's bound
constexpr std::uint32_t kMostGathered = 65'000;  // bytes of one send, below the kernel's bound
constexpr std::uint32_t kMostDatagram = 65'507;
constexpr std::uint32_t kJumbo = 9014;
constexpr int kBuffer = 4 << 20;

class UdpMac final : public UdpSwitch {
 public:
  UdpMac(Fd socket, std::string name, MacAddress address, std::uint32_t max_frame, std::uint32_t most_segment,
         bool is_switch, bool of_both = false)
      : socket_(std::move(socket)),
        name_(std::move(name)),
        address_(address),
        max_frame_(max_frame),
        most_segment_(most_segment),
        is_switch_(is_switch),
        of_both_(of_both) {}

  std::string name() const override { return name_; }
  MacAddress address() const override { return address_; }
  std::uint32_t max_frame() const override { return max_frame_; }
  MacCounters counters() const override { return counts_.read(); }
  std::size_t transmit(std::span<const Frame> frames) override;
  std::size_t receive(std::span<Frame> frames) override;
  void release(std::size_t count) override { slots_.release(count); }
  int fd() const override { return socket_.get(); }
  int transmit_fd() const override { return socket_.get(); }
  Capabilities capabilities() const override {
    return {.max_frame = max_frame_,
            .segments = most_segment_.load(std::memory_order_relaxed) != 0 ? std::uint32_t{kMostSegments} : 1,
            .gathered_arrivals = true,
            .checked_arrivals = true,
            .probes_path_mtu = is_switch_};
  }

  MacAddress keep_peer(const sockaddr* address, std::uint32_t length) override;
  MacAddress know_peer(const sockaddr* address, std::uint32_t length) override;
  bool peer_address(const MacAddress& peer, sockaddr_storage& address, std::uint32_t& length) const override;
  void forget_peer(const MacAddress& peer) override { peers_.forget(peer); }
  std::string peer_name(const MacAddress& peer) const override;
  std::uint16_t port() const override;

 private:
  struct Control {  // room for a segment size, and for the count of losses
    alignas(cmsghdr) std::byte bytes[2 * CMSG_SPACE(sizeof(std::uint32_t))];
  };

  std::size_t send_batch(std::span<const Frame> frames, bool& full);
  std::size_t group_at(std::span<const Frame> frames) const;
  bool describe(std::size_t message, std::size_t first, std::span<const Frame> group);
  void fill();
  void take(msghdr& header, std::uint32_t length, std::byte* bytes);

  const Fd socket_;
  const std::string name_;
  const MacAddress address_;
  const std::uint32_t max_frame_;
  std::atomic<std::uint32_t> most_segment_;  // longest frame that can be one of several; 0: none
  std::size_t ungrouped_ = 0;                // frames that go one by one: as a group they were refused
  const bool is_switch_;
  const bool of_both_;  // IPv4 goes through its IPv6 socket
  UdpPeers peers_;      // of a switch
  MacCounts counts_;
  // The transmit half's.
  std::array<mmsghdr, kBatch> messages_{};
  std::array<iovec, kBatch> pieces_{};
  std::array<Control, kBatch> controls_{};
  std::array<std::uint32_t, kBatch> grouped_{};  // frames of each message
  std::array<SocketAddress, kBatch> receivers_;  // of each message of a switch
  // The receive half's.
  static constexpr std::uint32_t kMostAtOnce = 16;
  DatagramSlots slots_;
  std::uint32_t ask_for_ = 1;
  std::array<mmsghdr, kMostAtOnce> arrivals_{};
  std::array<iovec, kMostAtOnce> arriving_{};
  std::array<Control, kMostAtOnce> arrived_with_{};
  std::array<SocketAddress, kMostAtOnce> senders_{};
  std::uint32_t kernel_drops_ = 0;
};

std::size_t UdpMac::transmit(std::span<const Frame> frames) {
  return transmit_in_batches(frames, max_frame_, kBatch, counts_,
                             [this](std::span<const Frame> batch, bool& full) { return send_batch(batch, full); });
}

// How many of the first frames can go together: to one peer, all as long as the first, the last possibly shorter.
std::size_t UdpMac::group_at(std::span<const Frame> frames) const {
  const std::uint32_t length = frames[0].length;
  if (length > most_segment_.load(std::memory_order_relaxed) || ungrouped_ > 0) return 1;
  std::size_t count = 1;
  for (std::uint32_t bytes = length; count < std::min(frames.size(), kMostSegments); ++count) {
    if (frames[count].length > length || bytes + frames[count].length > kMostGathered) break;
    if (is_switch_ && std::memcmp(frames[count].data, frames[0].data, sizeof(MacAddress)) != 0) break;
    bytes += frames[count].length;
    if (frames[count].length < length) return count + 1;
  }
  return count;
}

// False: it is for a peer that the switch does not have.
bool UdpMac::describe(std::size_t message, std::size_t first, std::span<const Frame> group) {
  msghdr& header = messages_[message].msg_hdr;
  header = {};
  if (is_switch_) {
    SocketAddress& receiver = receivers_[message];
    if (!peers_.find(group[0].data, receiver)) return false;
    if (of_both_) receiver = receiver.mapped();
    header.msg_name = &receiver.storage;
    header.msg_namelen = receiver.length;
  }
  header.msg_iov = &pieces_[first];
  header.msg_iovlen = group.size();
  for (std::size_t i = 0; i < group.size(); ++i)
    pieces_[first + i] = {const_cast<std::byte*>(group[i].data), group[i].length};
  grouped_[message] = static_cast<std::uint32_t>(group.size());
  if (group.size() == 1) return true;
  header.msg_control = controls_[message].bytes;
  header.msg_controllen = CMSG_SPACE(sizeof(std::uint16_t));
  cmsghdr* const control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = SOL_UDP;
  control->cmsg_type = UDP_SEGMENT;
  control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto length = static_cast<std::uint16_t>(group[0].length);
  std::memcpy(CMSG_DATA(control), &length, sizeof length);
  return true;
}

// Says how many it took: sent, or lost for good.
std::size_t UdpMac::send_batch(std::span<const Frame> frames, bool& full) {
  std::size_t messages = 0;
  for (std::size_t at = 0; at < frames.size(); ++messages) {
    const std::size_t count = group_at(frames.subspan(at));
    if (!describe(messages, at, frames.subspan(at, count))) break;
    at += count;
  }
  if (messages == 0) {
    counts_.refused(1);
    return 1;
  }
  const int sent = ::sendmmsg(socket_.get(), messages_.data(), static_cast<unsigned>(messages), MSG_DONTWAIT);
  if (sent > 0) {
    std::size_t taken = 0;
    for (int i = 0; i < sent; ++i) taken += grouped_[static_cast<std::size_t>(i)];
    counts_.sent(taken);
    ungrouped_ -= std::min(ungrouped_, taken);
    return taken;
  }
  switch (errno) {
    case EINTR:
      return 0;
    case EAGAIN:
    case ENOBUFS:
      full = true;
      return 0;
    case ECONNREFUSED:
      counts_.refused(1);
      return 1;  // said once of a datagram before: nobody listens there yet
    default:
      break;
  }
  if (grouped_[0] > 1) {  // the device on the way cannot, for good; or the way has become too narrow for these
    if (errno == EIO) most_segment_.store(0, std::memory_order_relaxed);
    ungrouped_ = grouped_[0];
    return 0;
  }
  ungrouped_ -= std::min<std::size_t>(ungrouped_, 1);
  counts_.refused(1);
  return 1;
}

std::size_t UdpMac::receive(std::span<Frame> frames) {
  std::size_t count = 0;
  while (count < frames.size() && slots_.next(frames[count])) ++count;
  if (count == 0) {
    fill();
    while (count < frames.size() && slots_.next(frames[count])) ++count;
  }
  counts_.received(count);
  return count;
}

// Asks for as many as the last time, and for more when that was not enough: looking for one more costs a look at the
// socket.
void UdpMac::fill() {
  const std::uint32_t count = std::min(slots_.free(), ask_for_);
  if (count == 0) return;
  for (std::uint32_t i = 0; i < count; ++i) {
    arriving_[i] = {slots_.free_memory(i), 65536};
    msghdr& header = arrivals_[i].msg_hdr;
    header.msg_iov = &arriving_[i];
    header.msg_iovlen = 1;
    header.msg_control = arrived_with_[i].bytes;
    header.msg_controllen = sizeof arrived_with_[i].bytes;
    header.msg_name = &senders_[i].storage;
    header.msg_namelen = sizeof senders_[i].storage;
  }
  const int received = ::recvmmsg(socket_.get(), arrivals_.data(), count, MSG_DONTWAIT, nullptr);
  for (int i = 0; i < received; ++i) {
    auto& message = arrivals_[static_cast<std::size_t>(i)];
    take(message.msg_hdr, message.msg_len, static_cast<std::byte*>(message.msg_hdr.msg_iov->iov_base));
  }
  const auto got = static_cast<std::uint32_t>(std::max(received, 1));
  ask_for_ = got == count ? std::min(kMostAtOnce, count * 2) : got;
}

void UdpMac::take(msghdr& header, std::uint32_t length, std::byte* bytes) {
  std::uint32_t segment = std::max(length, 1u);
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    std::uint32_t value = 0;
    std::memcpy(&value, CMSG_DATA(control), sizeof value);
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO && value != 0) segment = value;
    if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SO_RXQ_OVFL) {
      counts_.lost(value - kernel_drops_);
      kernel_drops_ = value;
    }
  }
  if (is_switch_ && header.msg_namelen > 0) {
    const MacAddress sender = peers_.sender(
        SocketAddress::copy(static_cast<const sockaddr*>(header.msg_name), header.msg_namelen).unmapped());
    for (std::uint32_t at = 0; at + 2 * sizeof(MacAddress) <= length; at += segment) {
      std::memcpy(bytes + at, address_.data(), sizeof(MacAddress));
      std::memcpy(bytes + at + sizeof(MacAddress), sender.data(), sizeof(MacAddress));
    }
  }
  slots_.filled(length, segment);
}

MacAddress UdpMac::keep_peer(const sockaddr* address, std::uint32_t length) {
  return peers_.keep(SocketAddress::copy(address, length).unmapped());
}

MacAddress UdpMac::know_peer(const sockaddr* address, std::uint32_t length) {
  return peers_.sender(SocketAddress::copy(address, length).unmapped());
}

bool UdpMac::peer_address(const MacAddress& peer, sockaddr_storage& address, std::uint32_t& length) const {
  SocketAddress found;
  if (!peers_.find(reinterpret_cast<const std::byte*>(peer.data()), found)) return false;
  address = found.storage;
  length = found.length;
  return true;
}

std::string UdpMac::peer_name(const MacAddress& peer) const {
  SocketAddress address;
  if (!peers_.find(reinterpret_cast<const std::byte*>(peer.data()), address)) return "nobody";
  return address.text();
}

std::uint16_t UdpMac::port() const {
  SocketAddress local;
  local.length = sizeof local.storage;
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&local.storage), &local.length) != 0) return 0;
  return local.port();
}

bool set(int socket, int level, int option, int value) {
  return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

// Bytes that one packet carries on the way to where the socket is connected.
std::uint32_t room_on_the_way(int socket, int family) {
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const bool six = family == AF_INET6;
  if (::getsockopt(socket, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &size) != 0) mtu = 1280;
  const int headers = six ? 48 : 28;
  return std::min(static_cast<std::uint32_t>(std::max(mtu - headers, 512)), kMostDatagram);
}

// Locally administered; tells the two ends apart by address and port.
MacAddress address_of(int socket) {
  SocketAddress local;
  local.length = sizeof local.storage;
  (void)::getsockname(socket, reinterpret_cast<sockaddr*>(&local.storage), &local.length);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : std::string_view(reinterpret_cast<const char*>(&local.storage), local.length))
    hash = (hash ^ byte) * 0x100000001b3;
  MacAddress address{2};
  for (std::size_t i = 1; i < address.size(); ++i) address[i] = static_cast<std::uint8_t>(hash >> 8 * i);
  return address;
}

}  // namespace

namespace {

struct Opened {
  Fd socket;
  bool segments = false;
};

Result<Opened> open_socket(int family, const SocketAddress& local, const std::string& local_name, int path_mtu,
                           bool shared, bool only_ipv6 = false) {
  Opened opened;
  opened.socket.reset(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int socket = opened.socket.get();
  if (socket < 0) return Error::from_errno("open a UDP socket");
  const bool six = family == AF_INET6;
  if (shared) (void)set(socket, SOL_SOCKET, SO_REUSEPORT, 1);
  if (six) (void)set(socket, IPPROTO_IPV6, IPV6_V6ONLY, only_ipv6 ? 1 : 0);
  if (::bind(socket, local.get(), local.length) != 0)
    return Error::from_errno(fmt::format("take the UDP address {}", local_name));
  (void)set(socket, IPPROTO_IP, IP_MTU_DISCOVER, path_mtu);
  if (six) (void)set(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, path_mtu);
  (void)set(socket, SOL_SOCKET, SO_RCVBUF, kBuffer);
  (void)set(socket, SOL_SOCKET, SO_SNDBUF, kBuffer);
  (void)set(socket, SOL_SOCKET, SO_RXQ_OVFL, 1);
  (void)set(socket, SOL_UDP, UDP_GRO, 1);
  opened.segments = set(socket, SOL_UDP, UDP_SEGMENT, 0);
  return opened;
}

bool is_any_of_both(const SocketAddress& local) {
  return local.family() == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(local.storage).sin6_addr);
}

Error no_such_frame(std::uint32_t max_frame) {
  return Error(EMSGSIZE,
               fmt::format("frames of at most {} bytes: a datagram carries 60 to {}", max_frame, kMostDatagram));
}

}  // namespace

Result<std::unique_ptr<Mac>> open_udp_mac(const UdpMacOptions& options) {
  VIADUCT_TRY(const SocketAddress remote, SocketAddress::parse(options.remote, AF_UNSPEC, false));
  SocketAddress local = SocketAddress::any(remote.family());
  if (!options.local.empty()) {
    VIADUCT_TRY(local, SocketAddress::parse(options.local, remote.family(), true));
  }
  VIADUCT_TRY(Opened opened, open_socket(remote.family(), local, options.local, IP_PMTUDISC_DONT, false));
  // Connected: datagrams of anybody else do not arrive.
  if (::connect(opened.socket.get(), remote.get(), remote.length) != 0)
    return Error::from_errno(fmt::format("go to the UDP address {}", options.remote));

  const std::uint32_t room = room_on_the_way(opened.socket.get(), remote.family());
  const std::uint32_t max_frame = options.max_frame != 0 ? options.max_frame : std::min(room, kJumbo);
  if (max_frame > kMostDatagram || max_frame < 60) return no_such_frame(max_frame);
  const MacAddress address = address_of(opened.socket.get());
  return std::unique_ptr<Mac>(std::make_unique<UdpMac>(std::move(opened.socket), "udp:" + options.remote, address,
                                                       max_frame, opened.segments ? room : 0, false));
}

Result<std::unique_ptr<UdpSwitch>> open_udp_switch(const UdpSwitchOptions& options) {
  VIADUCT_TRY(const SocketAddress local, SocketAddress::parse(options.local, AF_UNSPEC, true));
  // Frames are not cut on the way: one that is too long does not arrive, and its sender finds out what does.
  VIADUCT_TRY(Opened opened, open_socket(local.family(), local, options.local, IP_PMTUDISC_PROBE, options.shared_port,
                                         options.only_ipv6));
  const std::uint32_t max_frame = options.max_frame != 0 ? options.max_frame : kJumbo;
  if (max_frame > kMostDatagram || max_frame < 60) return no_such_frame(max_frame);
  const MacAddress address = address_of(opened.socket.get());
  return std::unique_ptr<UdpSwitch>(std::make_unique<UdpMac>(std::move(opened.socket), "udp:" + options.local, address,
                                                             max_frame, opened.segments ? max_frame : 0, true,
                                                             !options.only_ipv6 && is_any_of_both(local)));
}

}  // namespace viaduct::nic
