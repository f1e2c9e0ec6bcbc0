#include "base/clock.hpp"

namespace viaduct {

namespace {

class SteadyClock final : public Clock {
 public:
  std::uint64_t now_ns() const override {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  }
};

}  // namespace

const Clock& Clock::steady() {
  static const auto* const clock = new SteadyClock;  // never destroyed: threads read it until the very end
  return *clock;
}

}  // namespace viaduct
