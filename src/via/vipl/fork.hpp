// What a forked child must not have of its parent: handles, which are unknown there.
#pragma once

namespace viaduct::vipl {

void hook_fork();  // before the first handle is given out

}  // namespace viaduct::vipl
