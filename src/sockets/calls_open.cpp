// Calls that make descriptors of other kinds: where there is none left, one of ours goes to the program.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdarg>

#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/table.hpp"

namespace viaduct::sockets {

using kernel::libc;

extern "C" {

#define VIADUCT_MODE(last)                                                               \
  va_list list;                                                                          \
  va_start(list, last);                                                                  \
  const auto mode = va_arg(list, mode_t); /* if there is one; libc looks at the flags */ \
  va_end(list)

VIADUCT_EXPORT int open(const char* path, int flags, ...) {
  VIADUCT_MODE(flags);
  return with_room([=] { return libc().open(path, flags, mode); });
}
VIADUCT_EXPORT int open64(const char* path, int flags, ...) {
  VIADUCT_MODE(flags);
  return with_room([=] { return libc().open64(path, flags, mode); });
}
VIADUCT_EXPORT int openat(int folder, const char* path, int flags, ...) {
  VIADUCT_MODE(flags);
  return with_room([=] { return libc().openat(folder, path, flags, mode); });
}
VIADUCT_EXPORT int openat64(int folder, const char* path, int flags, ...) {
  VIADUCT_MODE(flags);
  return with_room([=] { return libc().openat64(folder, path, flags, mode); });
}
#undef VIADUCT_MODE

VIADUCT_EXPORT int __open_2(const char* path, int flags) {
  return with_room([=] { return libc().__open_2(path, flags); });
}
VIADUCT_EXPORT int __open64_2(const char* path, int flags) {
  return with_room([=] { return libc().__open64_2(path, flags); });
}
VIADUCT_EXPORT int __openat_2(int folder, const char* path, int flags) {
  return with_room([=] { return libc().__openat_2(folder, path, flags); });
}
VIADUCT_EXPORT int __openat64_2(int folder, const char* path, int flags) {
  return with_room([=] { return libc().__openat64_2(folder, path, flags); });
}

VIADUCT_EXPORT FILE* fopen(const char* path, const char* mode) {
  return with_room([=] { return libc().fopen(path, mode); });
}
VIADUCT_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return with_room([=] { return libc().fopen64(path, mode); });
}
VIADUCT_EXPORT DIR* opendir(const char* path) {
  return with_room([=] { return libc().opendir(path); });
}

VIADUCT_EXPORT int pipe(int* ends) noexcept {
  return with_room([=] { return libc().pipe(ends); });
}
VIADUCT_EXPORT int pipe2(int* ends, int flags) noexcept {
  return with_room([=] { return libc().pipe2(ends, flags); });
}
VIADUCT_EXPORT int socketpair(int domain, int type, int protocol, int* ends) noexcept {
  return with_room([=] { return libc().socketpair(domain, type, protocol, ends); });
}
VIADUCT_EXPORT int eventfd(unsigned count, int flags) noexcept {
  return with_room([=] { return libc().eventfd(count, flags); });
}
VIADUCT_EXPORT int timerfd_create(clockid_t clock, int flags) noexcept {
  return with_room([=] { return libc().timerfd_create(clock, flags); });
}

}  // extern "C"

}  // namespace viaduct::sockets
