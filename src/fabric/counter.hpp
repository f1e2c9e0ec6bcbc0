// Counters: fi_cntr_*, of operations that completed, and of those that failed.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>

#include "fabric/sleeper.hpp"

namespace viaduct::fabric {

class Domain;

class Counter final : public fid_cntr {
 public:
  static int open(Domain& domain, const fi_cntr_attr& attributes, void* context, fid_cntr** counter);
  static Counter& of(fid_t handle) { return static_cast<Counter&>(*reinterpret_cast<fid_cntr*>(handle)); }

  void count(bool good) {
    (good ? value_ : errors_).fetch_add(1, std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
  }
  Sleeper& sleeper() { return sleeper_; }
  std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  std::atomic<int> users{0};

 private:
  Counter(Domain& domain, void* context);
  static fi_ops kOps;
  static fi_ops_cntr kCounterOps;
  friend struct CounterCalls;

  Domain& domain_;
  Sleeper sleeper_;
  std::atomic<std::uint64_t> value_{0}, errors_{0}, changes_{0};
};

}  // namespace viaduct::fabric
