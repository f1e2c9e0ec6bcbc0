// CudaPipeline: moves operations through a GPU's copy engines, chunk by chunk.
//
//   host to host      pinned source --stream in--> a slot's device memory --stream out--> pinned destination
//   host to device    stream in          device to host   stream out          device to device   stream in
//
// A ring of slots holds the chunks under way. Each slot has a buffer on the device and two events: `staged` puts the
// way out after the way in on the device itself, `done` tells the host. Several slots in flight keep both directions
// busy and let the next operation begin while the last one ends. Chunks retire in the order they were issued, so an
// operation's bytes become ready from its start.
//
// Host memory is pinned through the cache. What cannot be pinned goes through the slot's own pinned bounce buffers,
// copied by this thread with a system call that reports a wild address instead of raising SIGSEGV.
//
// Thread safety: one thread at a time, with the context current; so too the destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.hpp"
#include "base/result.hpp"
#include "copy/cuda_driver.hpp"
#include "copy/cuda_placement.hpp"
#include "copy/operation.hpp"
#include "copy/pin_cache.hpp"

namespace viaduct::copy {

// What is worth measuring on a machine. More chunks overlap better, fewer cost fewer submissions.
struct CudaTuning {
  std::size_t chunks_per_piece = 8;
  std::size_t least_chunk = std::size_t{1} << 20;
  std::size_t most_chunk = std::size_t{8} << 20;  // also the size of a slot's buffer on the device
  std::size_t slots = 6;
  std::size_t bounce_chunk = std::size_t{512} << 10;
  std::uint64_t spin_ns = 50'000;  // for a chunk to end, before sleeping

  std::size_t chunk_for(std::size_t length) const;
};

class CudaPipeline {
 public:
  static Result<std::unique_ptr<CudaPipeline>> make(const CudaDriver& driver, PinCache& pins, const CudaTuning& tuning,
                                                    std::string name);
  ~CudaPipeline();
  CudaPipeline(const CudaPipeline&) = delete;
  CudaPipeline& operator=(const CudaPipeline&) = delete;

  // Everything begun has been issued and there is a slot for more.
  bool wants_operation() const;
  // Begins one. False: it overlaps pinned memory of another; advance() until idle() and try again.
  bool begin(OperationRecord& operation);
  bool idle() const { return transfers_.empty(); }

  // Issues what can be issued and waits for the oldest chunk, unless `interrupted` says that there is something better
  // to do. Returns an operation that has ended, if any: nothing of it is in use here any more.
  struct Ended {
    OperationRecord* operation = nullptr;
    int error = 0;
  };
  Ended advance(const std::function<bool()>& interrupted);

  // The context is lost: everything fails from now on.
  bool lost() const { return lost_; }

 private:
  struct Transfer {
    OperationRecord* operation = nullptr;
    std::vector<PinCache::Pin> pins;
    std::vector<Leg> legs;
    std::size_t leg = 0;     // the next chunk to issue begins in this one
    std::size_t offset = 0;  // at this byte
    std::size_t in_flight = 0;
    std::size_t bytes_ready = 0;
    int error = 0;
    bool issued() const { return error != 0 || leg == legs.size(); }
  };
  struct Slot {
    CudaAddress buffer = 0;
    CudaEvent staged = nullptr;
    CudaEvent done = nullptr;
    std::byte* bounce_in = nullptr;
    std::byte* bounce_out = nullptr;
    Transfer* transfer = nullptr;  // while in flight
    Leg chunk{};
  };
  CudaPipeline(const CudaDriver& driver, PinCache& pins, const CudaTuning& tuning, std::string name)
      : driver_(driver), pins_(pins), tuning_(tuning), name_(std::move(name)) {}
  Status set_up();

  bool make_bounce_buffers();

  // Issuing.
  void issue();
  Leg next_chunk(const Transfer& transfer) const;
  CudaResult submit(Slot& slot, const Leg& chunk, const char*& call);

  // Ending.
  CudaResult wait_for_oldest(const std::function<bool()>& interrupted);
  void retire_oldest();
  Ended take_ended();
  void fail(Transfer& transfer, CudaResult result, const char* call);
  void lose(CudaResult result);

  Slot& oldest() { return slots_[first_]; }
  Slot& free_slot() { return slots_[(first_ + in_flight_) % slots_.size()]; }

  const CudaDriver& driver_;
  PinCache& pins_;
  CudaTuning tuning_;
  const std::string name_;
  CudaStream in_ = nullptr;
  CudaStream out_ = nullptr;
  CudaAddress buffers_ = 0;
  std::byte* bounce_ = nullptr;

  std::vector<Slot> slots_;
  std::size_t first_ = 0;
  std::size_t in_flight_ = 0;
  std::deque<std::unique_ptr<Transfer>> transfers_;  // only the last may not be issued completely
  bool lost_ = false;
  Counter bounced_ = counter("copy.gpu_bounced_bytes");
};

}  // namespace viaduct::copy
