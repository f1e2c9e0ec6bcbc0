// The calling thread's number, without a system call after the first.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace viaduct::sockets {

inline thread_local std::uint32_t tls_thread_mark [[gnu::tls_model("initial-exec")]] = 0;

[[gnu::cold, gnu::noinline]] inline std::uint32_t ask_for_thread_mark() {
  return tls_thread_mark = static_cast<std::uint32_t>(::syscall(SYS_gettid));
}
[[gnu::always_inline]] inline std::uint32_t thread_mark() {
  const std::uint32_t known = tls_thread_mark;
  return known != 0 ? known : ask_for_thread_mark();
}

// Of whatever process, or never was one. A number that is used again is taken for the one that was.
inline bool thread_is_gone(std::uint32_t mark) {
  return ::syscall(SYS_tkill, mark, 0) != 0 && (errno == ESRCH || errno == EINVAL);
}

// In a forked child.
inline void forget_thread_mark() {
  tls_thread_mark = 0;
}

}  // namespace viaduct::sockets
