// Why a connection is not on the ring, for `viaduct ls`.
#pragma once

#include <cstdint>

namespace viaduct::sockets {

enum class Why : std::uint32_t {
  accelerated,
  young,           // it has not proved long-lived yet
  waiting,         // the other side has not come: not accelerated, another network namespace, or not busy yet
  not_connected,   // listening, or not connected
  remote,          // the peer is another host
  other_user,      // and VIADUCT_PEERS of one of them does not allow it
  held_elsewhere,  // several processes hold it
  stdio,           // it is standard input or output: libc reads and writes it without asking
  passed,          // sent to, or got from, another process
  handed_back,
  no_memory,
  no_descriptors,
  wrong_version,  // the other side's library is of another version
  shared_epoll,   // it is in an epoll set that several processes use
  forbidden,      // a sandbox refused what is needed
  switched_off,
  no_counts,        // TCP_INFO does not tell byte counts, or they do not agree
  kernel_feature,   // SIGIO, MSG_ZEROCOPY, time stamps, kTLS, io_uring: the kernel must carry the bytes
  stalled,          // the ring was full and nobody read: TCP holds more
  other_processes,  // the peer is in another PID namespace: neither can tell whether a thread of the other lives
  peer_keeps_tcp,   // the other side has said no, for a reason of its own
  dearer,           // for now: nearly all messages wake somebody, and cost more than over TCP
};

constexpr const char* words(Why why) {
  switch (why) {
    case Why::accelerated:
      return "accelerated";
    case Why::young:
      return "too few operations so far";
    case Why::waiting:
      return "the other side has not come (not accelerated, or not busy yet)";
    case Why::not_connected:
      return "not connected";
    case Why::remote:
      return "the peer is another host";
    case Why::other_user:
      return "the peer belongs to another user (to share memory: `viaduct run --peers any`, on both sides)";
    case Why::held_elsewhere:
      return "several processes hold it";
    case Why::stdio:
      return "standard input or output, which libc uses by itself";
    case Why::passed:
      return "passed between processes";
    case Why::handed_back:
      return "handed back";
    case Why::no_memory:
      return "no shared memory";
    case Why::no_descriptors:
      return "no descriptor left (ulimit -n)";
    case Why::wrong_version:
      return "the other side runs another version of Viaduct";
    case Why::shared_epoll:
      return "in an epoll set that several processes share";
    case Why::forbidden:
      return "a sandbox forbids what is needed";
    case Why::switched_off:
      return "switched off (VIADUCT_SOCKETS)";
    case Why::no_counts:
      return "the kernel's byte counts cannot be relied on (it is old, or drops segments on their way out)";
    case Why::kernel_feature:
      return "it uses what only the kernel can do (SIGIO, zero copy, time stamps, TLS, io_uring)";
    case Why::stalled:
      return "the ring was full for long and nobody read";
    case Why::other_processes:
      return "the peer is in another PID namespace";
    case Why::dearer:
      return "most messages wake somebody, and cost more than over TCP";
    case Why::peer_keeps_tcp:
      return "the other side keeps it on TCP (`viaduct ls` of that process says why)";
  }
  return "?";
}

}  // namespace viaduct::sockets
