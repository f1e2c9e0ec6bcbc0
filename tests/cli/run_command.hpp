// Runs the real `viaduct` command and keeps what it says.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace viaduct::cli {

using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

struct Outcome {
  int code;  // exit code; -1: ended by a signal
  std::string out;
  std::string err;
};

// The environment holds no VIADUCT_* but these, and no configuration file is read unless VIADUCT_CONFIG names one.
Outcome run_command(const Arguments& arguments, const Variables& variables = {});

// For a child process: becomes the command.
[[noreturn]] void become_command(const Arguments& arguments, const Variables& variables = {});

// Waits for it; its exit code, or -1 where a signal ended it.
int wait_for_exit(pid_t pid);

inline std::size_t lines_in(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += c == '\n' ? 1 : 0;
  return count;
}

}  // namespace viaduct::cli
