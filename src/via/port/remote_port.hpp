// The port at the other end, where it is of this host: its registered memory, looked up before anything is touched, and
// the ways into it (copy/peer_memory.hpp).
//
// Shared by all connections of one port to one other. Thread safety: everything may be called from any thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>

#include "base/result.hpp"
#include "copy/peer_memory.hpp"
#include "via/port/memory_table.hpp"

namespace viaduct::via {

// What a side's port says of the connection to be.
struct Introduction {
  std::uint32_t slot = 0;        // of the connection's words in the port's table
  std::uint32_t connection = 0;  // its number in those words
  std::uint64_t tag = 0;         // what memory of this side the connection may reach
  copy::Token token;
};

class RemotePort {
 public:
  using Direction = copy::PeerMemory::Direction;
  using Moved = copy::PeerMemory::Moved;

  struct Identity {  // of the table's memory file: nobody can forge it
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity&) const = default;
  };
  static Result<Identity> identity_of(int table_fd);
  static Result<std::shared_ptr<RemotePort>> make(Fd table, pid_t pid, copy::Token token);

  const Identity& identity() const { return identity_; }
  pid_t pid() const { return memory_.pid(); }
  const TableView& table() const { return view_; }
  bool reaches_by_cma() const { return memory_.reaches_by_cma(); }

  bool maps(const Registration& registration) { return map(registration) != nullptr; }
  // Engine-owned memory, mapped here; nothing where it is none, or cannot be mapped.
  std::shared_ptr<const Segment> map(const Registration& registration);

  // Moves bytes between the local pieces and `address`, which lies in the registration. `connection`: a socket whose
  // other end that process holds, and nobody else.
  Moved move(Direction direction, const Registration& registration, std::uint64_t address,
             std::span<const iovec> pieces, std::size_t length, int connection);

 private:
  RemotePort(pid_t pid, copy::Token token);
  // no_way where the memory cannot be mapped.
  Moved move_mapped(Direction direction, const Registration& registration, std::uint64_t address,
                    std::span<const iovec> pieces, std::size_t length);

  Segment segment_;
  TableView view_;
  Identity identity_;
  copy::PeerMemory memory_;
};

}  // namespace viaduct::via
