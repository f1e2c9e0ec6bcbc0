// Whether a sleep costs nothing.
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace conformance {

inline double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// `body` takes so long that the processor's time can be told from none: 80 ms or more. Whether this thread slept in it:
// it hardly used the processor, and was not woken again and again.
template <class Body>
bool sleeps_in(Body body) {
  constexpr long kMostWakes = 15;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  rusage before{}, after{};
  ::getrusage(RUSAGE_THREAD, &before);
  body();
  ::getrusage(RUSAGE_THREAD, &after);
  const std::chrono::duration<double> taken = Clock::now() - start;
  const double used =
      seconds(after.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_utime) - seconds(before.ru_stime);
  return used < taken.count() / 4 && after.ru_nvcsw - before.ru_nvcsw < kMostWakes;
}

}  // namespace conformance
