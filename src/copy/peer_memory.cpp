#include "copy/peer_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/copy_loop.hpp"
#include "base/log.hpp"

namespace viaduct::copy {

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

bool other_end_has_gone(int connection) {
  pollfd end{connection, POLLRDHUP, 0};
  return ::poll(&end, 1, 0) > 0;  // -1: a signal, which says nothing
}

}  // namespace

Result<std::unique_ptr<OwnToken>> OwnToken::choose() {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) return Error::from_errno("choose a token");
  std::unique_ptr<OwnToken> token(new OwnToken);
  token->value_ = value;
  return token;
}

std::atomic<bool> PeerMemory::forbidden_{false};

void PeerMemory::forbid_cma() {
  forbidden_ = true;
}

PeerMemory::PeerMemory(pid_t pid, Token token, bool try_cma, Lasting lasting)
    : pid_(pid), token_(token), lasting_(lasting) {
  cma_ = try_cma && pid > 0 && !forbidden_.load() && look_at_token() == Moved::all;
}

PeerMemory::Moved PeerMemory::look_at_token() const {
  std::uint64_t seen = 0;
  const iovec here{&seen, sizeof seen};
  const iovec there{reinterpret_cast<void*>(token_.address), sizeof seen};
  if (::process_vm_readv(pid_, &here, 1, &there, 1, 0) == sizeof seen && seen == token_.value) return Moved::all;
  return refused(errno) ? Moved::no_way : Moved::gone;
}

std::shared_ptr<const Segment> PeerMemory::map(const RegionPlace& place) {
  const std::lock_guard lock(mutex_);
  for (const Mapped& mapped : mapped_)
    if (mapped.region == place.id) return mapped.segment;
  std::shared_ptr<const Segment> segment;
  Fd fd(::open(fmt::format("/proc/{}/fd/{}", pid_, place.fd).c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (!fd)
    log::detail(fmt::format("process {}: its regions cannot be mapped here", pid_));
  else if (::fstat(fd.get(), &info) == 0 && info.st_ino == place.inode)
    if (auto adopted = Segment::adopt(std::move(fd), region_layout()))
      segment = std::make_shared<const Segment>(std::move(*adopted));
  if (mapped_.size() == kMostMapped) mapped_.erase(mapped_.begin());
  mapped_.push_back({place.id, segment});
  return segment;
}

void PeerMemory::move_mapped(Direction direction, std::byte* there, std::span<const iovec> pieces, std::size_t length) {
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(piece.iov_len, length);
    length -= part;
    if (direction == Direction::write)
      copy_through_ring(there, piece.iov_base, part);
    else
      copy_through_ring(piece.iov_base, there, part);
    there += part;
  }
}

// Bytes that were read are believed if the token came with them; nothing is written, and nothing read where the token
// does not last, unless the peer holds its end of the connection.
PeerMemory::Moved PeerMemory::move_by_cma(Direction direction, std::uint64_t address, std::span<const iovec> pieces,
                                          std::size_t length, int connection) {
  const bool read = direction == Direction::read;
  const bool with_token = read && lasting_ == Lasting::yes;
  std::uint64_t seen = 0;
  std::vector<iovec> here;
  here.reserve(pieces.size() + 1);
  if (with_token) here.push_back({&seen, sizeof seen});
  here.insert(here.end(), pieces.begin(), pieces.end());
  iovec there[2] = {{reinterpret_cast<void*>(token_.address), sizeof seen}, {reinterpret_cast<void*>(address), length}};
  std::span<iovec> from(with_token ? there : there + 1, there + 2);
  if (!with_token && other_end_has_gone(connection)) return Moved::gone;
  const auto call = read ? ::process_vm_readv : ::process_vm_writev;
  std::size_t left = length + (with_token ? sizeof seen : 0);
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
  return with_token && seen != token_.value ? Moved::gone : Moved::all;
}

}  // namespace viaduct::copy
