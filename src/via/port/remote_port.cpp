#include "via/port/remote_port.hpp"

#include <sys/stat.h>

#include "base/config.hpp"
#include "base/counters.hpp"

namespace viaduct::via {

Result<RemotePort::Identity> RemotePort::identity_of(int table_fd) {
  struct stat info {};
  if (::fstat(table_fd, &info) != 0) return Error::from_errno("the peer's table");
  return Identity{info.st_dev, info.st_ino};
}

RemotePort::RemotePort(pid_t pid, copy::Token token)
    : memory_(pid, token, Config::process().flag("VIADUCT_COPY_CMA")) {}

Result<std::shared_ptr<RemotePort>> RemotePort::make(Fd table, pid_t pid, copy::Token token) {
  VIADUCT_TRY(const Identity identity, identity_of(table.get()));
  VIADUCT_TRY(Segment segment, Segment::adopt_to_read(std::move(table), kTableLayout));
  if (segment.payload().size() < kTableBytes) return Error(EPROTO, "the peer's table is too small");
  std::shared_ptr<RemotePort> remote(new RemotePort(pid, token));
  remote->segment_ = std::move(segment);
  remote->view_ = TableView(remote->segment_);
  remote->identity_ = identity;
  return remote;
}

std::shared_ptr<const Segment> RemotePort::map(const Registration& registration) {
  if (registration.region_id == 0) return nullptr;
  return memory_.map({.id = registration.region_id,
                      .offset = registration.region_offset,
                      .inode = registration.region_inode,
                      .fd = static_cast<int>(registration.region_fd)});
}

RemotePort::Moved RemotePort::move_mapped(Direction direction, const Registration& registration, std::uint64_t address,
                                          std::span<const iovec> pieces, std::size_t length) {
  const auto segment = map(registration);
  if (segment == nullptr) return Moved::no_way;
  const std::span<std::byte> payload = segment->payload();
  const std::uint64_t offset = registration.region_offset + (address - registration.base);
  if (offset > payload.size() || length > payload.size() - offset) return Moved::fault;
  static Counter mapped = counter("via.rdma_mapped");
  mapped.add();
  copy::PeerMemory::move_mapped(direction, payload.data() + offset, pieces, length);
  return Moved::all;
}

RemotePort::Moved RemotePort::move(Direction direction, const Registration& registration, std::uint64_t address,
                                   std::span<const iovec> pieces, std::size_t length, int connection) {
  if (const Moved moved = move_mapped(direction, registration, address, pieces, length); moved != Moved::no_way)
    return moved;
  if (!reaches_by_cma()) return Moved::no_way;
  static Counter by_cma = counter("via.rdma_cma");
  by_cma.add();
  return memory_.move_by_cma(direction, address, pieces, length, connection);
}

}  // namespace viaduct::via
