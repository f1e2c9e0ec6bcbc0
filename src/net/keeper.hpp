// The keeper: one thread of a process that looks after engines while their program does not call: it acknowledges what
// comes, repairs what was lost, serves those who reach this side's memory, and hands on hellos for other processes.
//
// The thread is made with the first name or connection. It works for an engine only after 5 ms in which nobody has
// called it and nobody sleeps on it; then it sleeps on the engine's own descriptor, without ticks. While the program
// calls, the keeper looks now and then whether it still does, ever less often; while a thread of the program sleeps on
// the engine, or there is nothing that could need it, not at all.
//
// An engine that is nobody's any more says so with forget(). A forked child has no keeper and no engines. At exit the
// engines get some time to deliver what was taken.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/fd.hpp"

namespace viaduct::net {

// What is kept.
class Kept {
 public:
  struct Next {
    std::uint64_t look_at = UINT64_MAX;  // the time of the next look
    bool watch = false;                  // its descriptor as well
  };
  // By the keeper's thread: at that time, when the descriptor was readable, or after call().
  virtual Next keep(std::uint64_t now) = 0;
  virtual int kept_descriptor() const = 0;
  virtual void before_fork() = 0;
  virtual void after_fork(bool in_child) = 0;
  virtual void end_at_exit(std::uint64_t within_ns) = 0;

 protected:
  ~Kept() = default;
};

class Keeper {
 public:
  static Keeper& process();

  void add(Kept& kept);
  void forget(Kept& kept);  // returns when the keeper is not in it any more
  void start();             // the thread, if there is none
  // Under whatever locks: it looks at all of them that wait for nothing but this.
  void call();

 private:
  struct Entry {
    std::uint64_t look_at = UINT64_MAX;
    bool watched = false;
    bool ready = false;
  };
  Keeper() = default;
  void run();
  std::uint64_t look(bool called);
  void watch(Kept& kept, Entry& entry, bool on);

  std::mutex mutex_;
  std::map<Kept*, Entry> entries_;
  bool running_ = false;
  Fd set_, bell_;
};

}  // namespace viaduct::net
