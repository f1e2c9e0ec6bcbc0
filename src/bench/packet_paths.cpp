#include "bench/packet_paths.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <viaduct/nic_macs.hpp>

#include <array>
#include <atomic>
#include <cstring>

#include "base/fd.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint32_t kBatch = 64;
constexpr std::uint32_t kMarkAt = 14;
constexpr int kIgnoreOutgoing = 23;  // PACKET_IGNORE_OUTGOING: newer than some kernels' headers

using FrameBytes = std::array<std::byte, kFrameBytes>;

// To everybody, of an EtherType that is free for experiments.
FrameBytes blank_frame() {
  FrameBytes frame{};
  std::fill_n(frame.begin(), 6, std::byte{0xff});
  frame[6] = std::byte{2};
  frame[12] = std::byte{0x88}, frame[13] = std::byte{0xb5};
  return frame;
}

bool read_mark(const std::byte* frame, std::uint32_t length, Mark& mark) {
  if (length < kMarkAt + sizeof mark || frame[12] != std::byte{0x88}) return false;
  std::memcpy(&mark, frame + kMarkAt, sizeof mark);
  return true;
}

// Answers first and gives the buffer back afterwards, while the answer is on its way.
class AdapterPath final : public PacketPath {
 public:
  explicit AdapterPath(std::unique_ptr<nic::Adapter> adapter) : adapter_(std::move(adapter)), host_(adapter_->host()) {
    address_ = host_.register_memory(frame_.data(), frame_.size()).value_or(0);
    until_idle();  // buffers are posted before the first frame comes
  }

  void send(Mark mark) override {
    std::memcpy(frame_.data() + kMarkAt, &mark, sizeof mark);
    while (!queue()) adapter_->poll();
    host_.ring();
    until_idle();
    give_back();
  }
  bool receive(Mark& mark) override {
    give_back();
    adapter_->poll();
    if (host_.receive(0, {&held_, 1}) == 0) return false;
    holding_ = true;
    return read_mark(held_.data, held_.length, mark);
  }
  std::uint32_t send_batch(Mark mark) override {
    std::memcpy(frame_.data() + kMarkAt, &mark, sizeof mark);
    std::uint32_t sent = 0;
    while (sent < kBatch && queue()) ++sent;
    host_.ring();
    until_idle();
    return sent;
  }
  std::uint32_t receive_batch(std::uint32_t kind) override {
    adapter_->poll();
    std::array<nic::Packet, kBatch> packets;
    const std::size_t count = host_.receive(0, packets);
    std::uint32_t found = 0;
    for (const nic::Packet& packet : std::span(packets.data(), count)) {
      Mark mark;
      found += read_mark(packet.data, packet.length, mark) && mark.kind == kind ? 1 : 0;
      host_.give_back(packet);
    }
    if (count != 0) host_.post();
    return found;
  }

 private:
  // A packet passes several handlers: nobody else would bring it out.
  void until_idle() {
    while (adapter_->poll()) continue;
  }
  // Always the same memory: what was sent before has left it, or carries the same mark.
  bool queue() {
    const nic::Fragment whole{address_, kFrameBytes};
    if (host_.send({&whole, 1}, 0)) return true;
    std::array<std::uint64_t, nic::kSendRing> cookies;
    (void)host_.reclaim(cookies);
    return host_.send({&whole, 1}, 0);
  }
  void give_back() {
    if (!holding_) return;
    holding_ = false;
    host_.give_back(held_);
    host_.post();
    until_idle();
  }

  std::unique_ptr<nic::Adapter> adapter_;
  nic::Host& host_;
  std::uint64_t address_ = 0;
  nic::Packet held_;
  bool holding_ = false;
  FrameBytes frame_ = blank_frame();
};

class MacPath final : public PacketPath {
 public:
  explicit MacPath(std::unique_ptr<nic::Mac> mac) : mac_(std::move(mac)) { frames_.fill({frame_.data(), kFrameBytes}); }

