// Descriptors of our own: close-on-exec, with numbers that programs do not expect to get, known to the closing calls so
// that a daemon's "close everything" passes them by.
#pragma once

#include "sockets/fd_map.hpp"

namespace viaduct::sockets {

struct Connection;

extern FdMap<Connection> internal_fds;  // of_process(): of no connection
Connection* of_process();

// Takes `fd` over: the descriptor is moved up. -1: none left. What is only kept to be passed on, or shown, leaves some
// for what is needed now.
enum class Need { now, some_day };
int make_internal(int fd, Need need = Need::now, Connection* owner = of_process());
inline bool is_internal(int fd) {
  return internal_fds.find(fd) != nullptr;
}
template <class Use>
void for_each_internal(Use&& use) {
  internal_fds.each([&](int fd, const Connection*) { use(fd); });
}
void close_internal(int fd);
bool forget_internal(int fd);  // false: it is none
int internal_count();
int internal_count_of_connections();

// A program that gets such a number has nearly as many open as it may: it will want those that are kept for some day.
bool is_high_number(int fd);

}  // namespace viaduct::sockets
