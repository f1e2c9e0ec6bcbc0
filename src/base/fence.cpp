#include "base/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace viaduct::fence {

namespace {

bool register_process() {
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  constexpr long needed = MEMBARRIER_CMD_GLOBAL_EXPEDITED | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED |
                          MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
  if (commands < 0 || (commands & needed) != needed) return false;
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
         ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

bool asymmetric() {
  static const bool registered = register_process();  // survives fork with the address space; exec starts anew
  return registered;
}

void heavy() {
  full();
  if (!asymmetric()) return;
  // The global command trusts a note kept per processor, and registering does not reach a processor that idles with our
  // address space still loaded: a thread that resumes there is passed over until another program has run in between.
  // The private command looks at what really runs: exact within this process. Between processes the Waiter's second
  // look makes up for it.
  (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

}  // namespace viaduct::fence
