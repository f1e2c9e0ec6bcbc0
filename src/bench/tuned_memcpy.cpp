#include "bench/tuned_memcpy.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/topology.hpp"
#include "bench/bench.hpp"
#include "bench/copy_buffers.hpp"

namespace viaduct::bench {

namespace {

constexpr const char* kTunables = "GLIBC_TUNABLES=glibc.cpu.x86_non_temporal_threshold=1048576";

struct Command {
  std::uint64_t length;
  std::uint64_t count;
};

}  // namespace

// The other side: what the new process runs.
int serve_tuned_memcpy(std::size_t buffer_size, int processor) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)pin_this_thread(processor);
  auto pair = ColdPair::make(buffer_size);
  if (!pair) return 1;
  Command command{};
  while (::read(STDIN_FILENO, &command, sizeof command) == sizeof command) {
    const double time = nanoseconds([&] {
      for (std::uint64_t i = 0; i < command.count; ++i) {
        pair->next(command.length);
        std::memcpy(pair->target(), pair->source(), command.length);
      }
    });
    const double each = time / static_cast<double>(command.count);
    if (::write(STDOUT_FILENO, &each, sizeof each) != sizeof each) return 1;
  }
  return 0;
}

Result<TunedMemcpy> TunedMemcpy::start(std::size_t buffer_size, int processor) {
  VIADUCT_TRY(FdPair commands, make_pipe());
  VIADUCT_TRY(FdPair answers, make_pipe());
  const std::string argument = fmt::format("{}:{}", buffer_size, processor);
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("start another process");
  if (child == 0) {
    ::dup2(commands.first.get(), STDIN_FILENO);
    ::dup2(answers.second.get(), STDOUT_FILENO);
    const char* const arguments[] = {"viaduct", "bench", "--serve-tuned-memcpy", argument.c_str(), nullptr};
    const char* const environment[] = {kTunables, nullptr};
    ::execve("/proc/self/exe", const_cast<char**>(arguments), const_cast<char**>(environment));
    ::_exit(127);
  }
  TunedMemcpy peer(child, std::move(commands.second), std::move(answers.first));
  if (std::isnan(peer.cold_copy_ns(4096, 2))) return Error(ENOEXEC, "the tuned memcpy process does not answer");
  return peer;
}

TunedMemcpy::TunedMemcpy(pid_t child, Fd commands, Fd answers)
    : child_(child), commands_(std::move(commands)), answers_(std::move(answers)) {}

TunedMemcpy::TunedMemcpy(TunedMemcpy&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      commands_(std::move(other.commands_)),
      answers_(std::move(other.answers_)) {}

TunedMemcpy::~TunedMemcpy() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

double TunedMemcpy::cold_copy_ns(std::size_t length, int count) {
  const Command command{length, static_cast<std::uint64_t>(count)};
  double each = 0;
  if (::write(commands_.get(), &command, sizeof command) != sizeof command ||
      ::read(answers_.get(), &each, sizeof each) != sizeof each)
    return std::nan("");
  return each;
}

}  // namespace viaduct::bench
