#include "nic/ticks.hpp"

namespace viaduct::nic {

namespace {

#if defined(__x86_64__)
// Measured once in a process; a millisecond is enough for a thousandth.
std::uint64_t ns_per_tick_scaled() {
  static const std::uint64_t scale = [] {
    constexpr std::uint64_t kLongNs = 1'000'000;
    const Clock& clock = Clock::steady();
    const std::uint64_t ns = clock.now_ns(), ticks = __rdtsc();
    std::uint64_t end = ns;
    while (end - ns < kLongNs) end = clock.now_ns();
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(end - ns) << 32) / (__rdtsc() - ticks));
  }();
  return scale;
}
#endif

}  // namespace

Ticks::Ticks(const Clock* injected) : injected_(injected), clock_(injected != nullptr ? *injected : Clock::steady()) {
#if defined(__x86_64__)
  if (injected == nullptr) {
    scale_ = ns_per_tick_scaled();
    start_ = __rdtsc();
    return;
  }
#endif
  start_ = clock_.now_ns();
}

}  // namespace viaduct::nic
