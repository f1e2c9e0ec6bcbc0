// Completion queues: fi_cq_*. What is written stays until it is read; an error keeps what is behind it waiting until
// fi_cq_readerr().
//
// Progress is made by whoever reads an empty queue, on all endpoints that are bound to it.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <deque>
#include <vector>

#include "base/spin_lock.hpp"
#include "fabric/sleeper.hpp"

namespace viaduct::fabric {

class Domain;

struct Completed {
  fi_cq_tagged_entry entry{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  int error = 0;             // of FI_E*; 0: none
  std::size_t left_out = 0;  // of a message that was too long
};

class CompletionQueue final : public fid_cq {
 public:
  static int open(Domain& domain, const fi_cq_attr& attributes, void* context, fid_cq** queue);
  static CompletionQueue& of(fid_t handle) { return static_cast<CompletionQueue&>(*reinterpret_cast<fid_cq*>(handle)); }

  void write(const Completed& completed);
  Sleeper& sleeper() { return sleeper_; }
  std::atomic<int> users{0};  // endpoints
  bool has_any() const { return count_.load(std::memory_order_acquire) != 0; }

 private:
  CompletionQueue(Domain& domain, const fi_cq_attr& attributes, void* context);

  ssize_t read(void* buffer, std::size_t count, fi_addr_t* sources);
  ssize_t take(std::byte* buffer, std::size_t count, fi_addr_t* sources);
  ssize_t read_error(fi_cq_err_entry& entry);
  ssize_t read_sleeping(void* buffer, std::size_t count, fi_addr_t* sources, int timeout_ms);
  static fi_ops kOps;
  static fi_ops_cq kQueueOps;
  friend struct CompletionQueueCalls;

  Domain& domain_;
  const fi_cq_format format_;
  const fi_wait_obj wait_;
  Sleeper sleeper_;
  SpinLock lock_;
  std::deque<Completed> entries_;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> signalled_{false};
  std::atomic<unsigned> vain_looks_{0};  // in a row
};

}  // namespace viaduct::fabric
