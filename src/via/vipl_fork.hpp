// What a forked child must not have of its parent: handles, which are unknown there, and connections, which would hide
// the parent's death from its peers.
#pragma once

namespace viaduct::vipl {

void hook_fork();  // before the first handle is given out

// Closed in every child before fork() returns there.
void close_in_children(int fd);
void keep_in_children(int fd);  // before closing it, or it may close somebody else's

}  // namespace viaduct::vipl
