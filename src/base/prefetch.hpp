// Asking for a cache line ahead of time. Never faults, whatever the address.
#pragma once

namespace viaduct {

// To be written: the other core loses it now instead of then. The compiler's own prefetch asks for it only to read
// unless it is told that the processor can do more; one that cannot ignores the instruction.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" : : "r"(line));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace viaduct
