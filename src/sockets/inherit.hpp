// Connections that stay open across exec. A program that will be accelerated too gets their memory, told in the
// environment; any other gets plain TCP: what the rings hold is sent over TCP before it starts.
#pragma once

#include <spawn.h>
#include <functional>

#include <cerrno>

#include "sockets/table.hpp"

namespace viaduct::sockets {

inline constexpr char kInheritVariable[] = "VIADUCT_INHERIT";

// Before an exec or spawn of `path` with `environment`; afterwards only if that failed, or to free what spawning used.
class Departure {
 public:
  // `everything`: file actions may duplicate any descriptor, so close-on-exec does not tell what stays open.
  // `memory_stays`: they do not close what they do not know.
  Departure(const char* path, char* const* environment, bool everything, bool memory_stays = true);
  ~Departure();
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;
  // With kInheritVariable at its end, if it passes_on(); without our library where the program could not load it.
  char* const* environment() const { return environment_; }
  bool passes_on() const { return passed_; }
  // It holds what was passed on, from now on: it has yet to say so itself, and this process may close meanwhile.
  // `passes(fd)`: in spite of close-on-exec.
  template <class Passes>
  void started(pid_t child, Passes&& passes) const {
    if (!passed_) return;
    const int kept = errno;
    connections.each([&](int fd, const Connection* connection) {
      if (connection->attached() && (passes(fd) || stays_open(fd))) count_in(child, *connection);
    });
    errno = kept;
  }

 private:
  bool map(std::size_t size);
  void leave_library_out();
  static bool stays_open(int fd);
  static void count_in(pid_t child, const Connection& connection);
  char* const* environment_;
  void* memory_ = nullptr;
  unsigned long size_ = 0;
  bool passed_ = false;
};

// In a forked child: its parent's threads start nothing here.
void departures_after_fork();
void shells_after_fork();

// At the start of a program: takes over what its predecessor left, and the listeners it inherited.
void adopt_inherited();

// Runs it while no thread starts a program that is told of the memory of its connections by number. False: one does.
bool while_no_program_starts(const std::function<void()>& use);

}  // namespace viaduct::sockets
