#include "copy/engine.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/config.hpp"
#include "base/counters.hpp"
#include "base/log.hpp"
#include "base/topology.hpp"
#include "base/waiter.hpp"
#include "copy/cost_model.hpp"
#include "copy/kernels.hpp"

namespace viaduct::copy {

namespace {

// Sizes below which nothing is measured or decided: the caller copies.
constexpr std::size_t kAlwaysHere = 8 << 10;
// From here on a blocking copy is shared with a worker that spins; from kWakeFrom on a parked one is woken for it.
constexpr std::size_t kShareFrom = 128 << 10;
constexpr std::size_t kWakeFrom = 512 << 10;
// Where a GPU may begin to win.
constexpr std::size_t kGpuFrom = 1 << 20;
// So much must have been decided by the costs of a common machine before this one is measured: a program that copies
// little has no use for it.
constexpr std::size_t kWorthMeasuring = std::size_t{64} << 20;
constexpr std::size_t kLongest = std::size_t{1} << 47;  // the address space: a length beyond it is a mistake

std::mutex instance_mutex;
std::atomic<Engine*> instance{nullptr};

std::uint32_t fresh_generation() {
  std::uint32_t value = 0;
  if (::getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
    value = static_cast<std::uint32_t>(::getpid()) * 2654435761u;
  return value;
}

// Where workers run: as configured, or on the processors of this process that the first caller is not using. The first
// few only: two or three threads use all the bandwidth that memory has.
std::vector<int> worker_processors() {
  const std::string_view configured = Config::process().text("VIADUCT_COPY_PROCESSORS");
  if (configured == "none") return {};
  const Topology& topology = Topology::machine();
  if (configured != "auto") {
    auto chosen = topology.parse_processors(configured);
    if (chosen) return *chosen;
    log::fault(chosen.error().because("VIADUCT_COPY_PROCESSORS").message() + "; chosen automatically");
  }
  constexpr std::size_t kMostWorkers = 3;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(::getpid(), sizeof allowed, &allowed) != 0) return {};
  const int here = ::sched_getcpu();
  std::vector<int> processors;
  for (const int processor : topology.processors())
    if (processor != here && CPU_ISSET(processor, &allowed)) processors.push_back(processor);
  const auto near = [&](int processor) { return topology.shared_cache_level(here, processor) != 0; };
  std::stable_partition(processors.begin(), processors.end(), near);
  if (processors.size() > kMostWorkers) processors.resize(kMostWorkers);
  return processors;
}

bool overlap(const Piece& piece) {
  const auto from = reinterpret_cast<std::uintptr_t>(piece.source),
             to = reinterpret_cast<std::uintptr_t>(piece.destination);
  return from < to + piece.length && to < from + piece.length;
}

// 0, or why the request cannot be served.
int check_request(const Engine::Request& request, std::size_t& length) {
  length = 0;
  for (const Piece& piece : request.pieces) {
    if (piece.length == 0) continue;
    if (piece.destination == nullptr || (request.work == Work::copy && piece.source == nullptr)) return EFAULT;
    if (piece.length > kLongest || length > kLongest) return EINVAL;
    length += piece.length;
  }
  return 0;
}

void move_pieces(const Manner& manner, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces)
    if (piece.length > 0)
      move_bytes(
          manner,
          {static_cast<const std::byte*>(piece.source), static_cast<std::byte*>(piece.destination), piece.length},
          Copier::alone);
}

Waiter& waiter_of_this_thread() {
  thread_local Waiter waiter(Config::process().number("VIADUCT_SPIN_US") * 1000);
  return waiter;
}

}  // namespace

Engine& Engine::process() {
  if (Engine* const engine = instance.load(std::memory_order_acquire)) return *engine;
  const std::lock_guard lock(instance_mutex);
  if (Engine* const engine = instance.load(std::memory_order_acquire)) return *engine;
  static const int hooked = ::pthread_atfork([] { instance_mutex.lock(); }, [] { instance_mutex.unlock(); },
                                             [] { abandon_in_child(), instance_mutex.unlock(); });
  (void)hooked;
  auto* const engine = new Engine(fresh_generation());  // never destroyed: its workers run until the process ends
  instance.store(engine, std::memory_order_release);
  return *engine;
}

// The workers did not come along and locks may be held by threads that no longer exist: leave everything as it is.
void Engine::abandon_in_child() {
  instance.store(nullptr, std::memory_order_release);
}

