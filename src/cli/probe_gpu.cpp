// The copy engines of NVIDIA GPUs, asked through the driver's library, which need not be there.
#include <dlfcn.h>
#include <fmt/format.h>

#include "cli/child_process.hpp"
#include "cli/probe.hpp"

namespace viaduct::cli {

namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kAsyncEngineCount = 40;              // CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
constexpr auto kLimit = std::chrono::seconds(20);  // the first use after boot loads the driver

// First character: '+' followed by the devices, '-' by what is wrong, '0' where there is no library.
std::string ask_driver() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "0";
  const auto symbol = [&]<class Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    return function != nullptr;
  };
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*error_text)(int, const char**) = nullptr;
  if (!symbol("cuInit", init) || !symbol("cuDeviceGetCount", count) || !symbol("cuDeviceGet", get) ||
      !symbol("cuDeviceGetName", name) || !symbol("cuDeviceGetAttribute", attribute) ||
      !symbol("cuGetErrorString", error_text))
    return fmt::format("-{} lacks a function that is needed", kLibrary);

  int devices = 0;
  int fault = init(0);
  if (fault == 0) fault = count(&devices);
  if (fault != 0) {
    const char* text = nullptr;
    return fmt::format("-the driver says: {}",
                       error_text(fault, &text) == 0 && text != nullptr ? text : "unknown error");
  }
  std::string answer = "+";
  for (int i = 0; i < devices; ++i) {
    int device = 0, engines = 0;
    char label[128] = {};
    if (get(&device, i) != 0 || name(label, sizeof label - 1, device) != 0 ||
        attribute(&engines, kAsyncEngineCount, device) != 0)
      continue;
    answer +=
        fmt::format("{}{}: {} copy engine{}", answer.size() == 1 ? "" : "\n", label, engines, engines == 1 ? "" : "s");
  }
  return answer;
}

}  // namespace

Findings probe_gpu() {
  const std::string name = "gpu-copy";
  const auto answer = ask_child(ask_driver, kLimit);
  if (!answer)
    return {{name, State::no, "", fmt::format("asking the NVIDIA driver failed: {}", answer.error().message()),
             "see whether nvidia-smi works"}};
  const std::string text = answer->substr(1);
  if (answer->front() == '0')
    return {{name, State::no, "", fmt::format("no NVIDIA driver ({} not found)", kLibrary),
             "nothing where there is no NVIDIA GPU: processors do the copies; else install its driver"}};
  if (answer->front() == '-') return {{name, State::no, "", text, "see whether nvidia-smi works"}};
  if (text.empty())
    return {{name, State::no, "", "the NVIDIA driver sees no GPU", "pass a GPU to this machine or container"}};
  return {{name, State::yes, text}};
}

}  // namespace viaduct::cli
