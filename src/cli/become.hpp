// Becoming another program: what it returns is then our exit code.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

namespace viaduct::cli {

// Returns only if it failed, with a line on standard error that says why.
[[nodiscard]] ExitCode become(std::vector<std::string> words);

}  // namespace viaduct::cli
