#include "copy/cuda_pipeline.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/spin.hpp"

namespace viaduct::copy {

std::size_t CudaTuning::chunk_for(std::size_t length) const {
  constexpr std::size_t kPage = 4096;
  const std::size_t share = (length / chunks_per_piece + kPage - 1) / kPage * kPage;
  return std::clamp(share, std::min(least_chunk, most_chunk), most_chunk);
}

namespace {

// Copies between this program's memory and a bounce buffer. 0, or EFAULT where the program's side is not mapped so.
int copy_checked(void* to, const void* from, std::size_t length, bool program_is_source) {
  auto* destination = static_cast<std::byte*>(to);
  auto* source = static_cast<const std::byte*>(from);
  const pid_t self = ::getpid();
  while (length > 0) {
    const iovec into{destination, length}, out_of{const_cast<std::byte*>(source), length};
    const ssize_t moved = program_is_source ? ::process_vm_readv(self, &into, 1, &out_of, 1, 0)
                                            : ::process_vm_writev(self, &out_of, 1, &into, 1, 0);
    if (moved < 0 && (errno == ENOSYS || errno == EPERM)) {  // a sandbox refuses it
      std::memcpy(destination, source, length);
      return 0;
    }
    if (moved <= 0) return EFAULT;
    destination += moved, source += moved, length -= static_cast<std::size_t>(moved);
  }
  return 0;
}

}  // namespace

// ---- set-up

Result<std::unique_ptr<CudaPipeline>> CudaPipeline::make(const CudaDriver& driver, PinCache& pins,
                                                         const CudaTuning& tuning, std::string name) {
  std::unique_ptr<CudaPipeline> pipeline(new CudaPipeline(driver, pins, tuning, std::move(name)));
  VIADUCT_CHECK(pipeline->set_up());
  return pipeline;
}

Status CudaPipeline::set_up() {
  for (CudaStream* const stream : {&in_, &out_})
    if (const CudaResult result = driver_.stream_create(stream, cuda::kStreamNonBlocking); result != cuda::kSuccess)
      return driver_.error(result, "cuStreamCreate");
  // Less memory on the device means shorter chunks, which is better than no channel.
  CudaResult result = driver_.mem_alloc(&buffers_, tuning_.slots * tuning_.most_chunk);
  while (result == cuda::kOutOfMemory && tuning_.most_chunk / 2 >= tuning_.least_chunk) {
    tuning_.most_chunk /= 2;
    result = driver_.mem_alloc(&buffers_, tuning_.slots * tuning_.most_chunk);
  }
  if (result != cuda::kSuccess) return buffers_ = 0, driver_.error(result, "cuMemAlloc");
  slots_.resize(tuning_.slots);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].buffer = buffers_ + i * tuning_.most_chunk;
    for (CudaEvent* const event : {&slots_[i].staged, &slots_[i].done})
      if (result = driver_.event_create(event, cuda::kEventBlockingSync | cuda::kEventNoTiming);
          result != cuda::kSuccess)
        return driver_.error(result, "cuEventCreate");
  }
  return {};
}

CudaPipeline::~CudaPipeline() {
  assert(idle());
  for (const Slot& slot : slots_)
    for (const CudaEvent event : {slot.staged, slot.done})
      if (event != nullptr) (void)driver_.event_destroy(event);
  if (buffers_ != 0) (void)driver_.mem_free(buffers_);
  for (const CudaStream stream : {in_, out_})
    if (stream != nullptr) (void)driver_.stream_destroy(stream);
  if (bounce_ != nullptr) {
    (void)driver_.host_unregister(bounce_);
    ::munmap(bounce_, 2 * slots_.size() * tuning_.bounce_chunk);
  }
}

