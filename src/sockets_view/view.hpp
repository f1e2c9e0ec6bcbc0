// The TCP sockets of programs under `viaduct run`, seen from outside: which go over a ring, how much went there, and
// why the others do not. Nothing runs in the programs for it: their registries and streams are memory that we open
// through /proc/PID/fd, so the kernel decides who may look (in general the same user, and root). Addresses and states
// are the kernel's own tables.
//
// Everything read is the programs' to write: it is bounded and checked, and a program can lie about itself only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/segment.hpp"

namespace viaduct::sockets_view {

enum class Route {
  tcp,        // the kernel's connection
  ring,       // or the next send will go there: both sides are ready, and who never sends back has nothing to wait for
  tcp_again,  // handed back, for good or for a while
};
const char* word_for(Route route);  // "tcp", "ring", "tcp"

// One direction of a connection.
struct Flow {
  Route route = Route::tcp;
  std::uint64_t bytes = 0;  // over the ring
  std::uint64_t messages = 0;
  std::uint64_t wakes = 0;  // doorbells: how often the sender woke a sleeping peer
};

struct Socket {
  int pid = 0;
  std::string command;
  int fd = -1;
  std::string local, peer;  // 127.0.0.1:80, [::1]:80; empty: the kernel has no such connection
  std::string state;        // as ss(8) has it: ESTAB, LISTEN, ...; UNCONN: neither
  bool attached = false;    // both sides have met; the flows say the rest
  int peer_pid = 0;         // attached: who took the other end
  Flow out, in;
  // What a message costs both ends in processor time, as they have measured it where most wake somebody; 0: they have
  // not.
  std::uint64_t ring_cost_ns = 0, tcp_cost_ns = 0;
  bool dearer = false;  // so that it rests on TCP, or is looked at again just now
  std::string why;      // where a direction is not on the ring; otherwise empty

  bool connected() const { return state != "LISTEN" && state != "UNCONN"; }
  bool on_rings() const { return attached && out.route == Route::ring && in.route == Route::ring; }
};

// Of one process. ENOENT: it publishes none. ESRCH, EACCES: no such process, not ours to see. EPROTO: another version.
Result<std::vector<Socket>> read_sockets(int pid);

// Whether libviaduct-sockets.so is in the process, which then runs under `viaduct run`, with or without sockets.
bool has_library(int pid);

// Of every process that publishes some and that we may see, in the order of their numbers.
std::vector<Socket> read_all_sockets();

// The shared memory of an accelerated connection, opened to ask something of it.
class LiveStream {
 public:
  // ENOTCONN: the socket is not attached. ENOENT: no such socket there.
  static Result<LiveStream> open(int pid, int fd);

  // Both sides send over TCP from their next call on.
  void ask_back();
  bool returned() const;  // both do

 private:
  explicit LiveStream(Segment segment) : segment_(std::move(segment)) {}
  Segment segment_;
};

}  // namespace viaduct::sockets_view
