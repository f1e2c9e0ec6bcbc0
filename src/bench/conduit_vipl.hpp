// Conduits over VIPL, as a program would write them: descriptors and data in registered memory, a window of posted
// receives, and the way in which completions are noticed.
#pragma once

#include <viaduct/vipl.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/conduit.hpp"
#include "bench/vipl_adapter.hpp"

namespace viaduct::bench {

struct ViplOptions {
  enum class Completion { polling, blocking, completion_queue, notify };
  // Where the data of a send comes from: memory that stays registered, memory registered for each send, or memory that
  // is copied into a buffer that stays registered.
  enum class Source { registered, registered_each_time, copied };
  enum class Transfer { send, rdma_write, rdma_read };

  Completion completion = Completion::polling;
  Source source = Source::registered;
  Transfer transfer = Transfer::send;
  VIP_RELIABILITY_LEVEL level = VIP_SERVICE_RELIABLE_DELIVERY;
  bool engine_memory = false;  // data in memory that the other process can map
  std::uint32_t idle_vis = 0;  // further connected VIs on the same completion queue
  std::optional<TwoEnds> hosts{};
};

class ViplConduit : public Conduit {
 public:
  virtual double idle_processor_ms(unsigned milliseconds) = 0;  // used up by waiting so long for nothing
};

Result<std::unique_ptr<ViplConduit>> make_vipl(const ViplOptions& options);

}  // namespace viaduct::bench
