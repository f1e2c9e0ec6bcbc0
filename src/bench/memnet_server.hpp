// A TCP server of this command's own for a benchmark, on the partner's processor.
#pragma once

#include <memnet.h>

#include <memory>
#include <string>

#include "bench/child_program.hpp"

namespace viaduct::bench {

class MemnetServer {
 public:
  static Result<std::unique_ptr<MemnetServer>> start();
  const std::string& name() const { return name_; }
  pid_t pid() const { return program_.pid(); }

 private:
  MemnetServer(ChildProgram program, std::string name) : program_(std::move(program)), name_(std::move(name)) {}
  ChildProgram program_;
  std::string name_;
};

// The example's web server, beside this command in a build tree.
Result<std::string> find_memnet_web();

}  // namespace viaduct::bench
