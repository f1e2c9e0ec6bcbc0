// Memory of connections that were closed: another thread may be inside it for a moment longer.
#pragma once

#include <cstddef>

namespace viaduct::sockets {

void retire_memory(void* base, std::size_t size);
void retired_after_fork_in_child();

}  // namespace viaduct::sockets
