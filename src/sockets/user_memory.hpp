// Whether what a program points to is there. The kernel says EFAULT where it is not; who reads it before the kernel
// does would end the program instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sockets/thread_state.hpp"

namespace viaduct::sockets {

[[gnu::cold, gnu::noinline]] bool ask_whether_readable(std::uintptr_t first, std::size_t bytes);

// Most of what calls are given lies on the stack, a little above this, or where the last one's did. Keeps errno.
[[gnu::always_inline]] inline bool is_readable(const void* at, std::size_t bytes) {
  constexpr std::uintptr_t kOfCallers = 4096, kPageOfMemory = 4096;
  const auto first = reinterpret_cast<std::uintptr_t>(at);
  const std::uintptr_t above = first - reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (above < kOfCallers && bytes <= kOfCallers - above) [[likely]]
    return true;
  const std::uintptr_t page = first / kPageOfMemory;
  if (page == this_thread.readable_page && page != 0 && bytes <= kPageOfMemory - first % kPageOfMemory) return true;
  return ask_whether_readable(first, bytes);
}

template <class T>
[[gnu::always_inline]] inline bool is_readable(const T* at) {
  return is_readable(at, sizeof *at);
}
// Null is for the call to judge.
template <class T>
[[gnu::always_inline]] inline bool is_readable_or_null(const T* at) {
  return at == nullptr || is_readable(at);
}

}  // namespace viaduct::sockets
