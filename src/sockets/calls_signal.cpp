// The ways to change a signal's handler: how a sleep of ours goes on behind one depends on all of them.
#include <signal.h>

#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/signal_handlers.hpp"

namespace viaduct::sockets {

namespace {

// Before it takes effect nobody has to know, afterwards everybody does.
template <class Result>
Result changed(Result result) {
  note_handler_changed();
  return result;
}

}  // namespace

extern "C" {

VIADUCT_EXPORT int sigaction(int number, const struct sigaction* action, struct sigaction* former) noexcept {
  const int result = kernel::libc().sigaction(number, action, former);
  return action != nullptr ? changed(result) : result;
}
VIADUCT_EXPORT int __sigaction(int number, const struct sigaction* action, struct sigaction* former) {
  return sigaction(number, action, former);
}
VIADUCT_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  return changed(kernel::libc().signal(number, handler));
}
VIADUCT_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) {
  return signal(number, handler);
}
VIADUCT_EXPORT sighandler_t ssignal(int number, sighandler_t handler) noexcept {
  return signal(number, handler);
}
VIADUCT_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  return changed(kernel::libc().__sysv_signal(number, handler));
}
VIADUCT_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  return __sysv_signal(number, handler);
}
VIADUCT_EXPORT sighandler_t sigset(int number, sighandler_t handler) noexcept {
  return changed(kernel::libc().sigset(number, handler));
}
VIADUCT_EXPORT int siginterrupt(int number, int flag) noexcept {
  return changed(kernel::libc().siginterrupt(number, flag));
}

}  // extern "C"

}  // namespace viaduct::sockets
