#include "cli/preload_library.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/elf_file.hpp"
#include "sockets/registry_format.hpp"

namespace viaduct::cli {

namespace fs = std::filesystem;

std::string own_preload_library() {
  constexpr const char* kName = "libviaduct-sockets.so";
  std::error_code fault;
  const fs::path folder = fs::read_symlink("/proc/self/exe", fault).parent_path();
  const fs::path installed = folder.parent_path() / VIADUCT_LIBDIR / kName;
  const fs::path built = folder.parent_path() / "lib" / kName;
  return fs::exists(installed, fault) ? installed.string() : built.string();
}

Result<PreloadLibrary> check_preload_library(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return Error(ENOENT, fmt::format("there is no library {}", path));
  std::error_code fault;
  const std::string whole =
      fs::absolute(path, fault).string();  // the program may change its folder before it starts others
  if (whole.find_first_of(" :") != std::string::npos)
    return Error(EINVAL, fmt::format("the loader cannot preload '{}': its path has a space or colon in it", whole));
  const auto elf = ElfFile::open(path);
  if (!elf && elf.error().code() == ENOEXEC) return Error(ENOEXEC, fmt::format("{} is not a library", path));
  if (!elf) return elf.error();
  if (!elf->is_64_bit() || !elf->is_for_this_machine())
    return Error(ENOEXEC, fmt::format("{} was built for another kind of machine", path));
  const auto version = elf->section_text(sockets::kVersionSection);
  if (!version) return Error(EINVAL, fmt::format("{} is not libviaduct-sockets", path));
  return PreloadLibrary{whole, *version};
}

std::string with_preload(const std::string& library, const std::string& before) {
  std::string list = library;
  for (std::size_t at = 0; at < before.size();) {
    const std::size_t end = std::min(before.find_first_of(" :", at), before.size());
    const std::string entry = before.substr(at, end - at);
    if (!entry.empty() && entry != library) list += ":" + entry;
    at = end + 1;
  }
  return list;
}

}  // namespace viaduct::cli
