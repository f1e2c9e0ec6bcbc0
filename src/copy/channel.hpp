// A channel: something that executes operations. All have this shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "copy/operation.hpp"

namespace viaduct::copy {

// What an operation of n bytes costs here: start_ns + ns_per_byte * (n + what is queued before it).
struct Cost {
  double start_ns = 0;
  double ns_per_byte = 0;
  double of(std::size_t bytes) const { return start_ns + ns_per_byte * static_cast<double>(bytes); }
};

class Channel {
 public:
  virtual ~Channel() = default;

  virtual std::string name() const = 0;
  virtual Choice choice() const = 0;

  // Could it execute this operation (length, alignment, kind of memory)?
  virtual bool accepts(const OperationRecord& operation) const = 0;
  virtual Cost cost(bool streaming) const = 0;
  virtual std::size_t queued_bytes() const = 0;

  // Takes the operation, whose predecessors have completed, and sees to it that finish() is called, from any thread.
  virtual void submit(OperationRecord& operation) = 0;

  // Called by a thread that waits for the operation: does a piece of it here and now. False: nothing to help with.
  virtual bool help(OperationRecord& operation) = 0;
};

}  // namespace viaduct::copy
