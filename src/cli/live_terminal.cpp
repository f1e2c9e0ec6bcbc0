#include "cli/live_terminal.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/clock.hpp"

namespace viaduct::cli {

namespace {

// The other screen, no cursor, and lines cut at the edge: one that wrapped would push the last ones out.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l", kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H", kClearToEndOfLine = "\x1b[K", kClearBelow = "\x1b[J";

std::size_t screen_height() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

// Overwrites in place, line by line: clearing first would flicker.
std::string picture(std::string_view text, std::size_t height) {
  std::string out(kHome);
  for (std::size_t line = 0; line + 1 < height && !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out.append(text.substr(0, end)).append(kClearToEndOfLine).append("\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!text.empty()) out.append("... more than fits; name process numbers to see fewer");
  return out.append(kClearToEndOfLine).append(kClearBelow);
}

bool put(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

}  // namespace

LiveTerminal::LiveTerminal() : drawing_(::isatty(STDOUT_FILENO) != 0) {
  sigset_t stopping;
  ::sigemptyset(&stopping);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&stopping, signal);
  ::sigprocmask(SIG_BLOCK, &stopping, &signals_before_);
  signals_ = Fd(::signalfd(-1, &stopping, SFD_CLOEXEC | SFD_NONBLOCK));
  // No signal would stop us without the descriptor: let them act as they always do.
  if (!signals_) ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  if (!drawing_) return;
  termios now{};
  if (::tcgetattr(STDIN_FILENO, &now) == 0) {
    keyboard_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  put(kEnter);
}

LiveTerminal::~LiveTerminal() {
  if (drawing_) put(kLeave);
  if (keyboard_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*keyboard_);
  while (stop_requested()) {  // a second Ctrl-C is not left to kill us now
  }
  ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
}

bool LiveTerminal::show(std::string_view text) {
  return drawing_ ? put(picture(text, screen_height())) : put(text);
}

bool LiveTerminal::wait(std::chrono::nanoseconds delay) {
  const Clock& clock = Clock::steady();
  const Deadline end = Deadline::after_ns(clock, static_cast<std::uint64_t>(delay.count()));
  for (;;) {
    const timespec left = to_timespec(end.left_ns(clock.now_ns()));
    pollfd sources[] = {{signals_.get(), POLLIN, 0}, {keyboard_ ? STDIN_FILENO : -1, POLLIN, 0}};
    const int ready = ::ppoll(sources, 2, &left, nullptr);
    if (ready == 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (stop_requested()) return false;
    if (sources[1].revents == 0) continue;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return false;
  }
}

bool LiveTerminal::stop_requested() {
  signalfd_siginfo signal{};
  return signals_ && ::read(signals_.get(), &signal, sizeof signal) == sizeof signal;
}

}  // namespace viaduct::cli
