// stdio on a socket. libc reads and writes its streams without asking anybody, so a stream on a connection gets reading
// and writing functions of ours; its descriptor is the socket, as ever.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sockets/export.hpp"
#include "sockets/kernel.hpp"
#include "sockets/table.hpp"

namespace viaduct::sockets {

using kernel::libc;

namespace {

int number(void* cookie) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie));
}

ssize_t read_stream(void* cookie, char* buffer, size_t size) {
  return ::read(number(cookie), buffer, size);
}

// As libc does it: all of it, or as much as there was before an error.
ssize_t write_stream(void* cookie, const char* buffer, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t now = ::write(number(cookie), buffer + done, size - done);
    if (now < 0) break;
    done += static_cast<size_t>(now);
  }
  return static_cast<ssize_t>(done);
}

int close_stream(void* cookie) {
  return ::close(number(cookie));
}

int print(int fd, const char* format, va_list arguments) {
  char* text = nullptr;
  const int size = ::vasprintf(&text, format, arguments);
  if (size < 0) return -1;
  void* const cookie = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  const bool whole = write_stream(cookie, text, static_cast<size_t>(size)) == size;
  const int kept = errno;
  ::free(text);
  errno = kept;
  return whole ? size : -1;
}

}  // namespace

extern "C" {

VIADUCT_EXPORT FILE* fdopen(int fd, const char* mode) noexcept {
  const Connection* const connection = find_connection(fd);
  if (connection == nullptr || connection->life.load() == Life::plain || std::strchr("rwa", mode[0]) == nullptr)
    return libc().fdopen(fd, mode);
  const cookie_io_functions_t functions{read_stream, write_stream, nullptr, close_stream};
  FILE* const stream = ::fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), mode, functions);
  if (stream != nullptr) stream->_fileno = fd;
  return stream;
}

VIADUCT_EXPORT int vdprintf(int fd, const char* format, va_list arguments) {
  if (find_connection(fd) == nullptr) return libc().vdprintf(fd, format, arguments);
  return print(fd, format, arguments);
}

VIADUCT_EXPORT int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int size = vdprintf(fd, format, arguments);
  va_end(arguments);
  return size;
}

VIADUCT_EXPORT int __vdprintf_chk(int fd, int flag, const char* format, va_list arguments) {
  if (find_connection(fd) == nullptr) return libc().__vdprintf_chk(fd, flag, format, arguments);
  return print(fd, format, arguments);
}

VIADUCT_EXPORT int __dprintf_chk(int fd, int flag, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int size = __vdprintf_chk(fd, flag, format, arguments);
  va_end(arguments);
  return size;
}

}  // extern "C"

}  // namespace viaduct::sockets
