// Memory of connections that were closed: another thread may be inside it for a moment longer.
#pragma once

#include <sys/single_threaded.h>

#include <cstddef>
#include <cstdint>

#include "sockets/thread_state.hpp"

namespace viaduct::sockets {

// The calling thread is at some connection's memory: a signal handler may close that connection.
class AtMemory {
 public:
  [[gnu::always_inline]] AtMemory() : outer_(this_thread.at_memory) { this_thread.at_memory = this; }
  [[gnu::always_inline]] ~AtMemory() { this_thread.at_memory = outer_; }
  AtMemory(const AtMemory&) = delete;
  AtMemory& operator=(const AtMemory&) = delete;
  static bool is_so() { return this_thread.at_memory != nullptr; }
  static bool is_so_twice() { return is_so() && this_thread.at_memory->outer_ != nullptr; }
  // The thread jumps (longjmp) out of all that is on its stack before `target`.
  static void jump(const void* target) {
    while (is_so() && this_thread.at_memory < target) this_thread.at_memory = this_thread.at_memory->outer_;
  }

 private:
  const AtMemory* outer_;
};

// What is closed just now is nobody's any more at once; else only after that time, many times longer than anybody holds
// a stream lock. A thread that is inside itself, under a signal handler, gives nothing back.
inline bool nobody_is_inside() {
  return __libc_single_threaded != 0 && !AtMemory::is_so();
}
inline constexpr std::uint64_t kGraceNs = 100'000'000;

void retire_memory(void* base, std::size_t size);
// Of what was just closed, and is nobody's any more: by whoever has told its peer of the end, which takes less time
// than to free a large ring. Or the next time that memory is retired, or swept.
void unmap_closed();
// Gives back what nobody can be in any more. By a call that is at no memory itself.
void sweep_retired();
// The same by one that is, before it sleeps: how long it may take until the rest can be given back too, in
// milliseconds; 0: there is none.
int sweep_before_sleep();
void retired_after_fork_in_child();

}  // namespace viaduct::sockets
