// How long to spin before sleeping.
//
// SpinBudget learns from each wait: while waits lately ended within the bound it spins up to the bound (a peer that
// hiccups must not cost a sleep), and hardly at all once they take longer, so that an idle connection burns nothing.
// CoreProbe tells whether anybody else wants this core: spinning then only delays the peer, so the budget is nothing
// for a while. And where that was so a moment ago nobody spins for longer than it takes to be woken (WakeCost), nor at
// all where waits lately took longer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace viaduct {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether that takes no longer than a cache line needs from one core to another. Then who looks for a line relaxes
// between its looks: a core that runs ahead with them has to take them all back when the line changes.
bool relaxing_is_brief();

// How long it takes to be woken here: nearly the least of what was measured, which others on the processor do not
// lengthen. By any thread.
class WakeCost {
 public:
  static constexpr std::uint64_t kAtFirstNs = 60'000;
  void note(std::uint64_t took_ns) {
    const std::uint64_t known = ns_.load(std::memory_order_relaxed);
    const std::uint64_t more = std::min(took_ns, kAtFirstNs);
    ns_.store(more < known ? more : known + (more - known) / 256, std::memory_order_relaxed);
  }
  std::uint64_t ns() const { return ns_.load(std::memory_order_relaxed); }

  static WakeCost& machine();

 private:
  std::atomic<std::uint64_t> ns_{kAtFirstNs};
};

class SpinBudget {
 public:
  static constexpr std::uint64_t kSleepCostNs = 60'000;  // what a futex wake-up adds to a wait that slept
  static constexpr std::uint64_t kLeastNs = 1'000;
  static constexpr std::uint64_t kLeastBackOffNs = 1'000'000;
  static constexpr std::uint64_t kMostBackOffNs = 32'000'000;

  static constexpr std::uint64_t kShortNs = 20'000'000;  // processors are, for so long after the last sign of it

  // `bound_ns` 0: never spin.
  explicit SpinBudget(std::uint64_t bound_ns, const WakeCost& wake_cost = WakeCost::machine())
      : bound_ns_(bound_ns), wake_cost_(wake_cost), expected_ns_(bound_ns / 2) {}

  std::uint64_t budget_ns(std::uint64_t now) const {
    if (bound_ns_ == 0 || now < no_spin_until_) return 0;
    if (now < short_until_) {
      const std::uint64_t bound = std::min(bound_ns_, wake_cost_.ns());
      return expected_ns_ <= bound ? bound : 0;
    }
    if (expected_ns_ <= bound_ns_) return bound_ns_;
    return kLeastNs < bound_ns_ ? kLeastNs : bound_ns_;
  }

  // A wait took this long from its start until its condition was seen; one that slept is credited the wake-up's cost.
  void learn(std::uint64_t took_ns, bool slept) {
    if (slept) took_ns = took_ns > kSleepCostNs ? took_ns - kSleepCostNs : 0;
    constexpr std::uint64_t kCap = 1'000'000;  // one endless wait must not be remembered for long
    if (took_ns > kCap) took_ns = kCap;
    expected_ns_ = (expected_ns_ * 7 + took_ns) / 8;
  }

  // Somebody else wanted the core while we spun: no spinning for a while, longer each time it happens again.
  void core_contended(std::uint64_t now) {
    no_spin_until_ = now + back_off_ns_;
    short_until_ = no_spin_until_ + kShortNs;
    back_off_ns_ = 2 * back_off_ns_ < kMostBackOffNs ? 2 * back_off_ns_ : kMostBackOffNs;
  }
  void core_free() { back_off_ns_ = kLeastBackOffNs; }

  std::uint64_t bound_ns() const { return bound_ns_; }

 private:
  std::uint64_t bound_ns_;
  const WakeCost& wake_cost_;
  std::uint64_t expected_ns_;
  std::uint64_t no_spin_until_ = 0;
  std::uint64_t short_until_ = 0;
  std::uint64_t back_off_ns_ = kLeastBackOffNs;
};

// Offers the core to others once; a yield that comes back late, after a switch, means that somebody took it.
class CoreProbe {
 public:
  static constexpr std::uint64_t kLateNs = 10'000;
  virtual ~CoreProbe() = default;
  virtual bool core_is_wanted() const = 0;

  static const CoreProbe& machine();
};

// Processors of the machine; spinning with one is never right. (The affinity mask does not tell: a pinned thread's peer
// may well run elsewhere.)
int processors_online();

}  // namespace viaduct
