#include "base/spin.hpp"

#include <sched.h>
#include <unistd.h>

namespace viaduct {

namespace {

class YieldProbe final : public CoreProbe {
 public:
  bool core_is_wanted() const override {
    const Clock& clock = Clock::steady();
    const std::uint64_t before = clock.now_ns();
    ::sched_yield();
    return clock.now_ns() - before > kLateNs;
  }
};

}  // namespace

const CoreProbe& CoreProbe::machine() {
  static const YieldProbe probe;
  return probe;
}

int processors_online() {
  static const int count = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return count;
}

}  // namespace viaduct
