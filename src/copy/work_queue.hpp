// A bounded queue of operations for threads of one process: many submitters, many workers (Vyukov's ring of turns).
//
// Ordering edges: each cell's turn is stored with release after its content (R1) and loaded with acquire before it
// (A1).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/wait_word.hpp"

namespace viaduct::copy {

template <class T>
class WorkQueue {
 public:
  explicit WorkQueue(std::size_t capacity) : cells_(std::make_unique<Cell[]>(capacity)), mask_(capacity - 1) {
    for (std::size_t i = 0; i < capacity; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  bool try_push(T item) {
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);  // A1
      if (turn == at) {
        if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          cell.item = item;
          cell.turn.store(at + 1, std::memory_order_release);  // R1
          return true;
        }
      } else if (turn < at) {
        return false;  // a lap behind: full
      } else {
        at = tail_.load(std::memory_order_relaxed);
      }
    }
  }

  bool try_pop(T& item) {
    std::uint64_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);  // A1
      if (turn == at + 1) {
        if (head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          item = cell.item;
          cell.turn.store(at + mask_ + 1, std::memory_order_release);  // R1
          return true;
        }
      } else if (turn < at + 1) {
        return false;  // empty
      } else {
        at = head_.load(std::memory_order_relaxed);
      }
    }
  }

  bool empty() const {
    const std::uint64_t at = head_.load(std::memory_order_relaxed);
    return cells_[at & mask_].turn.load(std::memory_order_acquire) != at + 1;
  }

 private:
  struct alignas(kCacheLine) Cell {
    std::atomic<std::uint64_t> turn;
    T item;
  };

  std::unique_ptr<Cell[]> cells_;
  std::uint64_t mask_;
  alignas(kCacheLine) std::atomic<std::uint64_t> tail_{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> head_{0};
};

}  // namespace viaduct::copy
