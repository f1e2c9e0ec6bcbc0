// Doorbells of endpoints whose users are in other processes: sockets on which a user sends a byte when the processor
// that sends has gone to sleep. All of them are one descriptor to sleep on.
#pragma once

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::nic {

class Doorbells {
 public:
  static Result<Doorbells> create();

  // From any thread. A socket is removed by closing it.
  void add(int socket);
  int get() const { return set_.get(); }
  // The sleeper, awake again. What was rung with stays in the sockets, since one of them may be closed meanwhile: who
  // has a socket reads it (Port::arm).
  void settle();

 private:
  Fd set_;
};

}  // namespace viaduct::nic