  void send(Mark mark) override {
    std::memcpy(frame_.data() + kMarkAt, &mark, sizeof mark);
    (void)mac_->transmit({frames_.data(), 1});
  }
  bool receive(Mark& mark) override {
    nic::Frame frame;
    if (mac_->receive({&frame, 1}) == 0) return false;
    const bool ours = read_mark(frame.data, frame.length, mark);
    mac_->release(1);
    return ours;
  }
  std::uint32_t send_batch(Mark mark) override {
    std::memcpy(frame_.data() + kMarkAt, &mark, sizeof mark);
    return static_cast<std::uint32_t>(mac_->transmit(frames_));
  }
  std::uint32_t receive_batch(std::uint32_t kind) override {
    std::array<nic::Frame, kBatch> frames;
    const std::size_t count = mac_->receive(frames);
    std::uint32_t found = 0;
    for (const nic::Frame& frame : std::span(frames.data(), count)) {
      Mark mark;
      found += read_mark(frame.data, frame.length, mark) && mark.kind == kind ? 1 : 0;
    }
    mac_->release(count);
    return found;
  }

 private:
  std::unique_ptr<nic::Mac> mac_;
  FrameBytes frame_ = blank_frame();
  std::array<nic::Frame, kBatch> frames_;
};

// What somebody would write who needs nothing but frames: a receive ring, send() and sendmmsg().
class BarePath final : public PacketPath {
 public:
  static constexpr std::uint32_t kSlot = 2048, kSlots = 1024, kBlock = 65536;

