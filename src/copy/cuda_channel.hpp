// The GPU channel: a GPU's copy engines move the bytes, host to host as well (docs/copy-gpu.md).
//
// The caller pays for a hand-over; a thread of the channel, started with the first operation, pins, submits and waits.
// It never helps and is never helped: the processor has nothing to do.
//
// Life: everything is made by make_cuda_channel(), so that a machine where it cannot work is known at once. After fork
// the child must leave the channel alone; its destructor there calls nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "copy/channel.hpp"
#include "copy/cuda_pipeline.hpp"
#include "copy/operation_table.hpp"

namespace viaduct::copy {

struct CudaSettings {
  std::string library = "libcuda.so.1";
  int device = 0;
  std::size_t pin_cache = std::size_t{1} << 30;
  PinCache::Keep keep = PinCache::Keep::watched;
  bool measure = true;  // false: cost() says what such machines mostly need
  CudaTuning tuning;

  static CudaSettings from_config();
};

class CudaChannel : public Channel {
 public:
  Choice choice() const override { return Choice::cuda; }

  // Does the operation touch device memory, so that no other channel can execute it?
  virtual bool touches_device(const OperationRecord& operation) const = 0;

  // Memory of the engine: stays pinned after its first use until it is retracted, which must precede its unmapping.
  virtual void declare_stable(const void* address, std::size_t length) = 0;
  virtual void retract(const void* address, std::size_t length) = 0;

  virtual std::string detail() const = 0;  // what it runs on and what it keeps pinned, for people
};

// Operations come from `table`, which must outlive the channel. ENODEV: no driver, no device, or the driver refuses (as
// it does in a child of a process that uses it).
Result<std::unique_ptr<CudaChannel>> make_cuda_channel(const CudaSettings& settings, OperationTable& table);

}  // namespace viaduct::copy
