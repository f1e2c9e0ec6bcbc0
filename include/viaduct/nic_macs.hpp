// nic_macs.hpp: the MACs that the operating system offers (docs/nic-macs.md), and a file of what passes through one.
//
// Each factory gives nothing where it cannot, and says why: which capability is missing, which interface, which length.
// An interface that goes down or is removed later is no failure: its MAC counts what it loses, says so in link(), and
// goes on if the interface comes back.
#pragma once

#include <viaduct/nic.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sockaddr;
struct sockaddr_storage;

namespace viaduct::nic {

// One instruction of a classic BPF program, as the kernel lays it out (struct sock_filter).
struct FilterInstruction {
  std::uint16_t code = 0;
  std::uint8_t jump_true = 0;
  std::uint8_t jump_false = 0;
  std::uint32_t value = 0;
};

// Frames of a network interface, through a receive ring shared with the kernel. Needs CAP_NET_RAW.
struct PacketMacOptions {
  std::string interface;
  std::uint32_t max_frame = 0;              // 0: as the interface's MTU says
  std::uint16_t ether_type = 0;             // only these frames; 0: any
  std::vector<FilterInstruction> filter{};  // instead of ether_type: a program of one's own
  // Instead of both, for one process among several on the interface: only frames for the endpoint of that id, and those
  // for every endpoint if it listens for them; of other hosts' only where promiscuous.
  std::optional<EndpointPlace> endpoint_at{};
  std::uint16_t endpoint = 0;
  bool listens = true;
  bool promiscuous = true;  // the host behind the adapter has an address of its own
  std::uint32_t ring_frames = 1024;
  bool express = true;  // on a veth: send through AF_XDP, which takes its queue 0, where that can be had
};
VIADUCT_API std::unique_ptr<Mac> make_packet_mac(const PacketMacOptions& options, Failure& why);

// One frame in each UDP datagram, between two addresses ("192.0.2.1:7000", "[::1]:7000"). Needs no privilege.
struct UdpMacOptions {
  std::string local{};  // empty: any address and port
  std::string remote;
  std::uint32_t max_frame = 0;  // 0: what fits into one packet on the way there
};
VIADUCT_API std::unique_ptr<Mac> make_udp_mac(const UdpMacOptions& options, Failure& why);

// One UDP socket with many peers. The Ethernet addresses of its frames are those of its own table: a frame goes to the
// peer that it is addressed to, and what comes has its sender's address there, whatever the sender wrote. Frames are
// not cut on the way. Needs no privilege.
struct UdpSwitchOptions {
  std::string local = "0.0.0.0:0";  // port 0: any; "[::]:0" is of IPv4 as well
  std::uint32_t max_frame = 0;      // 0: 9014; what the way to a peer carries may be less
  bool shared_port = false;         // with other sockets of this user (SO_REUSEPORT)
  bool only_ipv6 = false;           // though its address is [::]
};
class [[gnu::visibility("default")]] UdpSwitch : public Mac {
 public:
  // The peer's address in the table, where it stays until forgotten as often as kept. Of strangers the last few
  // thousand are known.
  virtual MacAddress keep_peer(const sockaddr* address, std::uint32_t length) = 0;
  virtual void forget_peer(const MacAddress& peer) = 0;
  // The same for a peer that is only answered: it is remembered as a stranger is.
  virtual MacAddress know_peer(const sockaddr* address, std::uint32_t length) = 0;
  virtual std::string peer_name(const MacAddress& peer) const = 0;  // "192.0.2.1:7000"
  virtual bool peer_address(const MacAddress& peer, sockaddr_storage& address, std::uint32_t& length) const = 0;
  virtual std::uint16_t port() const = 0;
};
VIADUCT_API std::unique_ptr<UdpSwitch> make_udp_switch(const UdpSwitchOptions& options, Failure& why);

// An interface of the kernel's own stack: what it sends is received here. Made if it is not there, and gone with the
// MAC. Needs CAP_NET_ADMIN, or an interface made for this user before (ip tuntap add).
struct TapMacOptions {
  std::string interface = "tap%d";  // %d: the first free number
  std::uint32_t mtu = 1500;
  bool bring_up = true;
};
VIADUCT_API std::unique_ptr<Mac> make_tap_mac(const TapMacOptions& options, Failure& why);

// Frames of one queue of an interface, before the kernel makes packets of them (AF_XDP, copy mode). While it lives they
// do not reach the kernel's stack. Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF.
struct XdpMacOptions {
  std::string interface;
  std::uint32_t queue = 0;
  std::uint32_t max_frame = 0;  // 0: as the interface's MTU says
  bool native = true;           // in the driver, where it can; false: in the generic hook, which every interface has
  std::uint32_t ring_frames = 1024;
};
VIADUCT_API std::unique_ptr<Mac> make_xdp_mac(const XdpMacOptions& options, Failure& why);

// By name: packet:IF, xdp:IF, auto:IF (whichever suits the interface), tap:IF, udp:LOCAL,REMOTE.
// max_frame 0: the MAC's own.
VIADUCT_API std::unique_ptr<Mac> make_mac(std::string_view name, std::uint32_t max_frame, Failure& why);

// A file of frames (pcapng) that Wireshark and tcpdump read.
class [[gnu::visibility("default")]] Capture {
 public:
  static std::shared_ptr<Capture> create(const std::string& path, Failure& why);
  virtual ~Capture() = default;

  virtual std::uint32_t add_interface(std::string_view name, std::uint32_t max_frame) = 0;
  enum class Way : std::uint32_t { in = 1, out = 2 };
  virtual void write(std::uint32_t interface, Way way, std::span<const Frame> frames) = 0;  // from any thread
  virtual bool flush() = 0;  // false: something could not be written, and nothing more will be
};

// The same MAC, with everything that passes it written to the file.
VIADUCT_API std::unique_ptr<Mac> make_captured_mac(std::unique_ptr<Mac> mac, std::shared_ptr<Capture> capture);

}  // namespace viaduct::nic
