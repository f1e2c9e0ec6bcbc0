// A way between two hosts and the process at its other end, in all kinds: links (net_links.hpp) and conduits
// (conduit.hpp). Made by name in the two namespaces of a lab.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "bench/conduit.hpp"
#include "bench/suite.hpp"
#include "bench/veth_lab.hpp"

namespace viaduct::bench {

class NetPath {
 public:
  struct Streamed {
    double gigabits = 0;   // a second; 0: it failed
    double ns_per_kb = 0;  // processor time of both ends
  };

  virtual ~NetPath() = default;
  virtual double round_trip_us(std::uint32_t count) = 0;  // of 4 bytes; 0: it failed
  Streamed stream(std::size_t size, std::uint64_t bytes);

 protected:
  virtual double gigabits(std::size_t size, std::uint64_t bytes) = 0;
  virtual pid_t far_process() const = 0;
};

struct NetWho {
  const char* name;
  Kind kind;
  std::function<Result<std::unique_ptr<NetPath>>(const TwoNetworks&, int cable)> make;
};

// ---- the kinds

inline constexpr const char* kSession = "session over UDP, spinning";
inline constexpr const char* kSessionAsleep = "session over UDP, sleeping";
inline constexpr const char* kSessionByPacket = "session over packet, spinning";
inline constexpr const char* kViplByNet = "VIPL over UDP, polling";
inline constexpr const char* kTcpSpinning = "TCP, spinning";
inline constexpr const char* kTcpBlocking = "TCP, blocking";
inline constexpr const char* kBareUdp = "bare UDP, spinning";
inline constexpr const char* kBarePacket = "bare packet ring";
inline constexpr const char* kRxd = "libfabric udp;ofi_rxd";
inline constexpr const char* kRxm = "libfabric tcp;ofi_rxm";

NetWho session_path(bool spin);
NetWho session_by_packet_path();
NetWho vipl_path();  // messages polled for; streams are RDMA writes
NetWho tcp_path(bool spin);
NetWho bare_udp_path();
NetWho bare_packet_path();
// Those of libfabric that are here; why another is not, goes into the notes.
std::vector<NetWho> fabric_paths(Suite& suite);

TwoEnds hosts_of(const TwoNetworks& networks, int cable);
// As long as the process that measures.
Result<NetPath*> add_path(const NetWho& who, const TwoNetworks& networks, int cable);
// Cables 0, 1, ... with these MTUs; this thread measures from now on.
Result<TwoNetworks*> join_networks(const std::vector<unsigned>& mtus);

// One run gives two numbers: whichever is asked for first, measures; the other one is taken from it.
class TwoNumbers {
 public:
  explicit TwoNumbers(std::function<std::pair<double, double>()> run) : run_(std::move(run)) {}
  double first() { return take(first_, second_); }
  double second() { return take(second_, first_); }
  double only_first() { return run_().first; }  // where nobody asks for the other one

 private:
  double take(std::optional<double>& wanted, std::optional<double>& other);

  const std::function<std::pair<double, double>()> run_;
  std::optional<double> first_, second_;
};

}  // namespace viaduct::bench
