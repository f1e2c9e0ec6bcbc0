// Asymmetric fences: the side that runs often pays nothing, the side that is about to sleep pays for both.
//
// heavy() makes every registered process pass a full barrier (membarrier, GLOBAL_EXPEDITED), so that a light() on the
// other side needs only to stop the compiler. It holds between processes only when the light side is registered and the
// heavy side really uses membarrier; each side of a WaitWord therefore says what it does (see wait_word.hpp).
#pragma once

#include <atomic>

namespace viaduct::fence {

// Registers this process on the first call; false where the kernel or a sandbox refuses membarrier.
bool asymmetric();

// A full barrier here and, where asymmetric(), in every registered process.
void heavy();

inline void full() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void compiler_only() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace viaduct::fence
