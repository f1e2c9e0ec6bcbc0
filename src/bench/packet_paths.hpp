// Ways to send small frames from one network namespace to another: the adapter, a bare packet socket with a receive
// ring, and UDP. One process has one end of each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"

namespace viaduct::bench {

constexpr std::uint32_t kFrameBytes = 64;  // Ethernet header included, checksum not

struct Mark {
  std::uint32_t kind = 0;  // of a ping, of a stream
  std::uint32_t number = 0;
};

class PacketPath {
 public:
  virtual ~PacketPath() = default;
  virtual void send(Mark mark) = 0;
  virtual bool receive(Mark& mark) = 0;                         // false: nothing is there
  virtual std::uint32_t send_batch(Mark mark) = 0;              // up to 64 at once; how many
  virtual std::uint32_t receive_batch(std::uint32_t kind) = 0;  // how many of that kind
};

struct PathEnd {
  std::string interface;
  std::string address, peer;  // IP
};

Result<std::unique_ptr<PacketPath>> make_adapter_path(const PathEnd& end);
Result<std::unique_ptr<PacketPath>> make_mac_path(const PathEnd& end);    // the adapter's MAC without the adapter
Result<std::unique_ptr<PacketPath>> make_bare_path(const PathEnd& end);   // as the kernel's documentation shows it
Result<std::unique_ptr<PacketPath>> make_tuned_path(const PathEnd& end);  // past the queueing discipline
Result<std::unique_ptr<PacketPath>> make_udp_path(const PathEnd& end);    // send() and recv()
Result<std::unique_ptr<PacketPath>> make_batched_udp_path(const PathEnd& end);  // sendmmsg() and recvmmsg()

}  // namespace viaduct::bench
