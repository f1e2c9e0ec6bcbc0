#include "sockets/uring.hpp"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sockets/brief_lock.hpp"
#include "sockets/epoll_set.hpp"
#include "sockets/rights.hpp"
#include "sockets/table.hpp"
#include "sockets/user_memory.hpp"

namespace viaduct::sockets {

FdMap<Ring> rings;

namespace {

// Younger than the headers of some distributions.
constexpr std::uint32_t kSetupNoMmap = 1U << 14, kSetupRegisteredFdOnly = 1U << 15, kSetupNoSqArray = 1U << 16;
constexpr std::uint32_t kUnseen = IORING_SETUP_SQPOLL | kSetupNoMmap | kSetupRegisteredFdOnly;
constexpr std::uint8_t kOpReadMultishot = 49, kOpRecvZc = 58;
constexpr std::uint32_t kSpliceFdIsFixed = 1U << 31, kEnterRegisteredRing = 1U << 4;

void leave_all_to_kernel(std::uint64_t numbers, std::uint32_t count) {
  const auto* const first = reinterpret_cast<const int*>(numbers);
  for (std::uint32_t i = 0; numbers != 0 && i < count && is_readable(first + i); ++i) leave_to_kernel(first[i]);
}

// Done here, the kernel has nothing left to do. Where it fails, the kernel, once it knows of all members, fails the
// same way and tells.
void change_members(io_uring_sqe& entry) {
  EpollSet* const set = find_set(entry.fd);
  const auto fd = static_cast<int>(entry.off);
  auto* const event = reinterpret_cast<epoll_event*>(entry.addr);
  if (set == nullptr) {
    if (entry.len != EPOLL_CTL_DEL) leave_to_kernel(fd);
    return;
  }
  if (entry.len != EPOLL_CTL_DEL && !is_readable(event)) return;  // as the kernel will say
  if (set_control(*set, entry.fd, static_cast<int>(entry.len), fd, event) != 0) {
    if (Connection* const connection = find_connection(fd)) tell_of_deletions(*connection, fd);
    return;
  }
  entry.opcode = IORING_OP_NOP;
  entry.fd = -1;
  entry.off = entry.addr = 0;
  entry.len = entry.rw_flags = 0;
}

void look_at(io_uring_sqe& entry) {
  const bool by_place = (entry.flags & IOSQE_FIXED_FILE) != 0;
  switch (entry.opcode) {
    case IORING_OP_EPOLL_CTL:
      return change_members(entry);
    case IORING_OP_CLOSE:
      // It may come later, or fail: what was left to the kernel goes with it.
      if (entry.file_index != 0) return;
      break;
    case IORING_OP_FILES_UPDATE:
      return leave_all_to_kernel(entry.addr, entry.len);
    case IORING_OP_SPLICE:
    case IORING_OP_TEE:
      if ((entry.splice_flags & kSpliceFdIsFixed) == 0) leave_to_kernel(entry.splice_fd_in);
      break;
    case IORING_OP_SENDMSG:
    case IORING_OP_SENDMSG_ZC:
      release_passed(reinterpret_cast<const msghdr*>(entry.addr));
      break;
    case IORING_OP_READV:
    case IORING_OP_WRITEV:
    case IORING_OP_READ_FIXED:
    case IORING_OP_WRITE_FIXED:
    case IORING_OP_READ:
    case IORING_OP_WRITE:
    case IORING_OP_POLL_ADD:
    case IORING_OP_RECVMSG:
    case IORING_OP_SEND:
    case IORING_OP_RECV:
    case IORING_OP_SEND_ZC:
    case IORING_OP_CONNECT:
    case IORING_OP_SHUTDOWN:
    case IORING_OP_URING_CMD:
    case kOpReadMultishot:
    case kOpRecvZc:
      break;
    default:
      return;
  }
  if (!by_place) leave_to_kernel(entry.fd);
}

}  // namespace

class Ring {
 public:
  // Taken from a few that are there once and for all, so that nobody finds one gone. Null: none is left.
  static Ring* take() {
    for (Ring& one : all())
      if (!one.used_.exchange(true)) return &one;
    return nullptr;
  }
  static void unlock_all() {
    for (Ring& one : all()) one.lock_.reset();
  }

  bool map(int fd, const io_uring_params& made) {
    const BriefLock::Hold hold(lock_);
    entry_bytes_ = sizeof(io_uring_sqe) * ((made.flags & IORING_SETUP_SQE128) != 0 ? 2 : 1);
    const bool has_array = (made.flags & kSetupNoSqArray) == 0;
    control_bytes_ = has_array ? made.sq_off.array + made.sq_entries * sizeof(std::uint32_t) : kLeastControl;
    entries_bytes_ = made.sq_entries * entry_bytes_;
    control_ = map_at(fd, IORING_OFF_SQ_RING, control_bytes_);
    entries_ = map_at(fd, IORING_OFF_SQES, entries_bytes_);
    if (control_ == nullptr || entries_ == nullptr) return false;
    head_ = word_at(made.sq_off.head);
    tail_ = word_at(made.sq_off.tail);
    mask_ = *word_at(made.sq_off.ring_mask);
    array_ = has_array ? word_at(made.sq_off.array) : nullptr;
    return true;
  }

