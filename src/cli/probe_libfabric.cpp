#include <dlfcn.h>
#include <fmt/format.h>

#include "cli/child_process.hpp"
#include "cli/probe.hpp"

namespace viaduct::cli {

namespace {

constexpr const char* kLibrary = "libfabric.so.1";

std::string ask_library() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "0";
  const auto version = reinterpret_cast<std::uint32_t (*)()>(::dlsym(library, "fi_version"));
  if (version == nullptr) return "-";
  return fmt::format("+{}.{}", version() >> 16, version() & 0xFFFF);
}

}  // namespace

Findings probe_libfabric() {
  const std::string name = "libfabric", advice = "apt-get install libfabric1";
  const auto answer = ask_child(ask_library, std::chrono::seconds(5));
  if (!answer)
    return {{name, State::no, "", fmt::format("loading {} failed: {}", kLibrary, answer.error().message()), advice}};
  if (answer->front() == '+') return {{name, State::yes, "version " + answer->substr(1)}};
  return {
      {name, State::no, "",
       answer->front() == '0' ? fmt::format("{} not found", kLibrary) : fmt::format("{} is not libfabric", kLibrary),
       advice}};
}

}  // namespace viaduct::cli
