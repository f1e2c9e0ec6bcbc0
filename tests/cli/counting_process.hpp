// A process that publishes counters, stays until told to go, and is gone at the end of the scope.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "base/counters.hpp"
#include "base/fd.hpp"

namespace viaduct::cli {

class CountingProcess {
 public:
  CountingProcess(const char* name, std::uint64_t value) {
    auto ready = make_pipe(), stay = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      stay->second.reset();
      counter(name).add(value);
      char byte = 'r';
      (void)!::write(ready->second.get(), &byte, 1);
      (void)!::read(stay->first.get(), &byte, 1);
      ::_exit(0);
    }
    ready->second.reset();
    char byte;
    (void)!::read(ready->first.get(), &byte, 1);
    stay_ = std::move(stay->second);
  }
  ~CountingProcess() { end(); }
  CountingProcess(const CountingProcess&) = delete;
  CountingProcess& operator=(const CountingProcess&) = delete;

  void end() {
    stay_.reset();
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

  std::string number() const { return std::to_string(pid_); }

 private:
  pid_t pid_ = -1;
  Fd stay_;
};

}  // namespace viaduct::cli
