// HintQueue: many producers tell one consumer "look at number n", through shared memory.
//
// Layout (docs/formats/rings.md): a WaitWord, then words of 64 hints each in levels, the root last:
//   level 0   one bit per hint;  level k  one bit per word of level k-1 that may be non-zero;  the top is one word
//
// A hint given twice before it is taken arrives once, so the queue never fills and a producer never waits. Every step
// is one atomic or: a producer killed between two of them loses at most its own hint and blocks nobody. The consumer
// looks at one word when nothing is there, however many channels exist, and takes hints round robin so that none
// starves.
//
// Ordering edges:
//   R1  producer's or (release) of the hint's bit publishes what it wrote before; pairs with A1, the consumer's
//   exchange. The bits above are set after the bit below, and the consumer clears the bits above before it takes those
//   below: a hint set in between sets the upper bits again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/wait_word.hpp"

namespace viaduct {

constexpr std::uint32_t kMostHints = 64 * 64 * 64;

std::size_t hint_queue_bytes(std::uint32_t capacity);

// Used by both sides; put() may be called by any number of threads and processes, take() by one at a time.
class HintQueue {
 public:
  // `memory` must be zero-filled, 64-byte aligned and hold hint_queue_bytes(capacity).
  static Result<HintQueue> attach(std::span<std::byte> memory, std::uint32_t capacity);

  // Does not wake: call ready().wake_if_armed() afterwards. A number outside the capacity is misuse.
  void put(std::uint32_t number);

  // Moves up to numbers.size() hints out; returns how many.
  std::size_t take(std::span<std::uint32_t> numbers);

  bool empty() const { return root_->load(std::memory_order_acquire) == 0; }

  WaitWord& ready() const { return *ready_; }
  std::uint32_t capacity() const { return capacity_; }

 private:
  static constexpr int kMostLevels = 3;
  using Word = std::atomic<std::uint64_t>;

  HintQueue() = default;
  std::size_t take_below(int level, std::uint64_t word, std::span<std::uint32_t> numbers);

  WaitWord* ready_ = nullptr;
  Word* root_ = nullptr;
  Word* levels_[kMostLevels] = {};
  std::uint64_t words_[kMostLevels] = {};
  int depth_ = 0;
  std::uint32_t capacity_ = 0;
  // Where the round robin goes on, per word. One place per level is not enough: words visited in turn would each offer
  // only every second hint.
  std::vector<std::uint8_t> next_[kMostLevels];
};

}  // namespace viaduct
