// longjmp(): a thread that jumps out of a signal handler may leave a stretch that it was in the middle of. What it held
// there is its own to take again, and not that of code which will go on (StreamLock); whom it was about to wake is
// woken.
#include <setjmp.h>

#include <cstdint>

#include "sockets/cancellation.hpp"
#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/retired.hpp"
#include "sockets/sleep_on_stack.hpp"
#include "sockets/stream.hpp"
#include "sockets/stream_lock.hpp"
#include "sockets/wait.hpp"

namespace viaduct::sockets {

namespace {

using Jump = void (*)(__jmp_buf_tag*, int);

// Where the stack will be afterwards: a handler may also jump within itself, and what it has interrupted goes on. Glibc
// keeps that number in disguise. Elsewhere: as if everything was left.
const void* stack_after(const __jmp_buf_tag* target) {
#if defined(__x86_64__) && defined(__GLIBC__)
  constexpr int kStackPointer = 6;
  auto disguised = static_cast<std::uintptr_t>(target->__jmpbuf[kStackPointer]);
  asm("ror $17, %0\n\txor %%fs:0x30, %0" : "+r"(disguised) : : "cc");
  return reinterpret_cast<const void*>(disguised);
#else
  (void)target;
  return reinterpret_cast<const void*>(UINTPTR_MAX);
#endif
}

[[noreturn]] void jump(Jump how, __jmp_buf_tag* target, int value) {
  const void* const stack = stack_after(target);
  HeldLock::jump(stack);
  AtMemory::jump(stack);
  SleepOnStack::jump(stack);
  finish_waking(stack);
  Uncancelled::jump(stack);
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
