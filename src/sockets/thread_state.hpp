// What this library keeps of the calling thread, in one place: a call that needs several of these finds them by one
// address.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace viaduct::sockets {

struct Connection;
struct HeldLock;
class AtMemory;

struct ThreadState {
  std::uint32_t mark = 0;               // its number; 0: not asked for yet
  const AtMemory* at_memory = nullptr;  // where it is at the memory of some connection, the innermost: on its stack
  HeldLock* locks = nullptr;            // stream locks that it holds, or is about to, the innermost first: on its stack
  Connection* last_sent_on = nullptr;   // whose ring it has last sent on, and used TCP for nothing since (order.hpp)
  std::uintptr_t readable_page = 0;     // where it was last found that the program's memory can be read
};
inline thread_local ThreadState this_thread [[gnu::tls_model("initial-exec")]];

[[gnu::cold, gnu::noinline]] inline std::uint32_t ask_for_thread_mark() {
  return this_thread.mark = static_cast<std::uint32_t>(::syscall(SYS_gettid));
}
// The calling thread's number, without a system call after the first.
[[gnu::always_inline]] inline std::uint32_t thread_mark() {
  const std::uint32_t known = this_thread.mark;
  return known != 0 ? known : ask_for_thread_mark();
}

// Of whatever process, or never was one. A number that is used again is taken for the one that was.
inline bool thread_is_gone(std::uint32_t mark) {
  return ::syscall(SYS_tkill, mark, 0) != 0 && (errno == ESRCH || errno == EINVAL);
}

// In a forked child.
inline void forget_thread_mark() {
  this_thread.mark = 0;
}

}  // namespace viaduct::sockets
