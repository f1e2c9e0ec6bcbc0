// Time for counting and coalescing: the processor's own counter where there is one, since a handler may take less time
// than asking the kernel's clock. An injected clock is asked as it is.
#pragma once

#include <cstdint>

#include "base/clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace viaduct::nic {

class Ticks {
 public:
  explicit Ticks(const Clock* injected);  // null: the machine's time

  std::uint64_t now_ns() const {
#if defined(__x86_64__)
    if (injected_ == nullptr)
      return static_cast<std::uint64_t>(static_cast<unsigned __int128>(__rdtsc() - start_) * scale_ >> 32);
#endif
    return clock_.now_ns() - start_;
  }

 private:
  const Clock* injected_;
  const Clock& clock_;
  std::uint64_t start_ = 0;
  std::uint64_t scale_ = 0;  // ns per tick, times 2^32
};

}  // namespace viaduct::nic
