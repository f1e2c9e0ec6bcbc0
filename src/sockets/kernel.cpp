#include "sockets/kernel.hpp"

#include <dlfcn.h>

namespace viaduct::sockets::kernel::detail {

constinit Calls calls{};
constinit bool resolved = false;

// Twice in two threads is harmless: both store the same.
void resolve() {
#define VIADUCT_RESOLVE(result, name, parameters) \
  calls.name = reinterpret_cast<result(*) parameters>(::dlsym(RTLD_NEXT, #name));
  VIADUCT_KERNEL_CALLS(VIADUCT_RESOLVE)
#undef VIADUCT_RESOLVE
  resolved = true;
}

}  // namespace viaduct::sockets::kernel::detail
