#include "base/hint_queue.hpp"

#include <fmt/format.h>

#include <bit>

namespace viaduct {

namespace {

struct Shape {
  std::uint64_t words[3] = {};
  int depth = 0;
  std::size_t bytes = sizeof(WaitWord);
};

// Each level is rounded up to a cache line, so that the root never shares one with the leaves.
Shape shape_of(std::uint32_t capacity) {
  Shape shape;
  std::uint64_t bits = capacity;
  do {
    const std::uint64_t words = (bits + 63) / 64;
    shape.words[shape.depth++] = words;
    shape.bytes += (words * 8 + kCacheLine - 1) / kCacheLine * kCacheLine;
    bits = words;
  } while (bits > 1);
  return shape;
}

}  // namespace

std::size_t hint_queue_bytes(std::uint32_t capacity) {
  return shape_of(capacity).bytes;
}

Result<HintQueue> HintQueue::attach(std::span<std::byte> memory, std::uint32_t capacity) {
  if (capacity == 0 || capacity > kMostHints)
    return Error(EINVAL, fmt::format("hint queue: capacity {} is not in 1..{}", capacity, kMostHints));
  const Shape shape = shape_of(capacity);
  if (memory.size() < shape.bytes)
    return Error(EINVAL, fmt::format("hint queue: needs {} bytes, given {}", shape.bytes, memory.size()));
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kCacheLine != 0)
    return Error(EINVAL, "hint queue: memory is not aligned to a cache line");

  HintQueue queue;
  queue.capacity_ = capacity;
  queue.depth_ = shape.depth;
  queue.ready_ = reinterpret_cast<WaitWord*>(memory.data());
  std::byte* at = memory.data() + sizeof(WaitWord);
  for (int level = 0; level < shape.depth; ++level) {
    queue.words_[level] = shape.words[level];
    queue.next_[level].resize(shape.words[level]);
    queue.levels_[level] = reinterpret_cast<Word*>(at);
    at += (shape.words[level] * 8 + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  queue.root_ = queue.levels_[shape.depth - 1];
  return queue;
}

void HintQueue::put(std::uint32_t number) {
  std::uint64_t index = number;
  for (int level = 0; level < depth_; ++level, index /= 64) {
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    Word& word = levels_[level][index / 64];
    // The bit of this very hint is always written, so that R1 holds; above it, a set bit is left alone: the consumer
    // clears it before it takes what is below.
    if (level > 0 && (word.load(std::memory_order_seq_cst) & bit) != 0) continue;
    word.fetch_or(bit, std::memory_order_seq_cst);  // R1
  }
}

std::size_t HintQueue::take(std::span<std::uint32_t> numbers) {
  if (numbers.empty() || empty()) return 0;
  return take_below(depth_ - 1, 0, numbers);
}

// Takes from one word of a level: clears bits before descending, sets again what did not fit.
std::size_t HintQueue::take_below(int level, std::uint64_t index, std::span<std::uint32_t> numbers) {
  Word& word = levels_[level][index];
  std::uint8_t& next = next_[level][index];
  std::uint64_t bits = word.exchange(0, std::memory_order_seq_cst);  // A1, pairs with R1
  std::uint64_t again = 0;
  std::size_t taken = 0;
  while (bits != 0 && taken < numbers.size()) {
    const int bit = (std::countr_zero(std::rotr(bits, next)) + next) % 64;
    bits &= ~(std::uint64_t{1} << bit);
    next = static_cast<std::uint8_t>((bit + 1) % 64);
    const std::uint64_t below = index * 64 + static_cast<std::uint64_t>(bit);
    if (level == 0) {
      if (below < capacity_) numbers[taken++] = static_cast<std::uint32_t>(below);  // else: a hostile producer
      continue;
    }
    if (below >= words_[level - 1]) continue;
    taken += take_below(level - 1, below, numbers.subspan(taken));
    // Left over below? Then the next take() comes here again; not this one, which a busy producer could hold forever.
    if (levels_[level - 1][below].load(std::memory_order_seq_cst) != 0) again |= std::uint64_t{1} << bit;
  }
  if ((bits | again) != 0) word.fetch_or(bits | again, std::memory_order_seq_cst);
  return taken;
}

}  // namespace viaduct
