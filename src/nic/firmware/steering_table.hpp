// Which receive queue a number belongs to: 256 entries, found by its lower eight bits. Anybody may read an entry at any
// time; an old value only means that a frame still goes to the queue it went to before.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace viaduct::nic {

class SteeringTable {
 public:
  static constexpr unsigned kEntries = 256;

  explicit SteeringTable(unsigned queues) { spread(queues); }

  unsigned queue_of(unsigned number) const { return queue_[number % kEntries].load(std::memory_order_relaxed); }
  void set(unsigned number, unsigned queue) {
    queue_[number % kEntries].store(static_cast<std::uint8_t>(queue), std::memory_order_relaxed);
  }
  // Entry modulo queues.
  void spread(unsigned queues) {
    for (unsigned i = 0; i < kEntries; ++i) set(i, i % queues);
  }

 private:
  std::array<std::atomic<std::uint8_t>, kEntries> queue_{};
};

}  // namespace viaduct::nic
