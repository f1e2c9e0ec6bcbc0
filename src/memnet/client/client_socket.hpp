// A socket as the program sees it. Under the client's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "memnet/protocol.hpp"

namespace viaduct::memnet {

class ClientLine;
struct Job;

struct ClientSocket {
  ClientLine* line = nullptr;  // null: the server has gone
  std::uint32_t number = 0;    // on the line
  int descriptor = -1;         // -1: not accepted yet, or closed
  int family = 0;
  bool nonblocking = false;
  bool listening = false;
  bool connecting = false;
  bool connected = false;
  bool input_over = false;   // nothing will come any more
  bool output_over = false;  // nothing can be sent any more
  bool failed = false;       // the connection has ended with an error
  int error = 0;             // of that, or of connecting; told once
  std::uint32_t connect_request = 0;

  std::uint32_t outstanding = 0;  // bytes of `send` in the window
  std::uint32_t send_jobs = 0;

  bool push = true;          // the server pushes; false: it has confirmed that it does not
  bool quieting = false;     // it was asked not to
  std::uint32_t quiets = 0;  // answers to that under way
  bool readable_hint = false;
  std::vector<std::byte> stash;  // what was pushed and not taken
  std::size_t stash_at = 0;
  std::uint32_t untold = 0;  // taken, and not told to the server
  std::list<Job*> held;      // receives that wait here
  std::uint32_t posted = 0;  // receives that wait there

  struct Arrived {
    std::shared_ptr<ClientSocket> socket;
    WireAddress peer;
  };
  std::list<Arrived> backlog;
  std::list<Job*> accepts;
  std::uint32_t accepts_untold = 0;
  std::uint32_t accepts_granted = 0;

  std::int64_t receive_timeout_ns = -1, send_timeout_ns = -1;  // -1: none
  bool watched = false;
  bool in_events = false;
  void* context = nullptr;

  std::size_t stashed() const { return stash.size() - stash_at; }
  WireAddress peer;  // of one that was accepted; length 0: ask
};

}  // namespace viaduct::memnet
