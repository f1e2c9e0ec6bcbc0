#include "copy/kernel_contest.hpp"

#include <algorithm>

namespace viaduct::copy {

void KernelContest::begin() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || timed() || left_.load(std::memory_order_relaxed) > 0) return;
  left_.store(kAgain, std::memory_order_relaxed);
  if (candidates_ < 2) return;
  lap_ = 0;
  turn_bytes_ = 0;
  counted_bytes_ = 0;
  counted_ns_ = 0;
  current_.store(0, std::memory_order_relaxed);
  timed_.store(true, std::memory_order_relaxed);
}

void KernelContest::copied(int who, std::size_t bytes, std::uint64_t nanoseconds) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !timed() || who != current()) return;
  const auto length = static_cast<std::int64_t>(bytes);
  const bool settled = turn_bytes_ >= kTurn / 2;
  turn_bytes_ += length;
  if (!settled) return;
  counted_bytes_ += length;
  counted_ns_ += nanoseconds;
  if (turn_bytes_ >= kTurn) end_turn();
}

void KernelContest::end_turn() {
  const int who = current();
  ns_per_byte_[static_cast<std::size_t>(lap_)][static_cast<std::size_t>(who)] =
      static_cast<double>(counted_ns_) / static_cast<double>(counted_bytes_);
  turn_bytes_ = 0;
  counted_bytes_ = 0;
  counted_ns_ = 0;
  if (who + 1 < candidates_) return current_.store(who + 1, std::memory_order_relaxed);
  if (++lap_ < kLaps) return current_.store(0, std::memory_order_relaxed);
  current_.store(winner(), std::memory_order_relaxed);
  timed_.store(false, std::memory_order_relaxed);
}

int KernelContest::winner() const {
  const auto best = [this](int who) {
    double least = ns_per_byte_[0][static_cast<std::size_t>(who)];
    for (const auto& lap : ns_per_byte_) least = std::min(least, lap[static_cast<std::size_t>(who)]);
    return least;
  };
  int first = 0;
  for (int who = 1; who < candidates_; ++who) {
    const double bound = kFaster * best(first);
    const auto faster = [&](const auto& lap) { return lap[static_cast<std::size_t>(who)] < bound; };
    if (std::all_of(ns_per_byte_.begin(), ns_per_byte_.end(), faster)) first = who;
  }
  return first;
}

}  // namespace viaduct::copy
