// The CUDA driver's functions, found at run time: nothing of CUDA is needed to build, and a machine without it loses
// only this channel. The types and numbers below are the driver's binary interface.
//
// Thread safety: the table is constant once loaded; the driver's functions may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace viaduct::copy {

using CudaResult = int;
using CudaDevice = int;
using CudaContext = struct CudaContextTag*;
using CudaStream = struct CudaStreamTag*;
using CudaEvent = struct CudaEventTag*;
using CudaAddress = std::uint64_t;  // of device memory; equal to the pointer a program has for it

namespace cuda {

constexpr CudaResult kSuccess = 0;
constexpr CudaResult kOutOfMemory = 2;
constexpr CudaResult kDeinitialized = 4;
constexpr CudaResult kNotReady = 600;
constexpr CudaResult kAlreadyRegistered = 712;

constexpr int kAsyncEngineCount = 40;  // attribute of a device
constexpr int kMemoryType = 2;         // attributes of a pointer
constexpr int kRangeStart = 11;
constexpr int kRangeSize = 12;
constexpr unsigned kTypeDevice = 2;  // a value of kMemoryType

constexpr unsigned kStreamNonBlocking = 1;  // takes no part in the program's default stream
constexpr unsigned kEventBlockingSync = 1;  // waiting for it sleeps
constexpr unsigned kEventNoTiming = 2;
constexpr unsigned kHostRegisterPortable = 1;  // pinned for every context

// Every later call fails as well: the context is lost.
bool is_fatal(CudaResult result);

}  // namespace cuda

// Name in the table, name in the library, parameters.
#define VIADUCT_CUDA_FUNCTIONS(F)                                                                                 \
  F(init, "cuInit", (unsigned flags))                                                                             \
  F(device_count, "cuDeviceGetCount", (int* count))                                                               \
  F(device_get, "cuDeviceGet", (CudaDevice * device, int ordinal))                                                \
  F(device_name, "cuDeviceGetName", (char* name, int size, CudaDevice device))                                    \
  F(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, CudaDevice device))                     \
  F(primary_retain, "cuDevicePrimaryCtxRetain", (CudaContext * context, CudaDevice device))                       \
  F(primary_release, "cuDevicePrimaryCtxRelease_v2", (CudaDevice device))                                         \
  F(primary_state, "cuDevicePrimaryCtxGetState", (CudaDevice device, unsigned* flags, int* active))               \
  F(set_current, "cuCtxSetCurrent", (CudaContext context))                                                        \
  F(push_current, "cuCtxPushCurrent_v2", (CudaContext context))                                                   \
  F(pop_current, "cuCtxPopCurrent_v2", (CudaContext * context))                                                   \
  F(mem_alloc, "cuMemAlloc_v2", (CudaAddress * memory, std::size_t size))                                         \
  F(mem_free, "cuMemFree_v2", (CudaAddress memory))                                                               \
  F(host_register, "cuMemHostRegister_v2", (void* memory, std::size_t size, unsigned flags))                      \
  F(host_unregister, "cuMemHostUnregister", (void* memory))                                                       \
  F(copy_in, "cuMemcpyHtoDAsync_v2", (CudaAddress to, const void* from, std::size_t size, CudaStream stream))     \
  F(copy_out, "cuMemcpyDtoHAsync_v2", (void* to, CudaAddress from, std::size_t size, CudaStream stream))          \
  F(copy_within, "cuMemcpyDtoDAsync_v2", (CudaAddress to, CudaAddress from, std::size_t size, CudaStream stream)) \
  F(stream_create, "cuStreamCreate", (CudaStream * stream, unsigned flags))                                       \
  F(stream_destroy, "cuStreamDestroy_v2", (CudaStream stream))                                                    \
  F(stream_synchronize, "cuStreamSynchronize", (CudaStream stream))                                               \
  F(stream_query, "cuStreamQuery", (CudaStream stream))                                                           \
  F(stream_wait_event, "cuStreamWaitEvent", (CudaStream stream, CudaEvent event, unsigned flags))                 \
  F(event_create, "cuEventCreate", (CudaEvent * event, unsigned flags))                                           \
  F(event_destroy, "cuEventDestroy_v2", (CudaEvent event))                                                        \
  F(event_record, "cuEventRecord", (CudaEvent event, CudaStream stream))                                          \
  F(event_query, "cuEventQuery", (CudaEvent event))                                                               \
  F(event_synchronize, "cuEventSynchronize", (CudaEvent event))                                                   \
  F(pointer_attribute, "cuPointerGetAttribute", (void* value, int attribute, CudaAddress pointer))                \
  F(error_name, "cuGetErrorName", (CudaResult result, const char** name))                                         \
  F(error_string, "cuGetErrorString", (CudaResult result, const char** text))

struct CudaDriver {
#define VIADUCT_CUDA_MEMBER(member, symbol, parameters) CudaResult(*member) parameters = nullptr;
  VIADUCT_CUDA_FUNCTIONS(VIADUCT_CUDA_MEMBER)
#undef VIADUCT_CUDA_MEMBER

  // Loads the library and finds every function; initialises nothing. The library stays loaded.
  static Result<CudaDriver> load(const std::string& library);

  std::string name_of(CudaResult result) const;  // "CUDA_ERROR_OUT_OF_MEMORY"
  Error error(CudaResult result, const std::string& what) const;

  bool is_device_memory(const void* address) const;
  // Does one allocation or registration known to the driver hold all of these bytes?
  bool knows_all_of(const void* address, std::size_t length) const;
};

// Has the program itself loaded the driver and made a primary context of some device? Asking loads and initialises
// nothing, and costs about as much as taking a lock while no new library has been loaded since the last time.
//
// Thread safety: any thread.
class CudaUse {
 public:
  explicit CudaUse(std::string library) : library_(std::move(library)) {}
  bool by_program();

 private:
  const std::string library_;
  std::atomic<unsigned long long> absent_at_{0};  // as many libraries had been loaded when it was not among them
};

// Makes a context current for a scope, then what was current before.
class CudaScope {
 public:
  CudaScope(const CudaDriver& driver, CudaContext context) : driver_(driver) {
    pushed_ = driver_.push_current(context) == cuda::kSuccess;
  }
  ~CudaScope() {
    CudaContext popped = nullptr;
    if (pushed_) (void)driver_.pop_current(&popped);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_;
};

}  // namespace viaduct::copy
