// MemoryWatch: tells when address ranges of this process stop meaning the memory they meant (munmap, mmap over them,
// mremap, brk, madvise), before the call that did it returns.
//
// userfaultfd reports these as events, and the thread that changes a mapping is held inside its system call until the
// event has been read. Ranges are registered for write-protect faults without ever protecting a page: that delivers the
// events and never a fault, so nothing in the program becomes slower, system calls into the range keep working, and an
// unprivileged process may do it (the user-mode-only flag forbids faults in the kernel, of which there are none).
//
// The order that makes a cache on top of this correct:
//   1. poll() says an event is there   2. the cache's mutex is taken   3. the event is read, which lets the other
//   thread go   4. what it touches is marked invalid   5. the mutex is released.
// A mapping is gone a moment before its event can be read, and another thread may be given the same addresses in that
// moment. The kernel counts changes from before they happen until their event has been read; drain() looks at that
// count.
//
// Rule: whoever holds the mutex, and the watch's own thread at any time, must not allocate, free, map or unmap: that
// could wait for an event that only they can read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::copy {

struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;  // the first address behind it

  std::size_t length() const { return end - begin; }
  bool contains(const AddressRange& other) const { return begin <= other.begin && other.end <= end; }
  bool overlaps(const AddressRange& other) const { return begin < other.end && other.begin < end; }
};

// The whole pages that hold these bytes.
AddressRange pages_of(const void* address, std::size_t length);

class MemoryWatch {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // With the mutex held: what was known about these addresses no longer holds.
    virtual void memory_changed(const AddressRange& range) = 0;
    // In the watch's thread, without the mutex, after one or more changes.
    virtual void changes_taken_in() = 0;
  };

  // `mutex` guards what the listener knows. Both must outlive the watch. ENOTSUP: not on this system.
  static Result<std::unique_ptr<MemoryWatch>> start(std::mutex& mutex, Listener& listener);
  // In the process that started it: without the mutex, when nothing is watched any more. In a forked child it touches
  // nothing.
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // These three with the mutex held. A range that cannot be watched (a file's pages, somebody else watches it, not
  // mapped) is refused.
  bool watch(const AddressRange& range);
  bool unwatch(const AddressRange& range);
  // Takes in what has been reported. False: a change has begun that is not reported yet, so that nothing known about
  // watched memory may be relied on; try again after letting others run.
  bool drain();

 private:
  MemoryWatch(Fd faults, Fd stop, std::mutex& mutex, Listener& listener);
  void run();
  void read_events();
  bool change_under_way() const;

  Fd faults_;
  Fd stop_;
  std::mutex& mutex_;
  Listener& listener_;
  pid_t owner_;
  std::thread thread_;
};

}  // namespace viaduct::copy
