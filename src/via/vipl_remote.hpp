// The adapter at the other end, as much of it as RDMA needs: its registrations, read before anything is touched, and
// the ways into its memory.
//
//   mapped   engine-owned memory: the region is opened through /proc/PID/fd, checked, and mapped once
//   cma      process_vm_writev and readv, where a token could be read that way
//   none     a message to the library there
//
// Shared by all VIs of one adapter that are connected to VIs of one other. Thread safety: everything may be called from
// any thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "via/vipl_table.hpp"

namespace viaduct::vipl {

// Where a process keeps a number that only somebody who can read its memory knows it to have there.
struct Token {
  std::uint64_t value = 0;
  std::uint64_t address = 0;
};

class RemoteNic {
 public:
  struct Identity {  // of the table's memory file: nobody can forge it
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity&) const = default;
  };
  static Result<Identity> identity_of(int table_fd);
  static Result<std::shared_ptr<RemoteNic>> make(Fd table, pid_t pid, Token token);

  const Identity& identity() const { return identity_; }
  pid_t pid() const { return pid_; }
  const TableView& table() const { return view_; }
  static void forbid_cma();  // for tests; programs have VIADUCT_COPY_CMA
  bool reaches_by_cma() const { return cma_.load(std::memory_order_relaxed) && !forbidden_.load(); }

  bool maps(const Registration& registration) { return registration.region_id != 0 && map(registration) != nullptr; }

  enum class Direction { write, read };
  enum class Moved {
    all,
    no_way,  // neither mapped nor by CMA: nothing was touched
    fault,   // what is registered, there or here, is not memory (any more)
    gone,    // the process is not there any more
  };
  // Moves bytes between the local pieces and `address`, which lies in the registration. `connection`: a socket whose
  // other end that process holds, and nobody else.
  Moved move(Direction direction, const Registration& registration, std::uint64_t address,
             std::span<const iovec> pieces, std::size_t length, int connection);

 private:
  struct Mapped {
    std::uint64_t region = 0;
    std::shared_ptr<const Segment> segment;  // none: tried in vain
  };

  RemoteNic() = default;
  std::shared_ptr<const Segment> map(const Registration& registration);
  Moved look_at_token() const;  // all: it is there
  // no_way where the memory cannot be mapped.
  Moved move_mapped(Direction direction, const Registration& registration, std::uint64_t address,
                    std::span<const iovec> pieces, std::size_t length);
  Moved move_by_cma(Direction direction, std::uint64_t address, std::span<const iovec> pieces, std::size_t length,
                    int connection);

  Segment segment_;
  TableView view_;
  Identity identity_;
  pid_t pid_ = 0;
  Token token_;
  std::atomic<bool> cma_{false};
  static std::atomic<bool> forbidden_;
  std::mutex mutex_;
  std::vector<Mapped> mapped_;
};

}  // namespace viaduct::vipl