Engine::Engine(std::uint32_t generation)
    : table_(generation), cpu_(std::make_unique<CpuChannel>(worker_processors(), table_)) {
  OperationRecord::after_finish.store([] {
    if (Engine* const engine = instance.load(std::memory_order_acquire)) engine->dispatch_held();
  });
}

// ---- order

void Engine::gather_predecessors(OperationRecord& record, const Options& options) {
  if (options.order == Order::after) {
    record.after.push_back(options.after);
  } else if (options.order == Order::fence) {
    table_.for_each_named([&](Cookie cookie) { record.after.push_back(cookie); });
  }
}

// A cookie that is no longer known was reaped: it has finished.
Engine::Held Engine::unfinished_predecessor(const OperationRecord& record) {
  for (const Cookie cookie : record.after)
    if (Held held = table_.hold(cookie); held && !held->finished()) return held;
  return Held();
}

void Engine::hold_back(OperationRecord& record) {
  {
    const std::lock_guard lock(held_mutex_);
    record.add_references(1);
    held_.push_back(&record);
    held_count_.fetch_add(1, std::memory_order_seq_cst);
  }
  dispatch_held();  // a predecessor may have finished before it could see us
}

// Runs after every end. Dispatching may itself bring ends (small operations are executed at once), in this thread and
// inside this very call: those are noted and looked at by the loop, not by going deeper.
void Engine::dispatch_held() {
  fence::full();  // the end that was just stored, before the look at the list; pairs with hold_back()
  if (held_count_.load(std::memory_order_seq_cst) == 0) return;
  thread_local bool dispatching = false;
  thread_local bool again = false;
  again = true;
  if (dispatching) return;
  dispatching = true;
  while (std::exchange(again, false)) {
    std::vector<OperationRecord*> ready;
    {
      const std::lock_guard lock(held_mutex_);
      const auto waits = [this](OperationRecord* record) { return static_cast<bool>(unfinished_predecessor(*record)); };
      const auto split = std::stable_partition(held_.begin(), held_.end(), waits);
      ready.assign(split, held_.end());
      held_.erase(split, held_.end());
      held_count_.fetch_sub(static_cast<std::uint32_t>(ready.size()), std::memory_order_seq_cst);
    }
    for (OperationRecord* record : ready) {
      dispatch(*record);
      table_.drop(*record);
    }
  }
  dispatching = false;
}

void Engine::dispatch(OperationRecord& record) {
  record.dispatched.store(true, std::memory_order_release);
  if (record.channel != nullptr)
    record.channel->submit(record);
  else
    execute_here(record);
}

// ---- choice

const CostModel& Engine::model() {
  std::call_once(measured_, [this] {
    (void)CostModel::machine();
    cpu_->measure_hand_over();
  });
  return CostModel::machine();
}

const CostModel& Engine::model_for(std::size_t length) {
  static const CostModel common = CostModel::common();
  if (asked_.load(std::memory_order_relaxed) >= kWorthMeasuring) return model();
  asked_.fetch_add(length, std::memory_order_relaxed);
  return common;
}

bool Engine::streams(const Request& request, std::size_t length) {
  if (request.options.intent == Intent::stream) return true;
  if (request.options.intent == Intent::keep || length < (512 << 10)) return false;
  return length >= model_for(length).stream_from;
}

int Engine::choose(const OperationRecord& record, Choice wanted, Channel*& channel) {
  channel = nullptr;
  if (wanted == Choice::caller || record.length == 0) return 0;
  if (wanted == Choice::cuda) {
    Channel* const gpu = cuda(true);
    if (gpu == nullptr) return ENODEV;
    return gpu->accepts(record) ? (channel = gpu, 0) : EINVAL;
  }
  if (wanted == Choice::any && record.length >= kGpuFrom) {
    Channel* const gpu = cuda(false);
    const auto costs = [&](const Channel& each) {
      return each.cost(record.manner.streaming).of(record.length + each.queued_bytes());
    };
    if (gpu != nullptr && gpu->accepts(record) && costs(*gpu) < costs(*cpu_)) return channel = gpu, 0;
  }
  if (!cpu_->accepts(record)) return 0;
  if (wanted == Choice::cpu) return channel = cpu_.get(), 0;
  if (record.length <= kAlwaysHere) return 0;
  // The caller hands over what takes longer to copy than to hand over.
  const CostModel& costs = model_for(record.length);
  const double here = (record.manner.streaming ? costs.stream : costs.keep).of(record.length);
  if (here > (cpu_->awake() ? cpu_->hand_over_ns() : CostModel::kWakeCallNs)) channel = cpu_.get();
  return 0;
}

