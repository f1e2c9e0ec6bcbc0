// longjmp(): a thread that jumps out of a signal handler may leave a stretch that it was in the middle of. What it held
// there is its own to take again, and not that of code which will go on (StreamLock); whom it was about to wake is
// woken.
#include <setjmp.h>

#include "sockets/cancellation.hpp"
#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/stream.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

using Jump = void (*)(__jmp_buf_tag*, int);

[[noreturn]] void jump(Jump how, __jmp_buf_tag* target, int value) {
  StreamLock::jump();
  finish_waking();
  Uncancelled::leave();
  how(target, value);
  __builtin_unreachable();
}

}  // namespace

extern "C" {

VIADUCT_EXPORT void longjmp(__jmp_buf_tag* target, int value) noexcept(false) {
  jump(kernel::libc().longjmp, target, value);
}
VIADUCT_EXPORT void _longjmp(__jmp_buf_tag* target, int value) noexcept(false) {
  jump(kernel::libc()._longjmp, target, value);
}
VIADUCT_EXPORT void siglongjmp(__jmp_buf_tag* target, int value) noexcept(false) {
  jump(kernel::libc().siglongjmp, target, value);
}
VIADUCT_EXPORT void __longjmp_chk(__jmp_buf_tag* target, int value) noexcept(false) {
  jump(kernel::libc().__longjmp_chk, target, value);
}

}  // extern "C"

}  // namespace viaduct::sockets
