#include "bench/memnet_server.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "bench/partner.hpp"

namespace viaduct::bench {

Result<std::unique_ptr<MemnetServer>> MemnetServer::start() {
  const std::string name = fmt::format("bench-{}", ::getpid());
  VIADUCT_TRY(ChildProgram program, ChildProgram::start({.words = {"/proc/self/exe", "tcp-server", "--name", name},
                                                         .processor = placement().theirs,
                                                         .end_signal = SIGTERM}));
  if (program.hear().find("serving") == std::string::npos) return Error(ECONNREFUSED, "the TCP server does not start");
  return std::unique_ptr<MemnetServer>(new MemnetServer(std::move(program), name));
}

Result<std::string> find_memnet_web() {
  std::error_code fault;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", fault);
  const std::string path = (self.parent_path() / "memnet_web").string();
  if (fault || ::access(path.c_str(), X_OK) != 0)
    return Error(ENOENT, "memnet_web is not beside this command: it is an example, and not installed");
  return path;
}

}  // namespace viaduct::bench
