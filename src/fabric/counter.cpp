#include "fabric/counter.hpp"

#include <rdma/fi_errno.h>

#include <new>

#include "fabric/domain.hpp"
#include "fabric/none.hpp"

namespace viaduct::fabric {

Counter::Counter(Domain& domain, void* context) : fid_cntr{}, domain_(domain) {
  fid = {FI_CLASS_CNTR, context, &kOps};
  ops = &kCounterOps;
  domain_.users.fetch_add(1);
}

int Counter::open(Domain& domain, const fi_cntr_attr& attributes, void* context, fid_cntr** counter) {
  const bool waits = attributes.wait_obj == FI_WAIT_NONE || attributes.wait_obj == FI_WAIT_UNSPEC ||
                     attributes.wait_obj == FI_WAIT_YIELD;
  if (!waits || attributes.events != FI_CNTR_EVENTS_COMP) return -FI_ENOSYS;
  *counter = new (std::nothrow) Counter(domain, context);
  return *counter == nullptr ? -FI_ENOMEM : 0;
}

struct CounterCalls {
  static Counter& self(fid_cntr* counter) { return static_cast<Counter&>(*counter); }

  static int close(fid_t fid) {
    Counter& counter = Counter::of(fid);
    if (counter.users.load() != 0) return -FI_EBUSY;
    counter.domain_.users.fetch_sub(1);
    delete &counter;
    return 0;
  }
  static std::uint64_t read(fid_cntr* counter) {
    self(counter).sleeper_.progress();
    return self(counter).value_.load(std::memory_order_acquire);
  }
  static std::uint64_t readerr(fid_cntr* counter) {
    self(counter).sleeper_.progress();
    return self(counter).errors_.load(std::memory_order_acquire);
  }
  static int changed(fid_cntr* counter) {
    self(counter).changes_.fetch_add(1, std::memory_order_release);
    self(counter).sleeper_.wake();
    return 0;
  }
  static int add(fid_cntr* counter, std::uint64_t value) {
    self(counter).value_.fetch_add(value);
    return changed(counter);
  }
  static int set(fid_cntr* counter, std::uint64_t value) {
    self(counter).value_.store(value);
    return changed(counter);
  }
  static int adderr(fid_cntr* counter, std::uint64_t value) {
    self(counter).errors_.fetch_add(value);
    return changed(counter);
  }
  static int seterr(fid_cntr* counter, std::uint64_t value) {
    self(counter).errors_.store(value);
    return changed(counter);
  }
  // An error ends it too: nobody knows how much is still to come.
  static int wait(fid_cntr* counter, std::uint64_t threshold, int timeout_ms) {
    Counter& me = self(counter);
    const std::uint64_t errors = me.errors_.load(std::memory_order_acquire);
    const bool came = me.sleeper_.wait(timeout_ms, [&] {
      return me.value_.load(std::memory_order_acquire) >= threshold ||
             me.errors_.load(std::memory_order_acquire) != errors;
    });
    if (me.value_.load(std::memory_order_acquire) >= threshold) return 0;
    return came ? -FI_EAVAIL : -FI_ETIMEDOUT;
  }
};

fi_ops Counter::kOps = {
    .size = sizeof(fi_ops),
    .close = CounterCalls::close,
    .bind = VIADUCT_NONE(fi_ops, bind),
    .control = VIADUCT_NONE(fi_ops, control),
    .ops_open = VIADUCT_NONE(fi_ops, ops_open),
    .tostr = VIADUCT_NONE(fi_ops, tostr),
    .ops_set = VIADUCT_NONE(fi_ops, ops_set),
};
fi_ops_cntr Counter::kCounterOps = {
    .size = sizeof(fi_ops_cntr),
    .read = CounterCalls::read,
    .readerr = CounterCalls::readerr,
    .add = CounterCalls::add,
    .set = CounterCalls::set,
    .wait = CounterCalls::wait,
    .adderr = CounterCalls::adderr,
    .seterr = CounterCalls::seterr,
};

}  // namespace viaduct::fabric
