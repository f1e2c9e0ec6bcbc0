// What goes over the rings of programs under `viaduct run`, by process: how much, and how fast since the reading
// before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sockets_view/view.hpp"

namespace viaduct::cli {

struct FlowRates {  // per second
  double bytes = 0;
  double messages = 0;
  double wakes = 0;
};

struct Rates {
  FlowRates out, in;
};

struct ConnectionTraffic {
  sockets_view::Socket socket;
  std::optional<Rates> rates;  // nothing in the first reading of its process
};

struct ProcessTraffic {
  int pid = 0;
  std::string command;
  std::size_t connected = 0, on_rings = 0;  // sockets
  sockets_view::Flow out, in;               // of the connections there are, together
  std::optional<Rates> rates;
  std::vector<ConnectionTraffic> connections;  // the busiest first
};

class SocketRates {
 public:
  // In the order of the process numbers; a process that only listens is among them.
  std::vector<ProcessTraffic> update(const std::vector<sockets_view::Socket>& sockets, std::uint64_t now_ns);

 private:
  // A descriptor is used again by other connections: their addresses tell them apart.
  using Key = std::tuple<int, int, std::string, std::string>;
  struct Flows {
    sockets_view::Flow out, in;
  };
  Rates rates_since_last(const sockets_view::Socket& socket, const Key& key, double seconds) const;

  std::map<Key, Flows> before_;
  std::set<int> known_;  // processes in the last reading
  std::uint64_t before_ns_ = 0;
};

}  // namespace viaduct::cli
