// Waiting for data and for room: spin within what the connection has learned, then sleep in the kernel.
#pragma once

#include "base/clock.hpp"
#include "sockets/bell.hpp"
#include "sockets/connection.hpp"
#include "sockets/event_bell.hpp"

namespace viaduct::sockets {

// On a core of its own, and the peer not on the same one?
bool spinning_makes_sense(Connection& connection);

// The kernel's answer, waited for until then.
int poll_until(int fd, short events, Deadline deadline);

// SO_RCVTIMEO, SO_SNDTIMEO: from now on.
Deadline time_limit(const Connection& connection, int fd, int option);

// Where several sleep on one doorbell, or for room while somebody else reads, whoever misses it looks by itself so
// often; in a receive that goes on waiting less and less often.
constexpr int kSharedNapMs = 5;

class ReceiveWait {
 public:
  ReceiveWait(Connection& connection, int fd)
      : connection_(connection), fd_(fd), generation_(connection.generation.load()) {}
  // By another thread or a signal handler, since this was made; and perhaps used again.
  bool was_closed() const { return connection_.generation.load() != generation_; }
  // False: errno says why (EINTR, EAGAIN after SO_RCVTIMEO). True: look again. `has_some`: a signal ends the call with
  // what there is, whatever its handler says.
  bool for_data(bool has_some);

 private:
  bool spin();
  bool sleep_in_recv();
  bool sleep_in_poll(bool restartable, const BellOfThread& bell);
  Connection& connection_;
  int fd_;
  std::uint32_t generation_;
  Deadline limit_ = Deadline::never();
  bool limit_known_ = false;
  std::uint64_t nap_ns_ = std::uint64_t{kSharedNapMs} * 1'000'000;
  bool only_bell_rang_ = false;  // the last sleep: the kernel had nothing to say of the socket
};

class SendWait {
 public:
  SendWait(Connection& connection, int fd) : connection_(connection), fd_(fd) {}
  // The same, of room.
  bool for_room(bool has_some);
  Deadline limit() const { return limit_; }  // of the call, once it has waited

 private:
  Connection& connection_;
  int fd_;
  Deadline limit_ = Deadline::never();
  bool limit_known_ = false;
};

// There is more room from now on, though nobody has read anything. False: there is not.
bool grow_ring(Connection& connection);

// For those who wait for room in poll or epoll: how long they may sleep without a look, in milliseconds. And the look:
// where nobody has read anything for a while sending goes back to TCP, which takes more than the ring.
int nap_for_room(const Connection& connection);
void relieve_stalled(Connection& connection, int fd);

}  // namespace viaduct::sockets
