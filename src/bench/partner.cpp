#include "bench/partner.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <viaduct/copy.hpp>

#include <exception>

#include "base/topology.hpp"
#include "bench/whole_messages.hpp"

namespace viaduct::bench {

Result<Partner> Partner::fork(int processor, Body body) {
  VIADUCT_TRY(FdPair commands, make_pipe());
  VIADUCT_TRY(FdPair answers, make_pipe());
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("fork a partner process");
  if (child > 0) return Partner(child, std::move(commands.second), std::move(answers.first));

  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  commands.second.reset();
  answers.first.reset();
  (void)pin_this_thread(processor);
  std::uint64_t count = 0;
  while (read_whole(commands.first.get(), &count, sizeof count)) {
    body(count);
    if (!write_whole(answers.second.get(), &count, sizeof count)) break;
  }
  ::_exit(0);
}

Partner::Partner(pid_t child, Fd commands, Fd answers)
    : child_(child), commands_(std::move(commands)), answers_(std::move(answers)) {}

Partner::Partner(Partner&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      commands_(std::move(other.commands_)),
      answers_(std::move(other.answers_)) {}

Partner::~Partner() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

void Partner::start(std::uint64_t count) {
  if (!write_whole(commands_.get(), &count, sizeof count)) std::terminate();  // the partner crashed: no number is right
}

void Partner::finish() {
  std::uint64_t count = 0;
  if (!read_whole(answers_.get(), &count, sizeof count)) std::terminate();
}

bool Partner::has_finished() const {
  pollfd answer{answers_.get(), POLLIN, 0};
  return ::poll(&answer, 1, 0) > 0;
}

Placement placement() {
  const auto& processors = Topology::machine().processors();
  return {processors.front(), processors.back()};
}

void start_copy_engine() {
  { const PinnedScope there(placement().mine); }  // the engine leaves out the processor its first caller runs on
  (void)copy::report_channels();
}

}  // namespace viaduct::bench
