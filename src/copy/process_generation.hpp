// Which process this is, for objects that do not survive fork, and descriptors that must not.
//
// A forked child shares its parent's descriptors: a connection it holds open would hide the parent's death from the
// peer. Descriptors named here are closed in every child before fork() returns there.
//
// Thread safety: everything here may be called from any thread.
#pragma once

#include <cstdint>

namespace viaduct::copy {

// 1 in the process that first asked, one more in each child forked since: an object of another generation is the
// parent's. Costs one load.
std::uint32_t process_generation();

void close_in_children(int fd);
void keep_in_children(int fd);  // before closing it, or it may close somebody else's

}  // namespace viaduct::copy
