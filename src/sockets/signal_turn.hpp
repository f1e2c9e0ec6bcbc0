// Signals that only the mask of a wait lets in (epoll_pwait, ppoll, pselect). The kernel delivers them where it would
// sleep. Who finds what it waits for by looking at rings never does, and lets them in now and then.
#pragma once

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <cstdint>

#include "sockets/kernel.hpp"
#include "sockets/order.hpp"

namespace viaduct::sockets {

inline thread_local std::uint64_t signals_let_in [[gnu::tls_model("initial-exec")]] = 0;  // the moment of the last time

// To be asked by a wait that has found nothing yet, and may last. True, and EINTR: a handler has run.
inline bool lets_signal_in(const sigset_t* mask) {
  if (mask == nullptr) [[likely]]
    return false;
  const std::uint64_t now = moment_now();
  if (now - signals_let_in < kTurnMoments) return false;
  signals_let_in = now;
  const timespec at_once{};
  return kernel::libc().ppoll(nullptr, 0, &at_once, mask) < 0 && errno == EINTR;
}

}  // namespace viaduct::sockets
