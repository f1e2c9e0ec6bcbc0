// Ctrl-C, SIGTERM and SIGHUP as something to wait for. While it lives they do not end the process; threads started
// meanwhile inherit that.
#pragma once

#include <signal.h>

#include <chrono>

#include "base/fd.hpp"

namespace viaduct::cli {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // True: time to stop.
  bool wait(std::chrono::milliseconds limit);

 private:
  sigset_t before_;
  Fd signals_;
};

}  // namespace viaduct::cli
