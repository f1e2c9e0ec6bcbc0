#include "copy/engine.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/config.hpp"
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
constexpr std::size_t kLongest = std::size_t{1} << 47;  // the address space: a length beyond it is a mistake

std::mutex instance_mutex;
std::atomic<Engine*> instance{nullptr};

constexpr int kGenerationShift = 32;
constexpr int kChannelShift = 56;
constexpr std::uint32_t kGenerationMask = (1u << 24) - 1;

std::uint32_t fresh_generation() {
  std::uint32_t value = 0;
  if (::getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
    value = static_cast<std::uint32_t>(::getpid()) * 2654435761u;
  return (value & kGenerationMask) | 1;
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
    : generation_(generation),
      slots_(std::make_unique<OperationRecord[]>(kSlots)),
      cpu_(std::make_unique<CpuChannel>(worker_processors())) {
  for (std::uint32_t i = 0; i < kSlots; ++i) slots_[i].done_word().promise_heavy_fence();
  OperationRecord::after_finish.store([] {
    if (Engine* const engine = instance.load(std::memory_order_acquire)) engine->dispatch_held();
  });
}

// ---- slots and cookies

OperationRecord* Engine::claim_slot(std::uint32_t& sequence) {
  for (std::uint32_t tries = 0; tries < kSlots; ++tries) {
    sequence = next_sequence_.fetch_add(1, std::memory_order_relaxed);
    if (OperationRecord& record = slots_[sequence % kSlots]; record.try_claim()) return &record;
  }
  return nullptr;
}

Cookie Engine::name(OperationRecord& record, std::uint32_t sequence, Choice channel) {
  const Cookie cookie = static_cast<Cookie>(channel) << kChannelShift |
                        static_cast<Cookie>(generation_) << kGenerationShift | static_cast<Cookie>(sequence);
  record.cookie.store(cookie, std::memory_order_release);
  return cookie;
}

// 0 is the cookie of what has ended already.
bool Engine::ours(Cookie cookie) const {
  return cookie == 0 ||
         (cookie > 0 && (static_cast<std::uint32_t>(cookie >> kGenerationShift) & kGenerationMask) == generation_);
}

// A cookie stands in its slot until it is reaped, and its own reference keeps the record alive until then.
Engine::Held Engine::hold(Cookie cookie) {
  if (cookie == 0 || !ours(cookie)) return Held();
  OperationRecord& record = slots_[static_cast<std::uint32_t>(cookie) % kSlots];
  if (!record.try_hold()) return Held();
  Held held(&record);
  if (record.cookie.load(std::memory_order_acquire) != cookie) return Held();
  return held;
}

// Of several threads that see the end of one operation, one gives up the cookie's reference; all report the same.
int Engine::report_end(OperationRecord& record, Cookie cookie) {
  const int error = record.error();
  if (record.cookie.compare_exchange_strong(cookie, 0, std::memory_order_acq_rel)) record.drop();
  return error;
}

// ---- order

void Engine::gather_predecessors(OperationRecord& record, const Options& options) {
  if (options.order == Order::after) {
    record.after.push_back(options.after);
  } else if (options.order == Order::fence) {
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      const Cookie cookie = slots_[i].cookie.load(std::memory_order_acquire);
      if (cookie != 0 && !slots_[i].finished()) record.after.push_back(cookie);
    }
  }
}

// A cookie that is no longer known was reaped: it has finished.
Engine::Held Engine::unfinished_predecessor(const OperationRecord& record) {
  for (const Cookie cookie : record.after)
    if (Held held = hold(cookie); held && !held->finished()) return held;
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
      record->drop();
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

bool Engine::streams(const Request& request, std::size_t length) const {
  if (request.options.intent == Intent::stream) return true;
  if (request.options.intent == Intent::keep || length < (512 << 10)) return false;
  return length >= CostModel::machine().stream_from;
}

int Engine::choose(const OperationRecord& record, Choice wanted, Channel*& channel) {
  channel = nullptr;
  if (wanted == Choice::caller || record.length == 0) return 0;
  if (wanted == Choice::cuda || (wanted == Choice::any && cuda_ready_.load(std::memory_order_acquire))) {
    Channel* const gpu = cuda(wanted == Choice::cuda);
    if (wanted == Choice::cuda && gpu == nullptr) return ENODEV;
    if (wanted == Choice::cuda && !gpu->accepts(record)) return EINVAL;
    if (wanted == Choice::cuda) return channel = gpu, 0;
    if (gpu != nullptr && gpu->accepts(record) && must_use_gpu(record)) return channel = gpu, 0;
    if (gpu != nullptr && gpu->accepts(record) && record.length > kWakeFrom) {
      const double there = gpu->cost(record.streaming).of(record.length + gpu->queued_bytes());
      if (there < cpu_->cost(record.streaming).of(record.length + cpu_->queued_bytes())) return channel = gpu, 0;
    }
  }
  if (!cpu_->accepts(record)) return 0;
  if (wanted == Choice::cpu) return channel = cpu_.get(), 0;
  if (record.length <= kAlwaysHere) return 0;
  // The caller hands over what takes longer to copy than to hand over.
  const CostModel& model = CostModel::machine();
  const double here = (record.streaming ? model.stream : model.keep).of(record.length);
  if (here > (cpu_->awake() ? model.hand_over_ns : CostModel::kWakeCallNs)) channel = cpu_.get();
  return 0;
}

// ---- operations

Cookie Engine::start(const Request& request) {
  std::size_t length = 0;
  if (const int fault = check_request(request, length); fault != 0) return -fault;
  if (request.options.order == Order::after && !ours(request.options.after)) return -EINVAL;
  std::uint32_t sequence = 0;
  OperationRecord* const record = claim_slot(sequence);
  if (record == nullptr) return -EAGAIN;  // thousands of operations whose end nobody asked for

  record->work = request.work;
  record->fill_byte = request.fill_byte;
  record->length = length;
  record->streaming = streams(request, length);
  if (request.pieces.size() == 1) {
    record->source = static_cast<const std::byte*>(request.pieces[0].source);
    record->destination = static_cast<std::byte*>(request.pieces[0].destination);
  } else {
    record->pieces.assign(request.pieces.begin(), request.pieces.end());
  }
  if (request.work == Work::copy)
    record->overlapping = std::any_of(request.pieces.begin(), request.pieces.end(), overlap);
  if (const int fault = choose(*record, request.options.channel, record->channel); fault != 0) {
    record->drop();
    return -fault;
  }
  if (length > 0) record->cut(length <= CpuChannel::kSmall ? CpuChannel::kSmall / 2 : CpuChannel::kChunk);
  gather_predecessors(*record, request.options);
  const Choice channel = record->channel == nullptr ? Choice::caller : record->channel->choice();
  const Held held(record->try_hold() ? record : nullptr);  // the cookie may be reaped by another thread at once
  const Cookie cookie = name(*record, sequence, channel);
  if (!record->after.empty() && unfinished_predecessor(*record))
    hold_back(*record);
  else
    dispatch(*record);
  return cookie;
}

void Engine::execute_here(OperationRecord& record) {
  Chunk chunk;
  std::uint32_t index = 0;
  if (record.length == 0) return record.finish(0);
  while (record.take_chunk(chunk, index)) {
    CpuChannel::execute(record, chunk);
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
    const bool streaming = streams(request, length);
    const bool shared =
        wanted == Choice::any && streaming && cpu_->workers() > 0 && length >= (cpu_->awake() ? kShareFrom : kWakeFrom);
    if (!shared) {
      OperationRecord record;
      record.work = request.work;
      record.fill_byte = request.fill_byte;
      record.streaming = streaming;
      record.overlapping = request.work == Work::copy && overlap(request.pieces[0]);
      const Piece& piece = request.pieces[0];
      if (length > 0)
        CpuChannel::execute(
            record, {static_cast<const std::byte*>(piece.source), static_cast<std::byte*>(piece.destination), length});
      return 0;
    }
  }
  const Cookie cookie = start(request);
  return cookie < 0 ? static_cast<int>(-cookie) : -wait(cookie);
}

int Engine::check(Cookie cookie) {
  const Held held = hold(cookie);
  if (!held) return -EINVAL;
  if (!held->finished()) return 0;
  const int error = report_end(*held, cookie);
  return error == 0 ? 1 : -error;
}

int Engine::wait(Cookie cookie) {
  const Held held = hold(cookie);
  if (!held) return -EINVAL;
  wait_until_finished(*held);
  return -report_end(*held, cookie);
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
    FutexSleeper futex;
    (void)waiter_of_this_thread().wait(target->done_word(), futex, Deadline::never(),
                                       [target] { return target->finished(); });
  }
}

std::int64_t Engine::ready_bytes(Cookie cookie) {
  const Held held = hold(cookie);
  if (!held) return -EINVAL;
  return static_cast<std::int64_t>(held->ready_bytes());
}

bool Engine::resume_when_finished(Cookie cookie, std::coroutine_handle<> waiting) {
  const Held held = hold(cookie);
  return held && held->resume_when_finished(waiting);
}

// ---- the GPU

bool Engine::must_use_gpu(const OperationRecord&) const {
  return false;
}

Channel* Engine::cuda(bool) {
  return nullptr;
}

std::vector<ChannelReport> Engine::report() {
  const CostModel& model = CostModel::machine();
  std::vector<ChannelReport> channels;
  const std::string kernel = kernels().name;
  channels.push_back(
      {"caller, keep", true, kernel + " kernels, data in the cache", model.keep.start_ns, model.keep.ns_per_byte});
  channels.push_back({"caller, stream", true,
                      fmt::format("past the cache; by itself from {} KB on", model.stream_from >> 10),
                      model.stream.start_ns, model.stream.ns_per_byte});
  const bool workers = cpu_->workers() > 0;
  channels.push_back({cpu_->name(), workers,
                      workers ? fmt::format("{} worker(s), helped by whoever waits", cpu_->workers())
                              : "no processor to spare: every copy is done by its caller",
                      model.hand_over_ns, model.stream.ns_per_byte});
  return channels;
}

}  // namespace viaduct::copy
