#include "cli/become.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/result.hpp"

namespace viaduct::cli {

ExitCode become(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  const int fault = errno;
  fmt::print(stderr, "viaduct: {}\n", Error::from_code(fault, fmt::format("run {}", words[0])).message());
  return fault == ENOENT ? ExitCode::not_found : ExitCode::not_runnable;
}

}  // namespace viaduct::cli
