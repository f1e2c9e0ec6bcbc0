#include "base/spin.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace viaduct {

namespace {

// Late alone may be the hypervisor, switched alone a kernel thread's few microseconds.
class YieldProbe final : public CoreProbe {
 public:
  bool core_is_wanted() const override {
    const Clock& clock = Clock::steady();
    const long before = switches();
    const std::uint64_t start = clock.now_ns();
    ::sched_yield();
    const bool late = clock.now_ns() - start > kLateNs;
    return late && switches() != before;
  }

 private:
  static long switches() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }
};

}  // namespace

const CoreProbe& CoreProbe::machine() {
  static const auto* const probe = new YieldProbe;  // never destroyed: threads use it until the very end
  return *probe;
}

WakeCost& WakeCost::machine() {
  static constinit WakeCost cost;
  return cost;
}

bool relaxing_is_brief() {
  static const bool brief = [] {
    constexpr int kTimes = 32;
    constexpr std::uint64_t kBriefNs = 32;
    const Clock& clock = Clock::steady();
    std::uint64_t least = UINT64_MAX;
    for (int attempt = 0; attempt < 4; ++attempt) {
      const std::uint64_t start = clock.now_ns();
      for (int i = 0; i < kTimes; ++i) cpu_relax();
      least = std::min(least, clock.now_ns() - start);
    }
    return least < kTimes * kBriefNs;
  }();
  return brief;
}

int processors_online() {
  static const int count = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return count;
}

}  // namespace viaduct
