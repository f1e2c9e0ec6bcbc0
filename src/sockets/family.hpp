// Who holds a socket: the processes count themselves in memory they share, one that forked and its children as well as
// those that use one end of a stream. A connection is taken to the ring only by its sole holder; one that is there
// already may be shared, and ends with its last.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace viaduct::sockets {

struct Family {
  static constexpr int kMost = 7;
  std::atomic<std::int32_t> members[kMost];  // process numbers, 0: free
  std::atomic<std::uint32_t> crowd;          // those we cannot name
};
static_assert(sizeof(Family) == 32);

// In memory that children share. Null where there is none left.
Family* make_family(pid_t first);
// Harmless to repeat, for one of the first seven.
void join_family(Family& family, pid_t pid);
void leave_family(Family& family, pid_t pid);
// One that is not named less.
void leave_crowd(Family& family);
bool is_member(const Family& family, pid_t pid);
// Forgets the dead. True: nobody but `pid`.
bool sole_member(Family& family, pid_t pid);
// The same without a look at whether the others are alive.
bool names_nobody_else(const Family& family, pid_t pid);

}  // namespace viaduct::sockets
