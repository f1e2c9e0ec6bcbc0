#include "via/vipl_remote.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <viaduct/regions.hpp>

#include <algorithm>

#include "base/config.hpp"
#include "base/copy_loop.hpp"
#include "base/counters.hpp"
#include "base/log.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::size_t kMostMapped = 64;

// By the kernel, by a sandbox: even if it was allowed before.
bool refused(int fault) {
  return fault == EPERM || fault == EACCES || fault == ENOSYS;
}

// Takes bytes from the front of some pieces, of which those before `next` are empty.
void pass(std::span<iovec> pieces, std::size_t& next, std::size_t bytes) {
  for (; next < pieces.size() && bytes >= pieces[next].iov_len; ++next) bytes -= pieces[next].iov_len;
  if (bytes == 0) return;
  pieces[next].iov_base = static_cast<std::byte*>(pieces[next].iov_base) + bytes;
  pieces[next].iov_len -= bytes;
}

}  // namespace

Result<RemoteNic::Identity> RemoteNic::identity_of(int table_fd) {
  struct stat info {};
  if (::fstat(table_fd, &info) != 0) return Error::from_errno("the peer's table");
  return Identity{info.st_dev, info.st_ino};
}

Result<std::shared_ptr<RemoteNic>> RemoteNic::make(Fd table, pid_t pid, Token token) {
  VIADUCT_TRY(const Identity identity, identity_of(table.get()));
  VIADUCT_TRY(Segment segment, Segment::adopt_to_read(std::move(table), kTableLayout));
  if (segment.payload().size() < kTableBytes) return Error(EPROTO, "the peer's table is too small");
  std::shared_ptr<RemoteNic> remote(new RemoteNic);
  remote->segment_ = std::move(segment);
  remote->view_ = TableView(remote->segment_);
  remote->identity_ = identity;
  remote->pid_ = pid;
  remote->token_ = token;
  const bool try_cma = pid > 0 && Config::process().flag("VIADUCT_COPY_CMA") && !forbidden_.load();
  remote->cma_ = try_cma && remote->look_at_token() == Moved::all;
  return remote;
}

std::atomic<bool> RemoteNic::forbidden_{false};

void RemoteNic::forbid_cma() {
  forbidden_ = true;
}

// A number is all that names the peer to the kernel, and a dead peer's may be given to another process: that one has
// not got the token there.
RemoteNic::Moved RemoteNic::look_at_token() const {
  std::uint64_t seen = 0;
  const iovec here{&seen, sizeof seen};
  const iovec there{reinterpret_cast<void*>(token_.address), sizeof seen};
  if (::process_vm_readv(pid_, &here, 1, &there, 1, 0) == sizeof seen && seen == token_.value) return Moved::all;
  return refused(errno) ? Moved::no_way : Moved::gone;
}

RemoteNic::Moved RemoteNic::move_mapped(Direction direction, const Registration& registration, std::uint64_t address,
                                        std::span<const iovec> pieces, std::size_t length) {
  const auto segment = registration.region_id != 0 ? map(registration) : nullptr;
  if (segment == nullptr) return Moved::no_way;
  const std::span<std::byte> payload = segment->payload();
  const std::uint64_t offset = registration.region_offset + (address - registration.base);
  if (offset > payload.size() || length > payload.size() - offset) return Moved::fault;
  static Counter mapped = counter("via.rdma_mapped");
  mapped.add();
  std::byte* there = payload.data() + offset;
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(piece.iov_len, length);
    length -= part;
    if (direction == Direction::write)
      copy_through_ring(there, piece.iov_base, part);
    else
      copy_through_ring(piece.iov_base, there, part);
    there += part;
  }
  return Moved::all;
}

RemoteNic::Moved RemoteNic::move(Direction direction, const Registration& registration, std::uint64_t address,
                                 std::span<const iovec> pieces, std::size_t length, int connection) {
  if (const Moved moved = move_mapped(direction, registration, address, pieces, length); moved != Moved::no_way)
    return moved;
  if (!reaches_by_cma()) return Moved::no_way;
  return move_by_cma(direction, address, pieces, length, connection);
}

// The region's memory file is opened through the owner's descriptor; a descriptor that means something else by now is
// told by its inode, and what is opened is checked like any segment.
std::shared_ptr<const Segment> RemoteNic::map(const Registration& registration) {
  const std::lock_guard lock(mutex_);
  for (const Mapped& mapped : mapped_)
    if (mapped.region == registration.region_id) return mapped.segment;
  std::shared_ptr<const Segment> segment;
  Fd fd(::open(fmt::format("/proc/{}/fd/{}", pid_, registration.region_fd).c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (!fd)
    log::detail(fmt::format("process {}: its regions cannot be mapped here", pid_));
  else if (::fstat(fd.get(), &info) == 0 && info.st_ino == registration.region_inode)
    if (auto adopted = Segment::adopt(std::move(fd), copy::region_layout()))
      segment = std::make_shared<const Segment>(std::move(*adopted));
  if (mapped_.size() == kMostMapped) mapped_.erase(mapped_.begin());
  mapped_.push_back({registration.region_id, segment});
  return segment;
}

// Another process may have the peer's number by now, or the peer another program. Bytes that were read are believed if
// the token came with them; nothing is written unless the peer holds its end of the connection.
RemoteNic::Moved RemoteNic::move_by_cma(Direction direction, std::uint64_t address, std::span<const iovec> pieces,
                                        std::size_t length, int connection) {
  static Counter by_cma = counter("via.rdma_cma");
  by_cma.add();
  const bool read = direction == Direction::read;
  std::uint64_t seen = 0;
  std::vector<iovec> here;
  here.reserve(pieces.size() + 1);
  if (read) here.push_back({&seen, sizeof seen});
  here.insert(here.end(), pieces.begin(), pieces.end());
  iovec there[2] = {{reinterpret_cast<void*>(token_.address), sizeof seen}, {reinterpret_cast<void*>(address), length}};
  std::span<iovec> from(read ? there : there + 1, there + 2);
  pollfd end{connection, POLLRDHUP, 0};
  if (!read && ::poll(&end, 1, 0) > 0) return Moved::gone;  // -1: a signal, which says nothing
  const auto call = read ? ::process_vm_readv : ::process_vm_writev;
  std::size_t left = length + (read ? sizeof seen : 0);
  for (std::size_t next = 0; left > 0;) {
    const ssize_t moved = call(pid_, here.data() + next, here.size() - next, from.data(), from.size(), 0);
    if (moved < 0 && refused(errno)) {
      cma_.store(false, std::memory_order_relaxed);
      return Moved::no_way;
    }
    if (moved < 0) return errno == ESRCH ? Moved::gone : Moved::fault;
    if (moved == 0) return Moved::fault;
    left -= static_cast<std::size_t>(moved);
    pass(here, next, static_cast<std::size_t>(moved));  // only where the kernel stops in between
    std::size_t first = 0;
    pass(from, first, static_cast<std::size_t>(moved));
    from = from.subspan(first);
  }
  return read && seen != token_.value ? Moved::gone : Moved::all;
}

}  // namespace viaduct::vipl
