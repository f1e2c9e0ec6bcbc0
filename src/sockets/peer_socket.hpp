// The other end's socket, as a descriptor of this process.
#pragma once

#include <sys/types.h>

#include "base/fd.hpp"

namespace viaduct::sockets {

// Where this process may look into that one (as a debugger may). Empty: it may not, or there is no such socket.
Fd borrow_peer_socket(pid_t pid, int socket);

}  // namespace viaduct::sockets
