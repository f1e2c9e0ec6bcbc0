// The memory of another process of this host: which ways lead there, and copying to and from it.
//
//   mapped   engine-owned memory: the region is opened through /proc/PID/fd, checked, and mapped once
//   cma      process_vm_writev and readv (cross-memory attach), where a token could be read that way
//   none     neither: the two have to talk about it, piece by piece
//
// A number is all that names the other process to the kernel, and a dead process's number may be given to another. So a
// process tells its peers a token: a random number, and where it lies. Whoever reads it there has the right process.
//
// Thread safety: everything may be called from any thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <viaduct/regions.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/segment.hpp"

namespace viaduct::copy {

struct Token {
  std::uint64_t value = 0;
  std::uint64_t address = 0;  // in the memory of whoever tells it
};

// A token of this process, for as long as the object lives.
class [[gnu::visibility("default")]] OwnToken {
 public:
  static Result<std::unique_ptr<OwnToken>> choose();
  Token token() const {
    return {value_, reinterpret_cast<std::uint64_t>(&value_)};
  }

 private:
  OwnToken() = default;
  volatile std::uint64_t value_ = 0;
};

class [[gnu::visibility("default")]] PeerMemory {
 public:
  enum class Direction { write, read };
  enum class Moved {
    all,
    no_way,  // neither mapped nor by cross-memory attach: nothing was touched
    fault,   // there or here is no memory (any more)
    gone,    // the process is not there any more
  };

  // Tries once whether the token can be read, unless `try_cma` says no (VIADUCT_COPY_CMA).
  enum class Lasting { yes, no };  // whether the token stays where it is
  PeerMemory(pid_t pid, Token token, bool try_cma, Lasting lasting = Lasting::yes);

  pid_t pid() const {
    return pid_;
  }
  bool reaches_by_cma() const {
    return cma_.load(std::memory_order_relaxed) && !forbidden_.load();
  }
  static void forbid_cma();  // for tests; programs have VIADUCT_COPY_CMA

  // The region of the peer that lies at that place, as the peer says; nothing where it cannot be mapped. The descriptor
  // is told by its inode, and what is opened is checked like any segment.
  std::shared_ptr<const Segment> map(const RegionPlace& place);

  // Between the local pieces and `length` bytes of a region that was mapped.
  static void move_mapped(Direction direction, std::byte * there, std::span<const iovec> pieces, std::size_t length);
  // By cross-memory attach. `connection`: a socket whose other end that process holds, and nobody else.
  Moved move_by_cma(Direction direction, std::uint64_t address, std::span<const iovec> pieces, std::size_t length,
                    int connection);

 private:
  struct Mapped {
    std::uint64_t region = 0;
    std::shared_ptr<const Segment> segment;  // none: tried in vain
  };
  Moved look_at_token() const;  // all: it is there

  const pid_t pid_;
  const Token token_;
  const Lasting lasting_;
  std::atomic<bool> cma_{false};
  static std::atomic<bool> forbidden_;
  std::mutex mutex_;
  std::vector<Mapped> mapped_;
};

}  // namespace viaduct::copy
