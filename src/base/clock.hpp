// Time is injected: code that waits or times out takes a Clock, so tests run it in virtual time.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace viaduct {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::uint64_t now_ns() const = 0;  // monotonic, from an arbitrary start

  static const Clock& steady();  // the machine's CLOCK_MONOTONIC
};

// Stands still until a test moves it.
class MockClock final : public Clock {
 public:
  std::uint64_t now_ns() const override { return now_.load(std::memory_order_relaxed); }
  void advance_ns(std::uint64_t by) { now_.fetch_add(by, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> now_{1};
};

// A moment on some Clock after which waiting stops.
class Deadline {
 public:
  static Deadline never() { return Deadline(UINT64_MAX); }
  static Deadline at_ns(std::uint64_t moment) { return Deadline(moment); }
  static Deadline after_ns(const Clock& clock, std::uint64_t delay) {
    const std::uint64_t now = clock.now_ns();
    return Deadline(delay > UINT64_MAX - 1 - now ? UINT64_MAX : now + delay);
  }

  // Never, where that is longer than anything lasts.
  static Deadline after(const Clock& clock, std::int64_t seconds, std::int64_t nanoseconds) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    if (seconds >= INT64_MAX / kSecond) return never();
    return after_ns(clock, static_cast<std::uint64_t>(seconds * kSecond + nanoseconds));
  }

  bool is_never() const { return moment_ == UINT64_MAX; }
  bool expired(std::uint64_t now) const { return now >= moment_; }
  std::uint64_t left_ns(std::uint64_t now) const { return expired(now) ? 0 : moment_ - now; }

 private:
  explicit Deadline(std::uint64_t moment) : moment_(moment) {}
  std::uint64_t moment_;
};

inline bool is_good(const timespec& time) {
  return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000;
}

inline timespec to_timespec(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace viaduct
