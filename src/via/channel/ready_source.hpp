// What a ready queue looks at. Channels in shared memory are the queue's own (shm_ready.hpp); others belong to a source
// that knows which of its channels have news, and has one descriptor for all of them to sleep on.
//
// By one thread at a time, the one that looks into the queue. A source is in one queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace viaduct::via {

class ShmChannel;

class ReadySource {
 public:
  // Tags of channels that may have something. A look where nothing is there costs the same however many there are.
  virtual std::size_t take(std::span<std::uint64_t> tags) = 0;

  // False: there is news since the last take(), and no sleep. Else the descriptor is readable as soon as there is, or
  // as soon as the source has something to do itself.
  virtual bool prepare_to_sleep() = 0;
  // After each prepare_to_sleep() that said true, whatever ended the sleep.
  virtual void woke() = 0;
  virtual int descriptor() const = 0;

 protected:
  ~ReadySource() = default;
};

// What a ready queue offers to a channel that enters it (Channel::enter).
class ReadyEntrance {
 public:
  virtual std::error_code add_shm(ShmChannel& channel, std::uint64_t tag) = 0;
  virtual void remove_shm(ShmChannel& channel) = 0;
  // Counted: a source stays until it was removed as often as it was added.
  virtual std::error_code add(ReadySource& source) = 0;
  virtual void remove(ReadySource& source) = 0;

 protected:
  ~ReadyEntrance() = default;
};

}  // namespace viaduct::via
