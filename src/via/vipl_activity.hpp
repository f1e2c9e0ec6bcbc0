// Says to the peer's adapter that this VI copies from or to its memory.
#pragma once

#include "via/vipl_table.hpp"

namespace viaduct::vipl {

// S1 of vipl_table.hpp: whoever deregisters waits for us, or we see that it has.
class Activity {
 public:
  explicit Activity(ViWords& words) : word_(words.activity) {
    word_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Activity() { word_.fetch_add(1, std::memory_order_release); }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  std::atomic<std::uint32_t>& word_;
};

}  // namespace viaduct::vipl