  BarePath(Fd socket, std::byte* ring) : socket_(std::move(socket)), ring_(ring) {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      pieces_[i] = {frame_.data(), frame_.size()};
      messages_[i].msg_hdr.msg_iov = &pieces_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  void send(Mark mark) override {
    std::memcpy(frame_.data() + kMarkAt, &mark, sizeof mark);
    (void)::send(socket_.get(), frame_.data(), frame_.size(), MSG_DONTWAIT);
  }
  bool receive(Mark& mark) override {
    auto* const header = reinterpret_cast<tpacket2_hdr*>(ring_ + std::size_t{at_} * kSlot);
    const std::atomic_ref status(header->tp_status);
    if ((status.load(std::memory_order_acquire) & TP_STATUS_USER) == 0) return false;
    const bool ours = read_mark(reinterpret_cast<std::byte*>(header) + header->tp_mac, header->tp_snaplen, mark);
    status.store(TP_STATUS_KERNEL, std::memory_order_release);
    at_ = (at_ + 1) % kSlots;
    return ours;
  }
  std::uint32_t send_batch(Mark mark) override {
    std::memcpy(frame_.data() + kMarkAt, &mark, sizeof mark);
    const int sent = ::sendmmsg(socket_.get(), messages_.data(), kBatch, MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::uint32_t>(sent) : 0;
  }
  std::uint32_t receive_batch(std::uint32_t kind) override {
    std::uint32_t found = 0;
    Mark mark;
    for (std::uint32_t i = 0; i < kBatch && receive(mark); ++i) found += mark.kind == kind ? 1 : 0;
    return found;
  }

 private:
  Fd socket_;
  std::byte* ring_;
  std::uint32_t at_ = 0;
  FrameBytes frame_ = blank_frame();
  std::array<mmsghdr, kBatch> messages_{};
  std::array<iovec, kBatch> pieces_{};
};

class UdpPath final : public PacketPath {
 public:
  static constexpr std::uint32_t kPayload = kFrameBytes - 42;

  UdpPath(Fd socket, bool batched) : socket_(std::move(socket)), batched_(batched) {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      pieces_[i] = {payload_.data(), payload_.size()};
      messages_[i].msg_hdr.msg_iov = &pieces_[i];
      arrived_pieces_[i] = {arrived_[i].data(), arrived_[i].size()};
      arrivals_[i].msg_hdr.msg_iov = &arrived_pieces_[i];
      messages_[i].msg_hdr.msg_iovlen = arrivals_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  void send(Mark mark) override {
    std::memcpy(payload_.data(), &mark, sizeof mark);
    (void)::send(socket_.get(), payload_.data(), payload_.size(), MSG_DONTWAIT);
  }
  bool receive(Mark& mark) override {
    if (::recv(socket_.get(), arrived_[0].data(), kPayload, MSG_DONTWAIT) != kPayload) return false;
    std::memcpy(&mark, arrived_[0].data(), sizeof mark);
    return true;
  }
  std::uint32_t send_batch(Mark mark) override {
    if (!batched_) return send(mark), 1;
    std::memcpy(payload_.data(), &mark, sizeof mark);
    const int sent = ::sendmmsg(socket_.get(), messages_.data(), kBatch, MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::uint32_t>(sent) : 0;
  }
  std::uint32_t receive_batch(std::uint32_t kind) override {
    Mark only;
    if (!batched_) return receive(only) && only.kind == kind ? 1 : 0;
    const int count = ::recvmmsg(socket_.get(), arrivals_.data(), kBatch, MSG_DONTWAIT, nullptr);
    std::uint32_t found = 0;
    for (int i = 0; i < count; ++i) {
      Mark mark;
      std::memcpy(&mark, arrived_[static_cast<std::size_t>(i)].data(), sizeof mark);
      found += mark.kind == kind ? 1 : 0;
    }
    return found;
  }

 private:
  using Payload = std::array<std::byte, kPayload>;
  Fd socket_;
  const bool batched_;
  Payload payload_{};
  std::array<Payload, kBatch> arrived_{};
  std::array<mmsghdr, kBatch> messages_{}, arrivals_{};
  std::array<iovec, kBatch> pieces_{}, arrived_pieces_{};
};

}  // namespace

Result<std::unique_ptr<PacketPath>> make_adapter_path(const PathEnd& end) {
  nic::Failure why;
  auto mac = nic::make_packet_mac({.interface = end.interface, .ring_frames = 128}, why);  // it stays in the cache
  if (mac == nullptr) return Error(why.code.value(), why.message);
  nic::Config config;
  config.name = "bench";
  config.coalescing.receive_count = 1;
  config.measure_time = config.trace = false;
  auto adapter = nic::Adapter::create(config, std::move(mac), why);
  if (adapter == nullptr) return Error(why.code.value(), why.message);
  return std::unique_ptr<PacketPath>(std::make_unique<AdapterPath>(std::move(adapter)));
}

Result<std::unique_ptr<PacketPath>> make_mac_path(const PathEnd& end) {
  nic::Failure why;
  auto mac = nic::make_packet_mac({.interface = end.interface}, why);
  if (mac == nullptr) return Error(why.code.value(), why.message);
  return std::unique_ptr<PacketPath>(std::make_unique<MacPath>(std::move(mac)));
}

namespace {

Result<std::unique_ptr<PacketPath>> make_packet_path(const PathEnd& end, bool tuned) {
  Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno("open a packet socket");
  const auto set = [&](int option, int value) {
    return ::setsockopt(socket.get(), SOL_PACKET, option, &value, sizeof value) == 0;
  };
  const tpacket_req ring{BarePath::kBlock, BarePath::kSlots * BarePath::kSlot / BarePath::kBlock, BarePath::kSlot,
                         BarePath::kSlots};
  if (!set(PACKET_VERSION, TPACKET_V2) || (tuned && (!set(kIgnoreOutgoing, 1) || !set(PACKET_QDISC_BYPASS, 1))) ||
      ::setsockopt(socket.get(), SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring) != 0)
    return Error::from_errno("make a bare receive ring");
  void* const memory = ::mmap(nullptr, std::size_t{BarePath::kSlots} * BarePath::kSlot, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_POPULATE, socket.get(), 0);
  if (memory == MAP_FAILED) return Error::from_errno("map a bare receive ring");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex(end.interface.c_str()));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Error::from_errno("bind a bare packet socket");
  return std::unique_ptr<PacketPath>(std::make_unique<BarePath>(std::move(socket), static_cast<std::byte*>(memory)));
}

Result<std::unique_ptr<PacketPath>> make_datagram_path(const PathEnd& end, bool batched) {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto at = [](const std::string& host) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(7000);
    ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    return address;
  };
  const sockaddr_in mine = at(end.address), theirs = at(end.peer);
  const int buffer = 4 << 20;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&mine), sizeof mine) != 0 ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) != 0)
    return Error::from_errno("join two UDP sockets");
  return std::unique_ptr<PacketPath>(std::make_unique<UdpPath>(std::move(socket), batched));
}

}  // namespace

Result<std::unique_ptr<PacketPath>> make_bare_path(const PathEnd& end) {
  return make_packet_path(end, false);
}
Result<std::unique_ptr<PacketPath>> make_tuned_path(const PathEnd& end) {
  return make_packet_path(end, true);
}
Result<std::unique_ptr<PacketPath>> make_udp_path(const PathEnd& end) {
  return make_datagram_path(end, false);
}
Result<std::unique_ptr<PacketPath>> make_batched_udp_path(const PathEnd& end) {
  return make_datagram_path(end, true);
}

}  // namespace viaduct::bench
