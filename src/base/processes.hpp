// The processes of this machine, as far as /proc shows them.
#pragma once

#include <vector>

namespace viaduct {

std::vector<int> all_processes();  // in order of their numbers; empty: no /proc

}  // namespace viaduct
