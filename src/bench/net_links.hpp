// Ways for bytes to go from one host to another: Viaduct's sessions, kernel TCP, and bare frames and datagrams. Each
// has a near end in this process and a far end in a partner process; the hosts are two network namespaces.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "bench/conduit.hpp"

namespace viaduct::bench {

// Shared by the two processes.
struct FarEnd {
  std::atomic<std::uint32_t> stop;            // the near end is done
  std::atomic<std::uint64_t> bytes, last_ns;  // received, and when
};

class NetLink {
 public:
  virtual ~NetLink() = default;
  // In the partner: answers, or takes what is streamed, until told to stop.
  virtual void serve(bool stream, FarEnd& far) = 0;
  // Microseconds for 4 bytes there and back; 0: it failed.
  virtual double round_trip(std::uint32_t count) = 0;
  // Bytes per second that arrived, sent `size` at a time; 0: it failed.
  virtual double stream(std::size_t size, std::uint64_t bytes, FarEnd& far) = 0;
};

struct NetEnds {
  TwoEnds hosts;
  std::string near_interface, far_interface;
};

// A name is offered once on a host: each link has a well-known port of its own.
Result<std::unique_ptr<NetLink>> make_session_link(const NetEnds& ends, bool spin, std::uint16_t port);
Result<std::unique_ptr<NetLink>> make_packet_session_link(const NetEnds& ends);  // over the MAC `packet`; it spins
Result<std::unique_ptr<NetLink>> make_tcp_link(const NetEnds& ends, bool spin, std::uint16_t port);
Result<std::unique_ptr<NetLink>> make_bare_udp_link(const NetEnds& ends);     // streams by UDP_SEGMENT and UDP_GRO
Result<std::unique_ptr<NetLink>> make_bare_packet_link(const NetEnds& ends);  // only round trips

}  // namespace viaduct::bench