// ---- operations

namespace {

// For `viaduct top`. Copies that never become operations are not counted: counting would cost as much as they do.
struct Counts {
  Counter operations = counter("copy.operations");
  Counter bytes = counter("copy.bytes");
  Counter at_once = counter("copy.done_by_caller");
  Counter gpu = counter("copy.done_by_gpu");
  Counter waits = counter("copy.waits_for_others");

  static Counts& process() {
    static Counts counts;
    return counts;
  }
};

}  // namespace

Manner Engine::manner_of(const Request& request, std::size_t length) {
  const bool overlapping =
      request.work == Work::copy && std::any_of(request.pieces.begin(), request.pieces.end(), overlap);
  return {request.work, request.fill_byte, streams(request, length), overlapping};
}

Cookie Engine::start(const Request& request) {
  std::size_t length = 0;
  if (const int fault = check_request(request, length); fault != 0) return -fault;
  if (request.options.order == Order::after && !table_.could_be_ours(request.options.after)) return -EINVAL;
  OperationRecord* const record = table_.claim();
  if (record == nullptr) return -EAGAIN;  // thousands of operations whose end nobody asked for

  record->length = length;
  record->manner = manner_of(request, length);
  if (request.pieces.size() == 1) {
    record->source = static_cast<const std::byte*>(request.pieces[0].source);
    record->destination = static_cast<std::byte*>(request.pieces[0].destination);
  } else {
    record->pieces.assign(request.pieces.begin(), request.pieces.end());
  }
  if (const int fault = choose(*record, request.options.channel, record->channel); fault != 0) {
    table_.drop(*record);
    return -fault;
  }
  Counts& counts = Counts::process();
  counts.operations.add();
  counts.bytes.add(length);
  gather_predecessors(*record, request.options);
  const bool ready = record->after.empty() || !unfinished_predecessor(*record);
  if (ready && record->channel == nullptr) {  // done before anybody can know of it
    counts.at_once.add();
    move_pieces(record->manner, request.pieces);
    record->finish_unseen();
    return table_.name(*record, Choice::caller);
  }
  if (length > 0) record->cut(length <= CpuChannel::kSmall ? CpuChannel::kSmall / 2 : CpuChannel::kChunk);
  const Choice channel = record->channel == nullptr ? Choice::caller : record->channel->choice();
  if (channel == Choice::cuda) counts.gpu.add();
  const Held held(&table_,
                  record->try_hold() ? record : nullptr);  // the cookie may be reaped by another thread at once
  const Cookie cookie = table_.name(*record, channel);
  if (ready)
    dispatch(*record);
  else
    hold_back(*record);
  return cookie;
}

void Engine::execute_here(OperationRecord& record) {
  Chunk chunk;
  std::uint32_t index = 0;
  if (record.length == 0) return record.finish(0);
  while (record.take_chunk(chunk, index)) {
    move_bytes(record.manner, chunk, Copier::alone);
    if (record.chunk_done(index)) record.finish(0);
  }
}

int Engine::run(const Request& request) {
  std::size_t length = 0;
  if (const int fault = check_request(request, length); fault != 0) return fault;
  const Choice wanted = request.options.channel;
  const bool plain = request.options.order == Order::unordered && request.pieces.size() == 1 &&
                     (wanted == Choice::any || wanted == Choice::caller) &&
                     !cuda_ready_.load(std::memory_order_acquire);
  if (plain) {
    const Manner manner = manner_of(request, length);
    const bool shared = wanted == Choice::any && manner.streaming && cpu_->workers() > 0 &&
                        length >= (cpu_->awake() ? kShareFrom : kWakeFrom);
    if (!shared) {
      move_pieces(manner, request.pieces);
      return 0;
    }
  }
  const Cookie cookie = start(request);
  return cookie < 0 ? static_cast<int>(-cookie) : -wait(cookie);
}

int Engine::check(Cookie cookie) {
  const Held held = table_.hold(cookie);
  if (!held) return -EINVAL;
  if (!held->finished()) return 0;
  const int error = held->error();
  if (!table_.reap(*held, cookie)) return -EINVAL;  // another thread has reported it
  return error == 0 ? 1 : -error;
}

int Engine::wait(Cookie cookie) {
  const Held held = table_.hold(cookie);
  if (!held) return -EINVAL;
  wait_until_finished(*held);
  const int error = held->error();
  return table_.reap(*held, cookie) ? -error : -EINVAL;
}

