// Whether a program can be accelerated by preloading, told from its file before it runs.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace viaduct::cli {

enum class Effect {
  none,      // as it should be
  possible,  // some of its connections may stay on kernel TCP: only what it does will tell
  partial,   // many will, where the user does nothing about it
  total,     // all do
};

struct ProgramFinding {
  std::string check;
  Effect effect;
  std::string detail;  // as the end of a sentence that names the program: "is statically linked: ..."
};

struct ProgramReport {
  std::string path;                       // where the PATH led
  std::vector<std::string> interpreters;  // a script's: each interprets the one before, the last is what really runs
  std::vector<ProgramFinding> findings;
  bool preload_is_safe = true;  // false: the program's loader could fail over our library

  bool will_be_accelerated() const;
};

// ENOENT: there is no such program. EACCES: there is, but it cannot be run.
Result<std::string> find_program(const std::string& name);
// `any_peers`: whatever user it becomes, it may share memory (or the user has said that it may not).
Result<ProgramReport> inspect_program(const std::string& name, bool any_peers);

}  // namespace viaduct::cli
