// Connections that stay open across exec. A program that will be accelerated too gets their memory, told in the
// environment; any other gets plain TCP: what the rings hold is sent over TCP before it starts.
#pragma once

#include <spawn.h>

namespace viaduct::sockets {

// Before an exec or spawn of `path` with `environment`; afterwards only if that failed, or to free what spawning used.
class Departure {
 public:
  // `everything`: file actions may duplicate any descriptor, so close-on-exec does not tell what stays open.
  // `memory_stays`: they do not close what they do not know.
  Departure(const char* path, char* const* environment, bool everything, bool memory_stays = true);
  ~Departure();
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;
  char* const* environment() const { return environment_; }

 private:
  char* const* environment_;
  void* memory_ = nullptr;
  unsigned long size_ = 0;
  bool passed_ = false;
};

// At the start of a program: takes over what its predecessor left, and the listeners it inherited.
void adopt_inherited();

// Whether a program file, as execve takes it, will load this library when the environment names it.
bool loads_libraries(const char* path, int depth = 0);

}  // namespace viaduct::sockets
