// The library's life inside a process: start, fork, end.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/export.hpp"
#include "sockets/inherit.hpp"
#include "sockets/kernel.hpp"
#include "sockets/program_loader.hpp"
#include "sockets/settings.hpp"
#include "sockets/table.hpp"
#include "sockets/uring.hpp"

namespace viaduct::sockets {

namespace {

pid_t forking = 0;

void before_fork() {
  forking = own_pid();
  table_before_fork();
}
void in_child() {
  table_after_fork_in_child();
  rings_after_fork_in_child();
  sets_after_fork_in_child(forking);
  departures_after_fork();
  shells_after_fork();
}

// A process that is killed leaves its peers to guess whether it had read everything.
__attribute__((destructor(200))) void finish() {
  const Uncancelled here(Uncancelled::Sleeps::too);
  table_at_exit();
}

__attribute__((constructor(200))) void start() {
  (void)kernel::libc();
  (void)own_pid();
  (void)Clock::steady();  // what is made at its first use must not be so in a signal handler
  remember_own_loader();
  ::pthread_atfork(before_fork, nullptr, in_child);
  ::at_quick_exit(finish);
  if (!settings().enabled) return;
  adopt_inherited();
}

}  // namespace

extern "C" {

VIADUCT_EXPORT pid_t fork() noexcept {
  const pid_t child = kernel::libc().fork();
  if (child < 0) table_after_failed_fork();
  return child;
}

VIADUCT_EXPORT void _exit(int status) {
  finish();
  kernel::libc()._exit(status);
  __builtin_unreachable();
}

VIADUCT_EXPORT void _Exit(int status) noexcept {
  _exit(status);
}

}  // extern "C"

}  // namespace viaduct::sockets
