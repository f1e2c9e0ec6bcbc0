// Whether something that needs a network privilege is to be had in a network namespace of one's own (unshare -Urn).
#pragma once

#include <functional>

namespace viaduct::cli {

// The errno (0: it worked) of `attempt` in a child that has entered new user and network namespaces.
int try_in_own_network(const std::function<int()>& attempt);

}  // namespace viaduct::cli
