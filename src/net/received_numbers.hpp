// Which frame numbers have come: all below `below()`, and those marked in a window above it. What the receiver tells in
// an ack.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "net/wire.hpp"

namespace viaduct::net {

class ReceivedNumbers {
 public:
  static constexpr std::size_t kWords = kNumbersTracked / 64;

  explicit ReceivedNumbers(std::uint64_t first) : below_(first), end_(first) {}

  enum class Verdict { fresh, had, too_far };

  Verdict look(std::uint64_t number) const {
    if (number < below_) return Verdict::had;
    if (number - below_ >= kNumbersTracked) return Verdict::too_far;
    return marked(number) ? Verdict::had : Verdict::fresh;
  }

  // A fresh number has come.
  void add(std::uint64_t number) {
    bit_word(number) |= bit(number);
    if (number >= end_) end_ = number + 1;
    advance();
  }

  // The sender cares for nothing below `number` any more.
  void give_up_below(std::uint64_t number) {
    if (number <= below_) return;
    if (number - below_ >= kNumbersTracked) {
      marks_ = {};
    } else {
      for (std::uint64_t gone = below_; gone < number; ++gone) bit_word(gone) &= ~bit(gone);
    }
    below_ = number;
    if (end_ < number) end_ = number;
    advance();
  }

  std::uint64_t below() const { return below_; }
  bool has_gap() const { return end_ > below_; }

  // Bits for below() + 64 * index and up; words() of them say all.
  std::size_t words() const { return static_cast<std::size_t>((end_ - below_ + 63) / 64); }
  std::uint64_t word(std::size_t index) const {
    const std::uint64_t start = below_ + index * 64;
    const unsigned shift = start % 64;
    const std::size_t at = start / 64 % kWords;
    std::uint64_t bits = marks_[at] >> shift;
    if (shift != 0) bits |= marks_[(at + 1) % kWords] << (64 - shift);
    // The last word of a full window would show the beginning of the next round.
    const std::uint64_t numbers = end_ - start;
    return numbers >= 64 ? bits : bits & ((std::uint64_t{1} << numbers) - 1);
  }

 private:
  static std::uint64_t bit(std::uint64_t number) { return std::uint64_t{1} << number % 64; }
  std::uint64_t& bit_word(std::uint64_t number) { return marks_[number / 64 % kWords]; }
  bool marked(std::uint64_t number) const { return (marks_[number / 64 % kWords] & bit(number)) != 0; }
  void advance() {
    while (below_ < end_ && marked(below_)) {
      bit_word(below_) &= ~bit(below_);
      ++below_;
    }
  }

  std::uint64_t below_;
  std::uint64_t end_;  // one above the highest that has come
  std::array<std::uint64_t, kWords> marks_{};
};

}  // namespace viaduct::net
