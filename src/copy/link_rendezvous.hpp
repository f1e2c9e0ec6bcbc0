// How two processes find each other: a name in the abstract space of UNIX sockets, "\0viaduct/adma/UID/NAME".
//
// Nothing appears in the file system and nothing is left behind. The name carries the user, and both ends check with
// the kernel that the other is that user.
#pragma once

#include <string_view>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace viaduct::copy {

Result<Fd> listen_on(std::string_view name);                      // EADDRINUSE, EINVAL, ENAMETOOLONG
Result<Fd> accept_from(int listener, Deadline deadline);          // ETIMEDOUT, EACCES
Result<Fd> connect_to(std::string_view name, Deadline deadline);  // waits for a listener to appear; ETIMEDOUT, EACCES

}  // namespace viaduct::copy
