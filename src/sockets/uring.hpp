// io_uring, of which programs ask by syscall(), as libuv and Rust's libraries do: what they are about to hand to the
// kernel is looked at first. A member of an epoll set is put there as by epoll_ctl(); a socket that is used that way
// goes back to TCP.
#pragma once

#include <linux/io_uring.h>

#include "sockets/fd_map.hpp"

namespace viaduct::sockets {

class Ring;
extern FdMap<Ring> rings;

inline bool is_ring(int fd) {
  return rings.find(fd) != nullptr;
}

// Just made. Not one whose submissions a thread of the kernel takes by itself, or that is in memory of the program.
void watch_ring(int fd, const io_uring_params& made);
// io_uring_enter(): of those that wait to be submitted, the first so many.
void look_through_ring(int fd, unsigned count, unsigned flags);
// io_uring_register(): descriptors that submissions will name by their places.
void look_at_registered(unsigned operation, const void* argument, unsigned count);

// It is closed: it ends only when nobody maps it any more.
void forget_ring(int fd);
void forget_rings_in(unsigned first, unsigned last);

// Other threads' locks are nobody's there.
void rings_after_fork_in_child();

}  // namespace viaduct::sockets
