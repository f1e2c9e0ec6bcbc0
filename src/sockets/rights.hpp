// Connections that are sent to another process (SCM_RIGHTS) go back to the kernel first: the receiver may know nothing
// of rings.
#pragma once

#include <sys/socket.h>

namespace viaduct::sockets {

void release_passed(const msghdr* message);

}  // namespace viaduct::sockets
