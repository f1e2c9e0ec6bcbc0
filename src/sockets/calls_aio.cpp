// Asynchronous reading and writing: libc does it on threads of its own, without asking anybody. So the connection goes
// back to the kernel first.
#include <aio.h>

#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/table.hpp"

namespace viaduct::sockets {

using kernel::libc;

namespace {

template <class Control>
void leave_to_libc(const Control* control) {
  if (control == nullptr) return;
  leave_to_kernel(control->aio_fildes);
}

template <class Control>
void leave_all_to_libc(Control* const* list, int count) {
  for (int i = 0; i < count; ++i)
    if (list[i] != nullptr && list[i]->aio_lio_opcode != LIO_NOP) leave_to_libc(list[i]);
}

}  // namespace

extern "C" {

VIADUCT_EXPORT int aio_read(aiocb* control) noexcept {
  leave_to_libc(control);
  return libc().aio_read(control);
}
VIADUCT_EXPORT int aio_read64(aiocb64* control) noexcept {
  leave_to_libc(control);
  return libc().aio_read64(control);
}
VIADUCT_EXPORT int aio_write(aiocb* control) noexcept {
  leave_to_libc(control);
  return libc().aio_write(control);
}
VIADUCT_EXPORT int aio_write64(aiocb64* control) noexcept {
  leave_to_libc(control);
  return libc().aio_write64(control);
}
VIADUCT_EXPORT int lio_listio(int mode, aiocb* const* list, int count, sigevent* event) noexcept {
  leave_all_to_libc(list, count);
  return libc().lio_listio(mode, list, count, event);
}
VIADUCT_EXPORT int lio_listio64(int mode, aiocb64* const* list, int count, sigevent* event) noexcept {
  leave_all_to_libc(list, count);
  return libc().lio_listio64(mode, list, count, event);
}

}  // extern "C"

}  // namespace viaduct::sockets
