#include "sockets/family.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>

namespace viaduct::sockets {

namespace {

constexpr std::size_t kFamilies = std::size_t{1} << 16;

struct Arena {
  std::atomic<std::uint32_t> used;
  Family families[kFamilies];
};
constinit std::atomic<Arena*> arena{nullptr};

Arena* shared_arena() {
  Arena* found = arena.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  void* memory =
      ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (!arena.compare_exchange_strong(found, static_cast<Arena*>(memory))) {
    ::munmap(memory, sizeof(Arena));
    return found;
  }
  return static_cast<Arena*>(memory);
}

bool empty(const Family& family) {
  for (const auto& member : family.members)
    if (member.load() != 0) return false;
  return family.crowd.load() == 0;
}

}  // namespace

// Those that nobody holds any more are found again once the arena has been used up.
Family* make_family(pid_t first) {
  Arena* const memory = shared_arena();
  if (memory == nullptr) return nullptr;
  const std::uint32_t start = memory->used.fetch_add(1);
  const std::size_t looks = start < kFamilies ? 1 : 64;
  for (std::size_t i = 0; i < looks; ++i) {
    Family& family = memory->families[(start + i) % kFamilies];
    std::int32_t nobody = 0;
    if (empty(family) && family.members[0].compare_exchange_strong(nobody, first)) return &family;
  }
  return nullptr;
}

bool is_member(const Family& family, pid_t pid) {
  for (const auto& member : family.members)
    if (member.load() == pid) return true;
  return false;
}

void join_family(Family& family, pid_t pid) {
  if (is_member(family, pid)) return;
  for (auto& member : family.members) {
    std::int32_t nobody = 0;
    if (member.compare_exchange_strong(nobody, pid)) return;
  }
  family.crowd.fetch_add(1);
}

void leave_family(Family& family, pid_t pid) {
  for (auto& member : family.members) {
    std::int32_t self = pid;
    if (member.compare_exchange_strong(self, 0)) return;
  }
  leave_crowd(family);
}

void leave_crowd(Family& family) {
  std::uint32_t unnamed = family.crowd.load();
  while (unnamed != 0 && !family.crowd.compare_exchange_weak(unnamed, unnamed - 1)) continue;
}

bool names_nobody_else(const Family& family, pid_t pid) {
  return family.crowd.load() == 0 &&
         std::all_of(std::begin(family.members), std::end(family.members),
                     [pid](auto& member) { return member.load() == 0 || member.load() == pid; });
}

bool sole_member(Family& family, pid_t pid) {
  if (family.crowd.load() != 0) return false;
  bool alone = true;
  for (auto& member : family.members) {
    std::int32_t other = member.load();
    if (other == 0 || other == pid) continue;
    if (other < 0 || (::kill(other, 0) != 0 && errno == ESRCH))  // never a group: the number may be a stranger's
      member.compare_exchange_strong(other, 0);
    else
      alone = false;
  }
  return alone;
}

}  // namespace viaduct::sockets
