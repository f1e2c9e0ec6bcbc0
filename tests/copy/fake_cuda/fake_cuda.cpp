// libcuda for tests: the functions that Viaduct uses, on a device made of a file and threads.
//
// As strict as the real one where that finds mistakes: host memory must be pinned to be copied asynchronously, most
// calls need a current context, a range is registered once, and a forked child may not use what its parent initialised.
#include "copy/fake_cuda/fake_cuda.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "copy/fake_cuda/device_memory.hpp"
#include "copy/fake_cuda/pinned_memory.hpp"
#include "copy/fake_cuda/stream.hpp"

namespace fake_cuda {

namespace {

using Result = int;
constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidContext = 201, kNotReady = 600,
                 kAlreadyRegistered = 712, kNotRegistered = 713, kIllegalAddress = 700;

struct Rule {
  int calls = 0;
  int from = 0, until = 0, code = 0;  // by the count of calls
};

struct State {
  PinnedMemory pinned;
  DeviceMemory memory;
  std::atomic<int> initialized_in{0};  // a process
  std::atomic<int> devices{1}, copy_engines{2}, delay_us{0}, retained{0};
  std::atomic<int> pending{0}, most_pending{0}, going_in{0}, going_out{0}, both_ways{0};
  std::atomic<bool> broken{false};  // a copy failed after it was handed over: nothing works any more

  std::mutex rules_mutex;
  std::map<std::string, Rule> rules;

