// What happened while a lock was held and is told to others once it is released: a program's handler may call back into
// VIPL, and waking somebody is a system call.
#pragma once

#include <viaduct/vipl.h>

#include <vector>

namespace viaduct::vipl {

struct Effects {
  bool of_a_wait = false;  // the caller goes on to wait: it leads again, or hands leadership on when it leaves
  bool wake = false;       // somebody sleeps who may want to know
  std::vector<VIP_ERROR_DESCRIPTOR> errors{};
};

}  // namespace viaduct::vipl
