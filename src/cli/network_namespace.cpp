#include "cli/network_namespace.hpp"

#include <sched.h>

#include <cerrno>

#include "cli/child_process.hpp"

namespace viaduct::cli {

int try_in_own_network(const std::function<int()>& attempt) {
  const auto entered = [&] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? attempt() : errno; };
  return try_in_child(entered, std::chrono::seconds(3));
}

}  // namespace viaduct::cli