  Result count(const char* function) {
    const std::lock_guard lock(rules_mutex);
    Rule& rule = rules[function];
    ++rule.calls;
    return rule.calls >= rule.from && rule.calls < rule.until ? rule.code : 0;
  }
};

State& state() {
  static State* const instance = new State;  // threads may use it until the very end
  return *instance;
}

thread_local void* current_context = nullptr;
int context_object = 0;

enum class Needs { nothing, driver, clean_up, context };

Result enter(const char* function, Needs needs) {
  if (const Result injected = state().count(function); injected != 0) return injected;
  if (needs == Needs::nothing) return 0;
  if (state().initialized_in.load() != ::getpid()) return kNotInitialized;
  if (needs == Needs::driver) return 0;
  if (current_context == nullptr) return kInvalidContext;
  return needs == Needs::context && state().broken.load() ? kIllegalAddress : 0;
}

void note_most(std::atomic<int>& most, int value) {
  int seen = most.load();
  while (value > seen && !most.compare_exchange_weak(seen, value)) continue;
}

// One copy on a stream. `mine` counts copies of its direction, `other` those of the other.
template <class Copy>
void hand_over(Stream* stream, std::atomic<int>& mine, std::atomic<int>& other, Copy copy) {
  State& now = state();
  note_most(now.most_pending, ++now.pending);
  stream->add([&now, &mine, &other, copy] {
    ++mine;
    if (other.load() > 0) ++now.both_ways;
    if (const int delay = now.delay_us.load(); delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    if (!copy()) now.broken = true;
    --mine;
    --now.pending;
  });
}

const FakeCudaControls kControls = {
    .fail =
        [](const char* function, int first, int count, int code) {
          const std::lock_guard lock(state().rules_mutex);
          Rule& rule = state().rules[function];
          rule.from = rule.calls + first;
          rule.until = rule.from + count;
          rule.code = code;
        },
    .calls =
        [](const char* function) {
          const std::lock_guard lock(state().rules_mutex);
          return state().rules[function].calls;
        },
    .set_devices = [](int count) { state().devices = count; },
    .set_copy_engines = [](int count) { state().copy_engines = count; },
    .set_copy_delay_us = [](int delay) { state().delay_us = delay; },
    .most_pending = [] { return state().most_pending.load(); },
    .both_ways = [] { return state().both_ways.load(); },
    .registered = [] { return state().pinned.count(); },
    .can_pin =
        [] {
          constexpr std::size_t kEnough = std::size_t{128} << 20;  // more than RLIMIT_MEMLOCK often allows
          void* const trial = ::mmap(nullptr, kEnough, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          const auto begin = reinterpret_cast<std::uintptr_t>(trial);
          const bool pinned = state().pinned.open() && state().pinned.pin(begin, kEnough) == 0;
          if (pinned) state().pinned.unpin(begin);
          ::munmap(trial, kEnough);
          return pinned;
        },
    .reset =
        [] {
          State& now = state();
          const std::lock_guard lock(now.rules_mutex);
          now.rules.clear();
          now.devices = 1;
          now.copy_engines = 2;
          now.delay_us = now.most_pending = now.both_ways = 0;
          now.broken = false;
        },
};

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

#define FAKE_API extern "C" __attribute__((visibility("default")))
#define FAKE_ENTER(function, needs) \
  if (const Result refused = enter(function, Needs::needs); refused != 0) return refused

FAKE_API const FakeCudaControls* fake_cuda_controls() {
  return &kControls;
}

// ---- devices and contexts

FAKE_API Result cuInit(unsigned) {
  FAKE_ENTER("cuInit", nothing);
  int nobody = 0;
  if (state().initialized_in.compare_exchange_strong(nobody, ::getpid()))
    return state().pinned.open() && state().memory.open() ? 0 : 100;
  return nobody == ::getpid() ? 0 : kNotInitialized;
}
FAKE_API Result cuDeviceGetCount(int* count) {
  FAKE_ENTER("cuDeviceGetCount", driver);
  *count = state().devices;
  return 0;
}
FAKE_API Result cuDeviceGet(int* device, int ordinal) {
  FAKE_ENTER("cuDeviceGet", driver);
  *device = ordinal;
  return ordinal < state().devices ? 0 : 101;
}
FAKE_API Result cuDeviceGetName(char* name, int size, int) {
  FAKE_ENTER("cuDeviceGetName", driver);
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return 0;
}
FAKE_API Result cuDeviceGetAttribute(int* value, int attribute, int) {
  FAKE_ENTER("cuDeviceGetAttribute", driver);
  if (attribute != 40) return kInvalidValue;
  *value = state().copy_engines;
  return 0;
}
FAKE_API Result cuDevicePrimaryCtxRetain(void** context, int) {
  FAKE_ENTER("cuDevicePrimaryCtxRetain", driver);
  ++state().retained;
  *context = &context_object;
  return 0;
}
FAKE_API Result cuDevicePrimaryCtxRelease_v2(int) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease", driver);
  --state().retained;
  return 0;
}
FAKE_API Result cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  FAKE_ENTER("cuDevicePrimaryCtxGetState", driver);
  *flags = 0;
  *active = state().retained > 0 ? 1 : 0;
  return 0;
}
FAKE_API Result cuCtxSetCurrent(void* context) {
  FAKE_ENTER("cuCtxSetCurrent", driver);
  current_context = context;
  return 0;
}
// One level is as deep as anybody goes.
thread_local void* context_below = nullptr;
FAKE_API Result cuCtxPushCurrent_v2(void* context) {
  FAKE_ENTER("cuCtxPushCurrent", driver);
  context_below = current_context;
  current_context = context;
  return 0;
}
FAKE_API Result cuCtxPopCurrent_v2(void** context) {
  FAKE_ENTER("cuCtxPopCurrent", driver);
  *context = current_context;
  current_context = context_below;
  return 0;
}

// ---- memory

FAKE_API Result cuMemAlloc_v2(std::uint64_t* memory, std::size_t size) {
  FAKE_ENTER("cuMemAlloc", context);
  *memory = state().memory.allocate(size);
  return *memory != 0 ? 0 : kOutOfMemory;
}
FAKE_API Result cuMemFree_v2(std::uint64_t memory) {
  FAKE_ENTER("cuMemFree", clean_up);
  return state().memory.free(memory) ? 0 : kInvalidValue;
}
FAKE_API Result cuMemHostRegister_v2(void* memory, std::size_t size, unsigned) {
  FAKE_ENTER("cuMemHostRegister", context);
  switch (state().pinned.pin(reinterpret_cast<std::uintptr_t>(memory), size)) {
    case 0:
      return 0;
    case EALREADY:
      return kAlreadyRegistered;
    case ENOMEM:
      return kOutOfMemory;
    default:
      return kInvalidValue;
  }
}
FAKE_API Result cuMemHostUnregister(void* memory) {
  FAKE_ENTER("cuMemHostUnregister", clean_up);
  return state().pinned.unpin(reinterpret_cast<std::uintptr_t>(memory)) ? 0 : kNotRegistered;
}
FAKE_API Result cuPointerGetAttribute(void* value, int attribute, std::uint64_t pointer) {
  FAKE_ENTER("cuPointerGetAttribute", driver);
  std::uintptr_t begin = 0;
  std::size_t length = 0;
  const bool on_device = state().memory.range_of(pointer, begin, length);
  if (!on_device && !state().pinned.range_of(pointer, begin, length)) return kInvalidValue;
  const unsigned type = on_device ? 2 : 1;
  if (attribute == 2)
    std::memcpy(value, &type, sizeof type);
  else if (attribute == 11)
    std::memcpy(value, &begin, sizeof begin);
  else if (attribute == 12)
    std::memcpy(value, &length, sizeof length);
  else
    return kInvalidValue;
  return 0;
}

// ---- copies

FAKE_API Result cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t size, Stream* stream) {
  FAKE_ENTER("cuMemcpyHtoDAsync", context);
  State& now = state();
  if (!now.memory.covers(to, size) || !now.pinned.covers(reinterpret_cast<std::uintptr_t>(from), size))
    return kInvalidValue;
  hand_over(stream, now.going_in, now.going_out, [&now, to, from, size] {
    return now.pinned.write_to_file(now.memory.file(), now.memory.offset_of(to), from, size);
  });
  return 0;
}
FAKE_API Result cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t size, Stream* stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync", context);
  State& now = state();
  if (!now.memory.covers(from, size) || !now.pinned.covers(reinterpret_cast<std::uintptr_t>(to), size))
    return kInvalidValue;
  hand_over(stream, now.going_out, now.going_in, [&now, to, from, size] {
    return now.pinned.read_from_file(now.memory.file(), now.memory.offset_of(from), to, size);
  });
  return 0;
}
FAKE_API Result cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t size, Stream* stream) {
  FAKE_ENTER("cuMemcpyDtoDAsync", context);
  State& now = state();
  if (!now.memory.covers(from, size) || !now.memory.covers(to, size)) return kInvalidValue;
  hand_over(stream, now.going_in, now.going_out, [&now, to, from, size] { return now.memory.copy(to, from, size); });
  return 0;
}

