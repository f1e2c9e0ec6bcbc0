#include "sockets/retired.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/clock.hpp"
#include "sockets/brief_lock.hpp"

namespace viaduct::sockets {

namespace {

constexpr std::size_t kMost = 1024;

struct Piece {
  void* base;
  std::size_t size;
  std::uint64_t when;
};

struct Queue {
  BriefLock lock;
  Piece pieces[kMost];
  std::size_t first = 0;
  std::atomic<std::size_t> count{0};
  Piece closed{};  // beside the others: of a process with one thread
  std::atomic<bool> has_closed{false};
};
constinit Queue queue{};

// Under the lock; afterwards there is place for one more.
void sweep(std::uint64_t now) {
  while (queue.count != 0) {
    const Piece& oldest = queue.pieces[queue.first];
    if (queue.count < kMost && now - oldest.when < kGraceNs) break;
    ::munmap(oldest.base, oldest.size);
    queue.first = (queue.first + 1) % kMost;
    queue.count.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace

void retired_after_fork_in_child() {
  queue.lock.reset();
}

void unmap_closed() {
  if (!queue.has_closed.load(std::memory_order_relaxed)) [[likely]]
    return;
  const int kept = errno;
  const BriefLock::Hold hold(queue.lock);
  if (queue.has_closed.exchange(false)) ::munmap(queue.closed.base, queue.closed.size);
  errno = kept;
}

void retire_memory(void* base, std::size_t size) {
  if (nobody_is_inside()) {
    unmap_closed();
    const BriefLock::Hold hold(queue.lock);
    queue.closed = {base, size, 0};
    queue.has_closed.store(true);
    return;
  }
  const std::uint64_t now = Clock::steady().now_ns();
  const BriefLock::Hold hold(queue.lock);
  if (!AtMemory::is_so()) sweep(now);
  if (queue.count == kMost) return;  // handlers have closed so many while one call was interrupted: they stay
  queue.pieces[(queue.first + queue.count) % kMost] = {base, size, now};
  queue.count.fetch_add(1, std::memory_order_relaxed);
}

void sweep_retired() {
  unmap_closed();
  if (!AtMemory::is_so()) (void)sweep_before_sleep();
}

int sweep_before_sleep() {
  if (queue.count.load(std::memory_order_relaxed) == 0 || AtMemory::is_so_twice()) [[likely]]
    return 0;
  const std::uint64_t now = Clock::steady().now_ns();
  const BriefLock::Hold hold(queue.lock);
  sweep(now);
  if (queue.count == 0) return 0;
  const Piece& newest = queue.pieces[(queue.first + queue.count - 1) % kMost];
  return static_cast<int>((newest.when + kGraceNs - now) / 1'000'000) + 1;
}

}  // namespace viaduct::sockets
