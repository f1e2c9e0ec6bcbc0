// A program that redraws until it is told to stop: by q or Ctrl-C at a terminal, by a signal elsewhere.
//
// While a LiveTerminal lives, SIGINT, SIGTERM and SIGHUP are taken as "stop"; at a terminal the picture is on the
// alternate screen and keys are not echoed. All of it is undone when it goes.
#pragma once

#include <signal.h>
#include <termios.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "base/fd.hpp"

namespace viaduct::cli {

class LiveTerminal {
 public:
  LiveTerminal();
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  // Replaces the picture, cut to the screen's height; where standard output is no terminal, appends to it. False: it
  // cannot be written.
  bool show(std::string_view text);

  // False: time to stop.
  bool wait(std::chrono::nanoseconds delay);

 private:
  bool stop_requested();

  bool drawing_;                     // standard output is a terminal
  std::optional<termios> keyboard_;  // as it was before
  sigset_t signals_before_;
  Fd signals_;
};

}  // namespace viaduct::cli