// ---- streams and events

FAKE_API Result cuStreamCreate(Stream** stream, unsigned) {
  FAKE_ENTER("cuStreamCreate", context);
  *stream = new Stream;
  return 0;
}
FAKE_API Result cuStreamDestroy_v2(Stream* stream) {
  FAKE_ENTER("cuStreamDestroy", clean_up);
  delete stream;
  return 0;
}
FAKE_API Result cuStreamSynchronize(Stream* stream) {
  FAKE_ENTER("cuStreamSynchronize", context);
  stream->wait_until_idle();
  return state().broken ? kIllegalAddress : 0;
}
FAKE_API Result cuStreamQuery(Stream* stream) {
  FAKE_ENTER("cuStreamQuery", context);
  return stream->idle() ? 0 : kNotReady;
}
FAKE_API Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  FAKE_ENTER("cuStreamWaitEvent", context);
  stream->add([shared = event->state, until = event->state->last_recorded()] { shared->wait_for(until); });
  return 0;
}
FAKE_API Result cuEventCreate(Event** event, unsigned) {
  FAKE_ENTER("cuEventCreate", context);
  *event = new Event;
  return 0;
}
FAKE_API Result cuEventDestroy_v2(Event* event) {
  FAKE_ENTER("cuEventDestroy", clean_up);
  delete event;
  return 0;
}
FAKE_API Result cuEventRecord(Event* event, Stream* stream) {
  FAKE_ENTER("cuEventRecord", context);
  std::uint64_t mark = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    mark = ++event->state->recorded;
  }
  stream->add([shared = event->state, mark] { shared->reach(mark); });
  return 0;
}
FAKE_API Result cuEventQuery(Event* event) {
  FAKE_ENTER("cuEventQuery", context);
  return event->state->complete() ? 0 : kNotReady;
}
FAKE_API Result cuEventSynchronize(Event* event) {
  FAKE_ENTER("cuEventSynchronize", context);
  event->state->wait_for(event->state->last_recorded());
  return state().broken ? kIllegalAddress : 0;
}

// ---- errors

FAKE_API Result cuGetErrorName(Result code, const char** name) {
  static const std::map<Result, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},     {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"},   {201, "CUDA_ERROR_INVALID_CONTEXT"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {999, "CUDA_ERROR_UNKNOWN"},
  };
  const auto found = names.find(code);
  if (found == names.end()) return kInvalidValue;
  *name = found->second;
  return 0;
}
FAKE_API Result cuGetErrorString(Result code, const char** text) {
  return cuGetErrorName(code, text);
}
