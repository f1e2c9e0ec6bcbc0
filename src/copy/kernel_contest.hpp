// Which of several ways to move bytes is the fastest here, found out on the program's own copies.
//
// Copies made for the purpose could not tell: what a copy through the cache costs shows only later, when the lines it
// has written must leave the cache for others. So the candidates take turns, each long enough that the first half of
// it, which is not counted, pays for what the one before has left in the cache. After all laps the fastest stays.
//
// The first candidate is the favourite. Another takes its place only if it was faster, by more than noise, in every
// lap than the favourite in its best: a phase of the program that is slow for other reasons must not decide.
//
// A program that copies little never leaves the favourite, and not even its clock is read. Much later everybody has
// another try: a machine may be moved under a process.
//
// Thread safety: everything may be called from any thread. A child of fork has its parent's state.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace viaduct::copy {

class KernelContest {
 public:
  static constexpr int kMost = 6;                                   // candidates
  static constexpr int kLaps = 2;                                   // turns for each
  static constexpr std::int64_t kBefore = std::int64_t{256} << 20;  // bytes copied before the contest begins
  static constexpr std::int64_t kTurn = std::int64_t{128} << 20;    // bytes: twice what most caches hold
  static constexpr std::int64_t kAgain = std::int64_t{64} << 30;    // bytes until the next contest
  static constexpr double kFaster = 0.98;                           // of the favourite's time, at most

  explicit KernelContest(int candidates) : candidates_(candidates < kMost ? candidates : kMost) {}

  // Who does the next copy, and whether its time is asked for.
  int current() const { return current_.load(std::memory_order_relaxed); }
  bool timed() const { return timed_.load(std::memory_order_relaxed); }

  // A copy is done: `who` and `nanoseconds` only count where timed() was true before it.
  void copied(std::size_t bytes) {
    // Not one step: what two threads count at once may be counted once, and nothing is locked for it.
    const std::int64_t left = left_.load(std::memory_order_relaxed) - static_cast<std::int64_t>(bytes);
    left_.store(left, std::memory_order_relaxed);
    if (left <= 0) begin();
  }
  void copied(int who, std::size_t bytes, std::uint64_t nanoseconds);

 private:
  void begin();
  void end_turn();
  int winner() const;

  const int candidates_;
  std::atomic<int> current_{0};
  std::atomic<bool> timed_{false};
  std::atomic<std::int64_t> left_{kBefore};

  std::mutex mutex_;  // what follows; only ever tried: whoever finds it taken leaves its sample out
  int lap_ = 0;
  std::int64_t turn_bytes_ = 0;
  std::int64_t counted_bytes_ = 0;
  std::uint64_t counted_ns_ = 0;
  std::array<std::array<double, kMost>, kLaps> ns_per_byte_{};
};

}  // namespace viaduct::copy
