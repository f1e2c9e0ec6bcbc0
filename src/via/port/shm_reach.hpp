// The reach of a connection on one host: whoever gets or puts looks at the peer's table and then moves the bytes
// itself. The other program has no part in it. It also has what only shared memory can offer to virtual interfaces:
// receives that the peer has posted, and words about the peer.
//
// One thread at a time, except peer_copies().
#pragma once

#include <viaduct/via.hpp>

#include <memory>

#include "via/port/registrations.hpp"
#include "via/port/remote_port.hpp"

namespace viaduct::via {

class ShmReach final : public Reach {
 public:
  using Moved = RemotePort::Moved;

  // `own`: the table in which the words of this side's connection are, at `slot`. `socket`: the channel's.
  ShmReach(const TableView& own, std::uint32_t slot, std::shared_ptr<RemotePort> remote, const Introduction& peer,
           int socket)
      : own_(own), slot_(slot), remote_(std::move(remote)), peer_(peer), socket_(socket) {}

  Began get(std::span<const iovec> into, const RemoteBytes& from, std::uint64_t) override {
    return move(RemotePort::Direction::read, kRdmaRead, into, from);
  }
  Began put(std::span<const iovec> from, const RemoteBytes& to, std::uint64_t) override {
    return move(RemotePort::Direction::write, kRdmaWrite, from, to);
  }
  bool take_end(End&) override { return false; }
  void give_up() override {}

  bool reaches_by_cma() const { return remote_->reaches_by_cma(); }
  pid_t pid() const { return remote_->pid(); }
  // Engine-owned memory of the peer, mapped here, if this connection may reach it: its bytes, for as long as `held` is.
  std::byte* map(const RemoteBytes& bytes, std::uint64_t rights, std::shared_ptr<const Segment>& held);

  // ---- the peer's words

  bool wants_room() const { return words().wants_room.load(std::memory_order_relaxed) != 0; }
  // What it has posted on this connection may still be touched. Within an Activity.
  bool peer_is_there() const { return words().connection.load(std::memory_order_acquire) == peer_.connection; }
  // Whether the peer is still in the same copy from or to our memory as at the first look.
  struct Looks {
    std::uint32_t count = 0;
    std::uint32_t first = 0;
  };
  bool peer_copies(Looks& looks) const;

  // ---- receives that it has posted, by their number

  bool finds_posted(std::uint64_t number, std::uint32_t length, bool& mapped) const;
  // A part of a message of `whole` bytes into the receive with that number.
  Moved put_into_posted(std::uint64_t number, std::uint32_t whole, std::uint32_t offset, std::span<const iovec> pieces,
                        std::size_t length);
  // A part of a message of the peer that it has lent: no right of RDMA is needed.
  Moved fetch(const RemoteBytes& message, std::uint64_t offset, std::span<const iovec> pieces, std::size_t length);

 private:
  struct Posted {
    std::uint64_t address = 0;
    Registration memory;
  };
  ConnectionWords& words() const { return remote_->table().words(peer_.slot); }
  Began move(RemotePort::Direction direction, std::uint64_t right, std::span<const iovec> pieces,
             const RemoteBytes& there);
  bool find_posted(std::uint64_t number, std::uint32_t length, Posted& posted) const;

  const TableView own_;
  const std::uint32_t slot_;
  const std::shared_ptr<RemotePort> remote_;
  const Introduction peer_;
  const int socket_;
};

}  // namespace viaduct::via
