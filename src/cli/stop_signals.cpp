#include "cli/stop_signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace viaduct::cli {

StopSignals::StopSignals() {
  sigset_t stopping;
  ::sigemptyset(&stopping);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&stopping, signal);
  ::pthread_sigmask(SIG_BLOCK, &stopping, &before_);
  signals_ = Fd(::signalfd(-1, &stopping, SFD_CLOEXEC | SFD_NONBLOCK));
}

StopSignals::~StopSignals() {
  signalfd_siginfo taken;  // else it would strike now
  while (::read(signals_.get(), &taken, sizeof taken) > 0) continue;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignals::wait(std::chrono::milliseconds limit) {
  pollfd watched{signals_.get(), POLLIN, 0};
  return ::poll(&watched, 1, static_cast<int>(limit.count())) > 0;
}

}  // namespace viaduct::cli
