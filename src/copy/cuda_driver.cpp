#include "copy/cuda_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>

namespace viaduct::copy {

bool cuda::is_fatal(CudaResult result) {
  constexpr std::array kFatal = {
      kDeinitialized,
      201,  // invalid context: somebody reset the device
      214,  // uncorrectable memory error
      400,  // invalid handle: ours are valid unless the device was reset
      700,  // illegal address
      702,  // launch timed out
      709,  // context is destroyed
      710,  // assert
      714,  // hardware stack
      715,  // illegal instruction
      716,  // misaligned address
      717,  // invalid address space
      718,  // invalid program counter
      719,  // launch failed
  };
  return std::find(kFatal.begin(), kFatal.end(), result) != kFatal.end();
}

namespace {

// dlerror() reads "NAME: cannot open shared object file: No such file or directory" where there is no such library.
Error cannot_load(const std::string& library) {
  const char* const reason = ::dlerror();
  if (reason == nullptr || std::string_view(reason).find("No such file") != std::string_view::npos)
    return {ENODEV, fmt::format("no NVIDIA driver ({} not found)", library)};
  return {ENODEV, fmt::format("NVIDIA driver: {}", reason)};
}

}  // namespace

Result<CudaDriver> CudaDriver::load(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return cannot_load(library);
  CudaDriver driver;
#define VIADUCT_CUDA_FIND(member, symbol, parameters)                                 \
  driver.member = reinterpret_cast<decltype(driver.member)>(::dlsym(handle, symbol)); \
  if (driver.member == nullptr)                                                       \
    return Error(ENODEV, fmt::format("{} lacks the function {}: a newer NVIDIA driver is needed", library, symbol));
  VIADUCT_CUDA_FUNCTIONS(VIADUCT_CUDA_FIND)
#undef VIADUCT_CUDA_FIND
  return driver;
}

std::string CudaDriver::name_of(CudaResult result) const {
  const char* name = nullptr;
  if (error_name(result, &name) != cuda::kSuccess || name == nullptr) return fmt::format("CUDA error {}", result);
  return name;
}

Error CudaDriver::error(CudaResult result, const std::string& what) const {
  const char* text = nullptr;
  const bool described = error_string(result, &text) == cuda::kSuccess && text != nullptr;
  return {result == cuda::kOutOfMemory ? ENOMEM : ENODEV,
          fmt::format("{}: {}{}", what, name_of(result), described ? fmt::format(" ({})", text) : "")};
}

bool CudaDriver::is_device_memory(const void* address) const {
  unsigned type = 0;
  return pointer_attribute(&type, cuda::kMemoryType, reinterpret_cast<CudaAddress>(address)) == cuda::kSuccess &&
         type == cuda::kTypeDevice;
}

bool CudaDriver::knows_all_of(const void* address, std::size_t length) const {
  const auto begin = reinterpret_cast<CudaAddress>(address);
  CudaAddress start = 0;
  std::size_t size = 0;
  return pointer_attribute(&start, cuda::kRangeStart, begin) == cuda::kSuccess &&
         pointer_attribute(&size, cuda::kRangeSize, begin) == cuda::kSuccess && start <= begin &&
         begin + length <= start + size;
}

namespace {

// Counts libraries ever loaded, so that the search for ours is made only when there is something new.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;
      },
      &loaded);
  return loaded;
}

bool has_primary_context(void* handle) {
  const auto find = [&]<class Function>(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(::dlsym(handle, symbol));
    return function != nullptr;
  };
  CudaResult (*count)(int*) = nullptr;
  CudaResult (*get)(CudaDevice*, int) = nullptr;
  CudaResult (*state)(CudaDevice, unsigned*, int*) = nullptr;
  if (!find(count, "cuDeviceGetCount") || !find(get, "cuDeviceGet") || !find(state, "cuDevicePrimaryCtxGetState"))
    return false;
  int devices = 0;
  if (count(&devices) != cuda::kSuccess) return false;  // also where nobody has called cuInit
  for (int i = 0; i < devices; ++i) {
    CudaDevice device = 0;
    unsigned flags = 0;
    int active = 0;
    if (get(&device, i) == cuda::kSuccess && state(device, &flags, &active) == cuda::kSuccess && active != 0)
      return true;
  }
  return false;
}

}  // namespace

bool CudaUse::by_program() {
  const unsigned long long loaded = libraries_loaded();
  if (absent_at_.load(std::memory_order_relaxed) == loaded) return false;
  void* const handle = ::dlopen(library_.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) {
    absent_at_.store(loaded, std::memory_order_relaxed);
    return false;
  }
  const bool active = has_primary_context(handle);
  ::dlclose(handle);  // the reference this look took
  return active;
}

}  // namespace viaduct::copy
