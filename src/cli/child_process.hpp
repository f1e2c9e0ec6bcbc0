// Trying something in a forked child, so that neither a crash nor a hang nor a change of namespace reaches us.
//
// The child writes its answer into a pipe and ends with _exit. It is silent, leaves no core file, dies with its parent,
// and is killed and reaped when its ChildProcess goes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::cli {

class ChildProcess {
 public:
  // `body` gets the descriptor to answer on; the child ends when it returns.
  static Result<ChildProcess> start(const std::function<void(int answer)>& body);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }

  // What it writes: `most` bytes, or all until it ends. ETIMEDOUT after `limit`; ECHILD where it ended wordlessly.
  Result<std::string> read(std::size_t most, std::chrono::milliseconds limit);

 private:
  ChildProcess(pid_t pid, Fd answer) : pid_(pid), answer_(std::move(answer)) {}

  pid_t pid_;
  Fd answer_;
};

// The text that `question` returns in a child.
Result<std::string> ask_child(const std::function<std::string()>& question, std::chrono::milliseconds limit);

// The errno value (0: it worked) that `attempt` returns in a child; where no answer came, the reason why as an errno.
int try_in_child(const std::function<int()>& attempt, std::chrono::milliseconds limit);

}  // namespace viaduct::cli
