// The library's life inside a process: start, fork, end.
#include "sockets/process.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>

#include "base/clock.hpp"
#include "base/copy_loop.hpp"
#include "base/spin.hpp"
#include "sockets/cancellation.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/event_bell.hpp"
#include "sockets/export.hpp"
#include "sockets/inherit.hpp"
#include "sockets/kernel.hpp"
#include "sockets/program_loader.hpp"
#include "sockets/settings.hpp"
#include "sockets/table.hpp"
#include "sockets/uring.hpp"

namespace viaduct::sockets {

namespace {

pid_t parent = 0;  // of the next child

// A process that is killed leaves its peers to guess whether it had read everything.
__attribute__((destructor(200))) void finish() {
  const Uncancelled here(Uncancelled::Sleeps::too);
  table_at_exit();
}

__attribute__((constructor(200))) void start() {
  (void)kernel::libc();
  (void)own_pid();
  (void)Clock::steady();  // what is made at its first use must not be so in a signal handler
  (void)relaxing_is_brief();
  prepare_copies();
  prepare_bells();
  remember_own_loader();
  ::pthread_atfork(before_fork, nullptr, in_forked_child);
  ::at_quick_exit(finish);
  if (!settings().enabled) return;
  adopt_inherited();
}

// What a clone with its own memory begins with.
struct Begin {
  int (*body)(void*);
  void* argument;
};
int begin_clone(void* given) {
  const Begin begin = *static_cast<const Begin*>(given);
  in_forked_child();
  return begin.body(begin.argument);
}

}  // namespace

void before_fork() {
  parent = own_pid();
  table_before_fork();
  sets_before_fork();
}
void in_forked_child() {
  table_after_fork_in_child();
  rings_after_fork_in_child();
  sets_after_fork_in_child(parent);
  departures_after_fork();
  shells_after_fork();
}
void after_fork_in_parent(pid_t child) {
  if (child < 0) table_after_failed_fork();
  sets_after_fork_in_parent(child);
}

extern "C" {

VIADUCT_EXPORT pid_t fork() noexcept {
  const pid_t child = kernel::libc().fork();
  after_fork_in_parent(child);
  return child;
}

VIADUCT_EXPORT pid_t _Fork() noexcept {
  return forking([] { return kernel::libc()._Fork(); });
}

VIADUCT_EXPORT int clone(int (*body)(void*), void* stack, int flags, void* argument, ...) noexcept {
  va_list list;
  va_start(list, argument);
  void *const parent_number = va_arg(list, void*), *const storage = va_arg(list, void*),
              *const child_number = va_arg(list, void*);
  va_end(list);
  if ((flags & CLONE_VM) != 0)
    return kernel::libc().clone(body, stack, flags, argument, parent_number, storage, child_number);
  before_fork();
  Begin begin{body, argument};
  const int child = kernel::libc().clone(begin_clone, stack, flags, &begin, parent_number, storage, child_number);
  after_fork_in_parent(child);
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
