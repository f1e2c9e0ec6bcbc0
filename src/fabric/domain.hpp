// A domain: what belongs together of one program. Everything but regions and what atomics need is in its children.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <mutex>

#include "fabric/memory.hpp"

namespace viaduct::fabric {

class EventQueue;

class Domain final : public fid_domain {
 public:
  static int open(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);
  static Domain& of(fid_t handle) { return static_cast<Domain&>(*reinterpret_cast<fid_domain*>(handle)); }

  Regions regions;
  std::mutex atomics;  // operations on registered memory happen one after the other
  EventQueue* events = nullptr;
  std::atomic<int> users{0};

 private:
  explicit Domain(void* context);
  static fi_ops kOps;
  static fi_ops_domain kDomainOps;
  static fi_ops_mr kMemoryOps;
  friend struct DomainCalls;
};

}  // namespace viaduct::fabric