bool CudaPipeline::make_bounce_buffers() {
  if (bounce_ != nullptr) return true;
  const std::size_t size = 2 * slots_.size() * tuning_.bounce_chunk;
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (driver_.host_register(memory, size, cuda::kHostRegisterPortable) != cuda::kSuccess) {
    ::munmap(memory, size);
    return false;
  }
  log::detail(
      fmt::format("{}: memory that cannot be pinned is copied through {} KB of pinned memory", name_, size >> 10));
  bounce_ = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].bounce_in = bounce_ + 2 * i * tuning_.bounce_chunk;
    slots_[i].bounce_out = slots_[i].bounce_in + tuning_.bounce_chunk;
  }
  return true;
}

// ---- beginning

bool CudaPipeline::begin(OperationRecord& operation) {
  auto placement = place_operation(operation, driver_, pins_, !idle());
  if (!placement) return false;
  auto transfer = std::make_unique<Transfer>();
  transfer->operation = &operation;
  transfer->legs = std::move(placement->legs);
  transfer->pins = std::move(placement->pins);
  for (const Leg& leg : transfer->legs) {
    if (!leg.bounces()) continue;
    if (!make_bounce_buffers()) transfer->error = ENOMEM;
    bounced_.add(leg.length);
  }
  transfers_.push_back(std::move(transfer));
  return true;
}

bool CudaPipeline::wants_operation() const {
  return (transfers_.empty() || transfers_.back()->issued()) && in_flight_ < slots_.size();
}

// ---- issuing

Leg CudaPipeline::next_chunk(const Transfer& transfer) const {
  const Leg& leg = transfer.legs[transfer.leg];
  const std::size_t most =
      leg.bounces() ? std::min(tuning_.bounce_chunk, tuning_.most_chunk) : tuning_.chunk_for(leg.length);
  return {leg.source + transfer.offset, leg.destination + transfer.offset, std::min(most, leg.length - transfer.offset),
          leg.from, leg.to};
}

CudaResult CudaPipeline::submit(Slot& slot, const Leg& chunk, const char*& call) {
  const void* const from = chunk.from == Place::unpinned ? slot.bounce_in : chunk.source;
  void* const to = chunk.to == Place::unpinned ? slot.bounce_out : chunk.destination;
  const auto device = [](const void* address) { return reinterpret_cast<CudaAddress>(address); };
  const bool enters = chunk.from != Place::device, leaves = chunk.to != Place::device;
  CudaResult result = cuda::kSuccess;
  const auto tried = [&](const char* name, CudaResult outcome) {
    call = name;
    result = outcome;
    return outcome == cuda::kSuccess;
  };
  if (enters && leaves) {
    (void)(tried("cuMemcpyHtoDAsync", driver_.copy_in(slot.buffer, from, chunk.length, in_)) &&
           tried("cuEventRecord", driver_.event_record(slot.staged, in_)) &&
           tried("cuStreamWaitEvent", driver_.stream_wait_event(out_, slot.staged, 0)) &&
           tried("cuMemcpyDtoHAsync", driver_.copy_out(to, slot.buffer, chunk.length, out_)) &&
           tried("cuEventRecord", driver_.event_record(slot.done, out_)));
  } else if (enters) {
    (void)(tried("cuMemcpyHtoDAsync", driver_.copy_in(device(to), from, chunk.length, in_)) &&
           tried("cuEventRecord", driver_.event_record(slot.done, in_)));
  } else if (leaves) {
    (void)(tried("cuMemcpyDtoHAsync", driver_.copy_out(to, device(from), chunk.length, out_)) &&
           tried("cuEventRecord", driver_.event_record(slot.done, out_)));
  } else {
    (void)(tried("cuMemcpyDtoDAsync", driver_.copy_within(device(to), device(from), chunk.length, in_)) &&
           tried("cuEventRecord", driver_.event_record(slot.done, in_)));
  }
  return result;
}

