// libviaduct-sockets.so: where it is, and whether it is what it should be.
#pragma once

#include <string>

#include "base/result.hpp"

namespace viaduct::cli {

struct PreloadLibrary {
  std::string path;
  std::string version;
};

// The one that belongs to this command: beside it in the build tree, below the same prefix where installed.
std::string own_preload_library();

// Whether the file can be preloaded; the error says what is wrong with it.
Result<PreloadLibrary> check_preload_library(const std::string& path);

// `before` (the LD_PRELOAD there is) with the library in front, once.
std::string with_preload(const std::string& library, const std::string& before);

}  // namespace viaduct::cli
