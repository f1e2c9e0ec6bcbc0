// Every way to make a child that has its own copy of our memory.
#pragma once

#include <sys/types.h>

namespace viaduct::sockets {

void before_fork();
void in_forked_child();
void after_fork_in_parent(pid_t child);  // or what fork said instead of it

// `make` is such a call, of which pthread_atfork() does not know.
template <class Make>
auto forking(Make&& make) {
  before_fork();
  const auto child = make();
  if (child == 0)
    in_forked_child();
  else
    after_fork_in_parent(static_cast<pid_t>(child));
  return child;
}

}  // namespace viaduct::sockets