void CudaPipeline::issue() {
  if (lost_ || transfers_.empty()) return;
  Transfer& transfer = *transfers_.back();
  while (!transfer.issued() && in_flight_ < slots_.size()) {
    Slot& slot = free_slot();
    const Leg chunk = next_chunk(transfer);
    if (chunk.from == Place::unpinned)
      if (transfer.error = copy_checked(slot.bounce_in, chunk.source, chunk.length, true); transfer.error != 0) return;
    const char* call = nullptr;
    if (const CudaResult result = submit(slot, chunk, call); result != cuda::kSuccess)
      return fail(transfer, result, call);
    slot.transfer = &transfer;
    slot.chunk = chunk;
    ++in_flight_;
    ++transfer.in_flight;
    transfer.offset += chunk.length;
    if (transfer.offset == transfer.legs[transfer.leg].length) ++transfer.leg, transfer.offset = 0;
  }
}

// ---- ending

CudaResult CudaPipeline::wait_for_oldest(const std::function<bool()>& interrupted) {
  const std::uint64_t start = Clock::steady().now_ns();
  do {
    const CudaResult result = driver_.event_query(oldest().done);
    if (result != cuda::kNotReady) return result;
    if (interrupted()) return result;
    cpu_relax();
  } while (Clock::steady().now_ns() - start < tuning_.spin_ns);
  return driver_.event_synchronize(oldest().done);
}

void CudaPipeline::retire_oldest() {
  Slot& slot = oldest();
  Transfer& transfer = *std::exchange(slot.transfer, nullptr);
  first_ = (first_ + 1) % slots_.size();
  --in_flight_;
  --transfer.in_flight;
  if (transfer.error == 0 && slot.chunk.to == Place::unpinned)
    transfer.error = copy_checked(slot.chunk.destination, slot.bounce_out, slot.chunk.length, false);
  if (transfer.error != 0) return;
  transfer.bytes_ready += slot.chunk.length;
  transfer.operation->advance(transfer.bytes_ready);
}

CudaPipeline::Ended CudaPipeline::take_ended() {
  const auto ended = std::find_if(transfers_.begin(), transfers_.end(), [](const std::unique_ptr<Transfer>& transfer) {
    return transfer->issued() && transfer->in_flight == 0;
  });
  if (ended == transfers_.end()) return {};
  const Ended end{(*ended)->operation, (*ended)->error};
  transfers_.erase(ended);  // unpins what is not kept
  return end;
}

CudaPipeline::Ended CudaPipeline::advance(const std::function<bool()>& interrupted) {
  issue();
  if (const Ended ended = take_ended(); ended.operation != nullptr || in_flight_ == 0) return ended;
  const CudaResult result = wait_for_oldest(interrupted);
  if (result == cuda::kNotReady) return {};
  if (result != cuda::kSuccess) fail(*oldest().transfer, result, "cuEventQuery");
  if (!lost_) retire_oldest();
  return take_ended();
}

// Part of a chunk may be on its way although its call failed: nothing of the operation may be let go before the device
// has left it alone.
void CudaPipeline::fail(Transfer& transfer, CudaResult result, const char* call) {
  transfer.error = EIO;
  if (cuda::is_fatal(result)) return lose(result);
  log::fault(fmt::format("{}: a copy of {} bytes failed: {}: {}", name_, transfer.operation->length, call,
                         driver_.name_of(result)));
  for (const CudaStream stream : {in_, out_})
    if (const CudaResult outcome = driver_.stream_synchronize(stream); outcome != cuda::kSuccess) return lose(outcome);
}

// The device does nothing for this context any more, so nothing is waited for.
void CudaPipeline::lose(CudaResult result) {
  lost_ = true;
  if (result != cuda::kDeinitialized)  // that is how a program ends
    log::fault(fmt::format("{}: not used any more, its context is lost: {}", name_, driver_.name_of(result)));
  for (const auto& transfer : transfers_) {
    transfer->error = EIO;
    transfer->in_flight = 0;
  }
  for (; in_flight_ > 0; --in_flight_, first_ = (first_ + 1) % slots_.size()) oldest().transfer = nullptr;
}

}  // namespace viaduct::copy
