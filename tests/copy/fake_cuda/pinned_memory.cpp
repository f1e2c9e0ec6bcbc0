#include "copy/fake_cuda/pinned_memory.hpp"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace fake_cuda {

namespace {

std::atomic_ref<unsigned> word(std::byte* rings, unsigned offset) {
  return std::atomic_ref<unsigned>(*reinterpret_cast<unsigned*>(rings + offset));
}

int enter(int ring) {
  for (;;) {
    const long rc = ::syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (rc >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace

bool PinnedMemory::open() {
  const std::lock_guard lock(mutex_);
  if (ring_ >= 0) return true;
  io_uring_params parameters{};
  ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &parameters));
  if (ring_ < 0) return false;
  io_uring_rsrc_register table{};
  table.nr = kMostRanges;
  table.flags = IORING_RSRC_REGISTER_SPARSE;
  const std::size_t size = std::max<std::size_t>(parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned),
                                                 parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe));
  void* const rings =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, IORING_OFF_SQ_RING);
  void* const entries = ::mmap(nullptr, parameters.sq_entries * sizeof(io_uring_sqe), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_POPULATE, ring_, IORING_OFF_SQES);
  if ((parameters.features & IORING_FEAT_SINGLE_MMAP) == 0 || rings == MAP_FAILED || entries == MAP_FAILED ||
      ::syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS2, &table, sizeof table) != 0) {
    ::close(ring_);
    ring_ = -1;
    return false;
  }
  rings_ = static_cast<std::byte*>(rings);
  entries_ = static_cast<std::byte*>(entries);
  tail_offset_ = parameters.sq_off.tail;
  array_offset_ = parameters.sq_off.array;
  mask_ = parameters.sq_entries - 1;
  done_head_offset_ = parameters.cq_off.head;
  done_tail_offset_ = parameters.cq_off.tail;
  done_entries_offset_ = parameters.cq_off.cqes;
  done_mask_ = parameters.cq_entries - 1;
  for (unsigned i = kMostRanges; i > 0; --i) free_.push_back(i - 1);
  return true;
}

bool PinnedMemory::update(unsigned index, void* base, std::size_t length) {
  const iovec buffer{base, length};
  io_uring_rsrc_update2 change{};
  change.offset = index;
  change.data = reinterpret_cast<std::uint64_t>(&buffer);
  change.nr = 1;
  return ::syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS_UPDATE, &change, sizeof change) == 1;
}

std::map<std::uintptr_t, PinnedMemory::Range>::iterator PinnedMemory::find(std::uintptr_t address) {
  auto found = ranges_.upper_bound(address);
  if (found == ranges_.begin()) return ranges_.end();
  --found;
  return address < found->first + found->second.length ? found : ranges_.end();
}

int PinnedMemory::pin(std::uintptr_t begin, std::size_t length) {
  const std::lock_guard lock(mutex_);
  if (ring_ < 0) return ENOSYS;
  const auto next = ranges_.lower_bound(begin);
  if (find(begin) != ranges_.end() || (next != ranges_.end() && next->first < begin + length)) return EALREADY;
  if (free_.empty()) return ENOMEM;
  if (!update(free_.back(), reinterpret_cast<void*>(begin), length)) return errno;
  ranges_[begin] = {length, free_.back()};
  free_.pop_back();
  return 0;
}

bool PinnedMemory::unpin(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end()) return false;
  (void)update(found->second.index, nullptr, 0);
  free_.push_back(found->second.index);
  ranges_.erase(found);
  return true;
}

bool PinnedMemory::covers(std::uintptr_t address, std::size_t length) {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  return range_of(address, begin, size) && address + length <= begin + size;
}

bool PinnedMemory::range_of(std::uintptr_t address, std::uintptr_t& begin, std::size_t& length) {
  const std::lock_guard lock(mutex_);
  const auto found = find(address);
  if (found == ranges_.end()) return false;
  begin = found->first;
  length = found->second.length;
  return true;
}

int PinnedMemory::count() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(ranges_.size());
}

bool PinnedMemory::move(int operation, int file, std::uint64_t offset, std::uintptr_t address, std::size_t length) {
  const std::lock_guard lock(mutex_);  // one request at a time is enough for tests
  const auto found = find(address);
  if (found == ranges_.end() || address + length > found->first + found->second.length) return false;
  while (length > 0) {
    const unsigned tail = word(rings_, tail_offset_).load(std::memory_order_relaxed);
    io_uring_sqe entry{};
    entry.opcode = static_cast<std::uint8_t>(operation);
    entry.fd = file;
    entry.off = offset;
    entry.addr = address;
    entry.len = static_cast<unsigned>(length);
    entry.buf_index = static_cast<std::uint16_t>(found->second.index);
    std::memcpy(entries_ + (tail & mask_) * sizeof entry, &entry, sizeof entry);
    reinterpret_cast<unsigned*>(rings_ + array_offset_)[tail & mask_] = tail & mask_;
    word(rings_, tail_offset_).store(tail + 1, std::memory_order_release);
    if (enter(ring_) != 0) return false;
    const unsigned head = word(rings_, done_head_offset_).load(std::memory_order_relaxed);
    if (word(rings_, done_tail_offset_).load(std::memory_order_acquire) == head) return false;
    const int moved = reinterpret_cast<io_uring_cqe*>(rings_ + done_entries_offset_)[head & done_mask_].res;
    word(rings_, done_head_offset_).store(head + 1, std::memory_order_release);
    if (moved <= 0) return false;
    offset += static_cast<unsigned>(moved), address += static_cast<unsigned>(moved);
    length -= static_cast<unsigned>(moved);
  }
  return true;
}

bool PinnedMemory::write_to_file(int file, std::uint64_t offset, const void* from, std::size_t length) {
  return move(IORING_OP_WRITE_FIXED, file, offset, reinterpret_cast<std::uintptr_t>(from), length);
}

bool PinnedMemory::read_from_file(int file, std::uint64_t offset, void* to, std::size_t length) {
  return move(IORING_OP_READ_FIXED, file, offset, reinterpret_cast<std::uintptr_t>(to), length);
}

}  // namespace fake_cuda