// Helps: first with what must come before, then with the operation itself; sleeps only when others have all the rest.
void Engine::wait_until_finished(OperationRecord& record) {
  while (!record.finished()) {
    Held earlier;
    OperationRecord* target = &record;
    while (!target->dispatched.load(std::memory_order_acquire)) {
      Held before = unfinished_predecessor(*target);
      if (!before) {
        dispatch_held();
        break;
      }
      earlier = std::move(before);
      target = &*earlier;
    }
    if (!target->dispatched.load(std::memory_order_acquire)) continue;  // about to be, by whoever finished the last one
    if (target->channel != nullptr && target->channel->help(*target)) continue;
    Counts::process().waits.add();
    FutexSleeper futex;
    (void)waiter_of_this_thread().wait(target->done_word(), futex, Deadline::never(),
                                       [target] { return target->finished(); });
  }
}

std::int64_t Engine::ready_bytes(Cookie cookie) {
  const Held held = table_.hold(cookie);
  if (!held) return -EINVAL;
  return static_cast<std::int64_t>(held->ready_bytes());
}

bool Engine::resume_when_finished(Cookie cookie, std::coroutine_handle<> waiting) {
  const Held held = table_.hold(cookie);
  return held && held->resume_when_finished(waiting);
}

// ---- the GPU

namespace {

// Engine-owned memory changes only when it is freed: it may stay pinned without being watched.
class StableRegions final : public RegionWatcher {
 public:
  explicit StableRegions(CudaChannel& gpu) : gpu_(gpu) {}
  void region_made(const Region& region) override { gpu_.declare_stable(region.base(), region.size()); }
  void region_gone(const Region& region) override { gpu_.retract(region.base(), region.size()); }

 private:
  CudaChannel& gpu_;
};

}  // namespace

// Starting CUDA takes a good part of a second and memory on the GPU: it is done when somebody asks for it, or where the
// program itself has done it already.
CudaChannel* Engine::cuda(bool demanded) {
  if (CudaChannel* const ready = cuda_ready_.load(std::memory_order_acquire)) return ready;
  if (cuda_hopeless_.load(std::memory_order_relaxed)) return nullptr;
  const std::string_view setting = Config::process().text("VIADUCT_COPY_GPU");
  if (setting == "off") return cuda_failed("turned off (VIADUCT_COPY_GPU)");
  if (!demanded && setting == "auto" && !cuda_use_.by_program()) return nullptr;
  const std::lock_guard lock(cuda_mutex_);
  if (cuda_) return cuda_.get();
  auto made = make_cuda_channel(CudaSettings::from_config(), table_);
  if (!made) return cuda_failed(made.error().message());
  cuda_ = std::move(*made);
  stable_regions_ = std::make_unique<StableRegions>(*cuda_);
  RegionHeap::process().tell(*stable_regions_);
  cuda_ready_.store(cuda_.get(), std::memory_order_release);
  return cuda_.get();
}

CudaChannel* Engine::cuda_failed(std::string why) {
  if (!cuda_hopeless_.exchange(true)) log::detail("copy engine, GPU: " + why);
  const std::lock_guard lock(report_mutex_);
  cuda_missing_ = std::move(why);
  return nullptr;
}

std::vector<ChannelReport> Engine::report() {
  const CostModel& costs = model();
  std::vector<ChannelReport> channels;
  channels.push_back({"caller, keep", true, "memcpy, data in the cache", costs.keep.start_ns, costs.keep.ns_per_byte});
  channels.push_back({"caller, stream", true,
                      fmt::format("past the cache ({}); by itself from {} KB on", stream_kernel_name(Copier::alone),
                                  costs.stream_from >> 10),
                      costs.stream.start_ns, costs.stream.ns_per_byte});
  const bool workers = cpu_->workers() > 0;
  channels.push_back({cpu_->name(), workers,
                      workers ? fmt::format("{} worker(s), helped by whoever waits", cpu_->workers())
                              : "no processor to spare: every copy is done by its caller",
                      cpu_->hand_over_ns(), costs.stream.ns_per_byte});
  CudaChannel* const gpu = cuda(true);
  const std::lock_guard lock(report_mutex_);
  const Cost cost = gpu == nullptr ? Cost{} : gpu->cost(true);
  channels.push_back({gpu == nullptr ? "cuda" : gpu->name(), gpu != nullptr,
                      gpu == nullptr ? cuda_missing_ : gpu->detail(), cost.start_ns, cost.ns_per_byte});
  return channels;
}

}  // namespace viaduct::copy
