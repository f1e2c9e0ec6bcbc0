// poll() over descriptors of all kinds: accelerated connections by their rings, the others by the kernel.
#pragma once

#include <poll.h>
#include <signal.h>

#include "base/clock.hpp"

namespace viaduct::sockets {

struct Connection;

// Room for entries: a few are on the stack.
class PollEntries {
 public:
  explicit PollEntries(nfds_t count);
  ~PollEntries();
  PollEntries(const PollEntries&) = delete;
  PollEntries& operator=(const PollEntries&) = delete;
  pollfd* get() { return entries_; }  // null: no memory

 private:
  static constexpr nfds_t kOnStack = 64;
  pollfd small_[kOnStack];
  pollfd* entries_ = small_;
  std::size_t size_;
};

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
  static constexpr nfds_t kFew = 64;
  const pollfd* entries_;
  nfds_t count_;
  Connection* few_[kFew] = {};
  Connection** counted_ = few_;  // of each entry; null: none
};

}  // namespace viaduct::sockets
