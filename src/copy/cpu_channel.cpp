#include "copy/cpu_channel.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/topology.hpp"
#include "base/waiter.hpp"

namespace viaduct::copy {

namespace {

// The host program's signals are not for our threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

CpuChannel::CpuChannel(const std::vector<int>& processors, OperationTable& table)
    : table_(table), processors_(processors) {
  work_word_.promise_heavy_fence();
  const SignalsBlocked blocked;
  for (const int processor : processors) {
    try {
      std::thread([this, processor] { work(processor); }).detach();
      ++workers_;
    } catch (const std::system_error& fault) {
      log::fault(fmt::format("copy engine: no worker on processor {}: {}; copies are done by their callers", processor,
                             fault.what()));
      break;
    }
  }
}

std::string CpuChannel::name() const {
  return workers_ == 0 ? "cpu" : fmt::format("cpu {}", fmt::join(processors_, ","));
}

Cost CpuChannel::cost(bool streaming) const {
  static const CostModel common = CostModel::common();
  const CostModel& model = CostModel::measured() ? CostModel::machine() : common;  // this measures nothing
  const Cost& kernel = streaming ? model.stream : model.keep;
  return {awake() ? hand_over_ns() : CostModel::kWakeNs, kernel.ns_per_byte};
}

// A tiny operation through the small lane and back, watched without helping; the best of a few, once the worker spins.
void CpuChannel::measure_hand_over() {
  constexpr std::uint64_t kNobodyComes = 1'000'000;  // ns
  if (workers_ == 0) return;
  double best = 1e18;
  for (int i = 0; i < 12; ++i) {
    OperationRecord* const record = table_.claim();
    if (record == nullptr) return;
    char from = 0, to = 0;
    record->source = reinterpret_cast<const std::byte*>(&from);
    record->destination = reinterpret_cast<std::byte*>(&to);
    record->length = 1;
    record->cut(1);
    const std::uint64_t start = Clock::steady().now_ns();
    submit(*record);
    // This may be the only worker itself, in which a coroutine goes on, or all may be busy: then the guess stays.
    bool in_vain = false;
    while (!record->finished()) {
      if (!in_vain && Clock::steady().now_ns() - start > kNobodyComes) {
        in_vain = true;
        while (help(*record)) continue;
      }
      cpu_relax();
    }
    if (in_vain) return table_.drop(*record);
    best = std::min(best, static_cast<double>(Clock::steady().now_ns() - start));
    table_.drop(*record);
  }
  hand_over_ns_.store(best, std::memory_order_relaxed);
}

void CpuChannel::submit(OperationRecord& operation) {
  const bool small = operation.length <= kSmall;
  queued_.fetch_add(operation.length, std::memory_order_relaxed);
  // Each worker may join in a long operation: one entry, and one reference, for each.
  const std::size_t useful = std::max<std::size_t>(1, operation.length / kChunk);
  const int entries = small ? 1 : static_cast<int>(std::min<std::size_t>(useful, static_cast<std::size_t>(workers_)));
  operation.add_references(static_cast<std::uint32_t>(entries));
  int placed = 0;
  while (placed < entries && (small ? small_ : bulk_).try_push(&operation)) ++placed;
  if (placed > 0) {
    work_word_.wake_if_armed();
  } else {
    while (help(operation)) continue;  // the queue is full: the submitter does it
  }
  for (; placed < entries; ++placed) table_.drop(operation);
}

bool CpuChannel::help(OperationRecord& operation) {
  Chunk chunk;
  std::uint32_t index = 0;
  if (!operation.take_chunk(chunk, index)) return false;
  move_bytes(operation.manner, chunk, Copier::shared);
  queued_.fetch_sub(chunk.length, std::memory_order_relaxed);
  if (operation.chunk_done(index)) operation.finish(0);
  return true;
}

// Everything of the small lane first, then one chunk of a long operation, and so on until that one has no chunk left.
bool CpuChannel::work_once() {
  OperationRecord* operation = nullptr;
  const auto do_small = [&] {
    OperationRecord* next = nullptr;
    bool did = false;
    while (small_.try_pop(next)) {
      while (help(*next)) continue;
      table_.drop(*next);
      did = true;
    }
    return did;
  };
  const bool did_small = do_small();
  if (!bulk_.try_pop(operation)) return did_small;
  while (help(*operation)) do_small();
  table_.drop(*operation);
  return true;
}

void CpuChannel::work(int processor) {
  ::pthread_setname_np(::pthread_self(), "viaduct-copy");
  if (auto pinned = pin_this_thread(processor); !pinned) log::detail(pinned.error().message());
  // Ten times what others spin: waking a parked worker costs its caller tens of microseconds of each copy in a loop.
  Waiter waiter(std::max<std::uint64_t>(Config::process().number("VIADUCT_SPIN_US"), 1) * 10'000);
  FutexSleeper futex;
  awake_.fetch_add(1, std::memory_order_relaxed);
  const auto has_work = [this] { return !small_.empty() || !bulk_.empty(); };
  // A worker that begins to sleep is no longer awake: the sleeper below is where that happens.
  class CountingSleeper final : public Sleeper {
   public:
    CountingSleeper(std::atomic<int>& awake, Sleeper& inner) : awake_(awake), inner_(inner) {}
    SleepResult sleep(WaitWord& word, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
      awake_.fetch_sub(1, std::memory_order_relaxed);
      const SleepResult result = inner_.sleep(word, armed, deadline, clock);
      awake_.fetch_add(1, std::memory_order_relaxed);
      return result;
    }

   private:
    std::atomic<int>& awake_;
    Sleeper& inner_;
  } sleeper(awake_, futex);
  for (;;) {
    while (work_once()) continue;
    (void)waiter.wait(work_word_, sleeper, Deadline::never(), has_work);
  }
}

}  // namespace viaduct::copy
