// A socket that the server has for a client: the real one, what waits to be sent on it, and memory that waits for what
// comes. It belongs to one worker; all of it is done on that worker's thread.
//
//   made -> connecting -> connected -> closing     a client's own
//   made -> listening                              a listener
//   accepted: connected                            made by a listener
//
// closing: the client has closed it, or has gone, and something of it is still to be sent. It is nobody's then.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/segment.hpp"
#include "memnet/protocol.hpp"

namespace viaduct::memnet {

class Line;

// Something to be sent, in its turn. One that is a job tells its end.
struct SendOperation {
  enum class Kind { bytes, memory, file };
  Kind kind = Kind::bytes;
  bool is_job = false;
  bool more = false;
  std::uint32_t job = 0;
  std::uint64_t sent = 0;

  std::vector<std::byte> bytes;         // bytes: a copy. memory that is not mapped here: a piece of it
  std::size_t at = 0;                   // of these
  const std::byte* mapped = nullptr;    // memory: the rest of it
  std::shared_ptr<const Segment> held;  // the mapping
  std::uint64_t left = 0;               // memory, file: not fetched, or not sent
  std::uint32_t key = 0;                // memory that is not mapped here
  std::uint64_t address = 0;
  std::uint64_t fetching = 0;  // under way, by its cookie
  Fd file;
  std::uint64_t offset = 0;
};

// Memory that the program has posted for what comes.
struct ReceiveOperation {
  std::uint32_t job = 0;
  std::int32_t flags = 0;
  std::byte* mapped = nullptr;
  std::shared_ptr<const Segment> held;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t received = 0;  // with MSG_WAITALL
};

struct ServedSocket {
  ServedSocket(Line& owner, std::uint32_t its_number, Fd its_fd)
      : line(&owner), number(its_number), fd(std::move(its_fd)) {}

  Line* line;            // null: the client has gone
  bool closing = false;  // the client has closed it: its number may be another's
  std::uint32_t number;
  Fd fd;
  int family = 0;
  bool listening = false;
  bool connecting = false;
  bool failed_to_connect = false;
  bool readable = false;  // as far as is known: until the kernel says EAGAIN
  bool writable = false;
  bool hung_up = false;  // the kernel has said so: what is left of the input has an end
  bool push = true;
  bool told_readable = false;
  bool input_over = false;
  bool shut_after_sends = false;
  bool waits_for_room = false;  // in the line's list
  std::uint32_t connect_request = 0;
  std::uint32_t window = kReceiveWindow;
  std::uint32_t may_accept = 0;
  std::uint32_t uncredited = 0;
  std::uint32_t bytes_queued = 0;  // of `send`
  std::uint32_t send_jobs = 0;
  std::list<SendOperation> sends;
  std::list<ReceiveOperation> receives;
};

}  // namespace viaduct::memnet
