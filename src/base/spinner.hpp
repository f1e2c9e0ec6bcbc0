// Spins for a condition within a SpinBudget, giving way when somebody else wants the core.
//
// A Spinner belongs to one thread at a time. The machine it runs on (clock, yield) is injected.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/spin.hpp"

namespace viaduct {

class Spinner {
 public:
  explicit Spinner(std::uint64_t bound_ns, const Clock& clock = Clock::steady(),
                   const CoreProbe& probe = CoreProbe::machine())
      : clock_(clock),
        probe_(probe),
        budget_(bound_ns),
        alone_(processors_online() < 2),
        relaxes_(relaxing_is_brief()) {}

  // False: the budget, or the deadline, is over. `ready()` is called often: it must be cheap and must not block.
  template <class Ready>
  bool spin(std::uint64_t start, Deadline deadline, Ready& ready) {
    const std::uint64_t budget = budget_ns(start);
    if (budget == 0) return false;
    std::uint64_t next_probe = start + kFirstProbeNs;
    for (std::uint64_t now = start; now - start < budget && !deadline.expired(now); now = clock_.now_ns()) {
      const bool eager = now - start < kEagerNs;
      for (int look = 0; look < kLooksPerTimeCheck; ++look) {
        if (ready()) {
          budget_.learn(now - start, false);  // no clock read between the message and its receiver
          lately_soon_ = eager;
          return true;
        }
        if (!eager || relaxes_) cpu_relax();
      }
      if (now < next_probe) continue;
      next_probe = now + kProbeEveryNs;
      if (probe_.core_is_wanted()) {
        budget_.core_contended(clock_.now_ns());
        return ready();
      }
      budget_.core_free();
    }
    return false;
  }

  // Before spin(): a few looks without a clock, where the last wait was over that soon.
  template <class Ready>
  [[gnu::always_inline]] bool glance(Ready& ready) {
    if (!lately_soon_) return false;
    for (int look = relaxes_ ? kRelaxedLooksAtAGlance : kLooksAtAGlance; look != 0; --look) {
      if (ready()) {
        budget_.learn(0, false);
        return true;
      }
      if (relaxes_) cpu_relax();
    }
    return lately_soon_ = false;
  }

  // A wait that slept took this long; or would have, had nobody slept.
  void learn(std::uint64_t took_ns) { budget_.learn(took_ns, true); }
  void learn_awake(std::uint64_t took_ns) { budget_.learn(took_ns, false); }

  std::uint64_t budget_ns(std::uint64_t now) const { return alone_ ? 0 : budget_.budget_ns(now); }

 private:
  static constexpr std::uint64_t kEagerNs = 1'000;       // without relaxing, where that takes long
  static constexpr std::uint64_t kFirstProbeNs = 2'000;  // most answers of a spinning peer come sooner
  static constexpr std::uint64_t kProbeEveryNs = 10'000;
  static constexpr int kLooksPerTimeCheck = 32;
  static constexpr int kLooksAtAGlance = 512;
  static constexpr int kRelaxedLooksAtAGlance = 96;  // in about the same time

  const Clock& clock_;
  const CoreProbe& probe_;
  SpinBudget budget_;
  bool alone_;          // one processor only: the peer cannot run while we spin
  const bool relaxes_;  // between looks, from the first on
  bool lately_soon_ = false;
};

}  // namespace viaduct
