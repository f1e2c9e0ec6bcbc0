// poll() over descriptors of all kinds: accelerated connections by their rings, the others by the kernel.
#pragma once

#include <poll.h>
#include <signal.h>

#include "base/clock.hpp"
#include "sockets/few_or_many.hpp"

namespace viaduct::sockets {

struct Connection;

using PollEntries = FewOrMany<pollfd, 64>;

// Whether there is anything that the kernel alone would judge wrong.
bool any_accelerated(const pollfd* entries, nfds_t count);

int poll_wait(pollfd* entries, nfds_t count, Deadline deadline, const sigset_t* mask);

// While the kernel's poll sleeps on connections that are not attached yet: such a sleeper is not rung for, so the peer
// must not use the ring before it has woken up.
class RawPolling {
 public:
  RawPolling(const pollfd* entries, nfds_t count);
  ~RawPolling();
  RawPolling(const RawPolling&) = delete;
  RawPolling& operator=(const RawPolling&) = delete;

 private:
  const pollfd* entries_;
  FewOrMany<Connection*, 64> counted_;  // of each entry; null: none
  nfds_t count_;
};

}  // namespace viaduct::sockets
