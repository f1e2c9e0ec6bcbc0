// Whether a sleep costs nothing.
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace conformance {

inline double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// `body` takes so long that the processor's time can be told from none: 80 ms or more. Whether this thread slept in it,
// or with RUSAGE_SELF so many: they hardly used the processor, and were not woken again and again.
template <class Body>
bool sleeps_in(Body body, decltype(RUSAGE_THREAD) whose = RUSAGE_THREAD, int threads = 1) {
  constexpr long kMostWakes = 15;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  rusage before{}, after{};
  ::getrusage(whose, &before);
  body();
  ::getrusage(whose, &after);
  const std::chrono::duration<double> taken = Clock::now() - start;
  const double used =
      seconds(after.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_utime) - seconds(before.ru_stime);
  return used < taken.count() / 4 && after.ru_nvcsw - before.ru_nvcsw < kMostWakes * threads;
}

}  // namespace conformance
