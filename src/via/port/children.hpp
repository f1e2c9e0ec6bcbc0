// Descriptors that a forked child has no use for: sockets whose end would be held open by it. They are closed in
// children.
//
// Thread safety: everything may be called from any thread.
#pragma once

namespace viaduct::via {

void close_in_children(int fd);
void keep_in_children(int fd);  // before it is closed here, or given to somebody who cares for himself

}  // namespace viaduct::via