  void look_through(unsigned count) {
    const BriefLock::Hold hold(lock_);
    if (entries_ == nullptr) return;  // closed meanwhile
    std::uint32_t at = std::atomic_ref(*head_).load(std::memory_order_acquire);
    const std::uint32_t waiting = std::atomic_ref(*tail_).load(std::memory_order_acquire) - at;
    for (std::uint32_t left = std::min({waiting, count, mask_ + 1}); left != 0; --left, ++at) {
      const std::uint32_t place = array_ != nullptr ? array_[at & mask_] : at & mask_;
      if (place <= mask_) look_at(*reinterpret_cast<io_uring_sqe*>(entries_ + place * entry_bytes_));
    }
  }

  void let_go() {
    {
      const BriefLock::Hold hold(lock_);
      if (control_ != nullptr) ::munmap(control_, control_bytes_);
      if (entries_ != nullptr) ::munmap(entries_, entries_bytes_);
      control_ = entries_ = nullptr;
    }
    used_.store(false);
  }

 private:
  static std::span<Ring> all() {
    static Ring everyone[256];
    return everyone;
  }

  static constexpr std::size_t kLeastControl = 4096;  // the words that are read are at its beginning

  static std::byte* map_at(int fd, std::uint64_t offset, std::size_t size) {
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  std::uint32_t* word_at(std::uint32_t offset) const { return reinterpret_cast<std::uint32_t*>(control_ + offset); }

  std::atomic<bool> used_{false};
  BriefLock lock_;
  std::byte* control_ = nullptr;
  std::byte* entries_ = nullptr;
  std::size_t control_bytes_ = 0, entries_bytes_ = 0, entry_bytes_ = 0;
  std::uint32_t *head_ = nullptr, *tail_ = nullptr, *array_ = nullptr;
  std::uint32_t mask_ = 0;
};

void watch_ring(int fd, const io_uring_params& made) {
  if (in_borrowed_memory() || (made.flags & kUnseen) != 0) return;
  const int kept = errno;
  forget_ring(fd);  // closed behind our back
  if (Ring* const ring = Ring::take(); ring != nullptr && !(ring->map(fd, made) && rings.put(fd, ring))) ring->let_go();
  errno = kept;
}

void look_through_ring(int fd, unsigned count, unsigned flags) {
  const bool named = (flags & kEnterRegisteredRing) == 0;
  Ring* const ring = count != 0 && named && !in_borrowed_memory() ? rings.find(fd) : nullptr;
  if (ring == nullptr) return;
  const int kept = errno;
  ring->look_through(count);
  errno = kept;
}

namespace {

// Of what is looked at.
std::size_t least_size_of(unsigned operation) {
  switch (operation) {
    case IORING_REGISTER_FILES_UPDATE:
      return sizeof(io_uring_rsrc_update);
    case IORING_REGISTER_FILES2:
      return sizeof(io_uring_rsrc_register);
    case IORING_REGISTER_FILES_UPDATE2:
      return sizeof(io_uring_rsrc_update2);
    default:
      return 0;
  }
}

}  // namespace

void look_at_registered(unsigned operation, const void* argument, unsigned count) {
  if (argument == nullptr || in_borrowed_memory() || !is_readable(argument, least_size_of(operation))) return;
  std::uint64_t numbers = 0;
  switch (operation) {
    case IORING_REGISTER_FILES:
      numbers = reinterpret_cast<std::uintptr_t>(argument);
      break;
    case IORING_REGISTER_FILES_UPDATE:
      numbers = static_cast<const io_uring_rsrc_update*>(argument)->data;
      break;
    case IORING_REGISTER_FILES2:
      numbers = static_cast<const io_uring_rsrc_register*>(argument)->data;
      count = static_cast<const io_uring_rsrc_register*>(argument)->nr;
      break;
    case IORING_REGISTER_FILES_UPDATE2:
      numbers = static_cast<const io_uring_rsrc_update2*>(argument)->data;
      count = static_cast<const io_uring_rsrc_update2*>(argument)->nr;
      break;
    default:
      return;
  }
  const int kept = errno;
  leave_all_to_kernel(numbers, count);
  errno = kept;
}

void forget_ring(int fd) {
  if (Ring* const ring = rings.take(fd)) ring->let_go();
}

void forget_rings_in(unsigned first, unsigned last) {
  rings.each([&](int fd, Ring*) {
    if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last) forget_ring(fd);
  });
}

void rings_after_fork_in_child() {
  Ring::unlock_all();
}

}  // namespace viaduct::sockets
