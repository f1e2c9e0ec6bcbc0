// The process's sockets: which descriptor is which connection, and how one comes and goes.
#pragma once

#include <sys/types.h>

#include <cerrno>

#include "sockets/connection.hpp"
#include "sockets/fd_map.hpp"

namespace viaduct::sockets {

extern FdMap<Connection> connections;

inline Connection* find_connection(int fd) {
  return connections.find(fd);
}

// A TCP socket was born: socket(), accept(). Nothing happens where there is no memory, or acceleration is off.
void adopt(int fd, bool nonblocking);

// One more descriptor for the same socket.
void adopt_duplicate(Connection& connection, int fd);

// Standard input and output: libc reads and writes them without asking anybody.
constexpr bool is_standard(int fd) {
  return fd <= 2;
}

// The descriptor is about to be closed, or has been replaced. `socket`: where the connection still answers; -1:
// nowhere.
void let_go(int fd, int socket);
// The same in two steps, where the number becomes another connection's at one moment. Returns whose it was.
Connection* give_number(int fd, Connection& connection);
void number_lost(Connection& connection, int fd, int socket);

// -1: it has none any more.
int any_number_of(const Connection& connection);

// The program takes one of our own descriptor numbers for itself.
void give_up_internal(int fd);

// The program will soon have run out of descriptors: some go that are kept for some day. Or it has: then a few go now,
// offers as well. False: none went. A connection without works on, but cannot be passed on, nor be looked at from
// outside.
enum class Want { some_soon, one_now };
bool give_descriptors_back(Want want);

inline bool has_failed(int fd) {
  return fd < 0;
}
inline bool has_failed(const void* made) {
  return made == nullptr;
}
// A call that makes a descriptor: with one of ours, if there is no other.
template <class Call>
auto with_room(Call&& call) {
  const auto made = call();
  if (!has_failed(made) || errno != EMFILE || !give_descriptors_back(Want::one_now)) [[likely]]
    return made;
  return call();
}

// Never again on the ring; bytes that are there come over TCP, once the peer looks at the connection.
void make_plain(Connection& connection, int fd, Why why);
// The same where that number is a connection's: what the kernel does with the bytes themselves, or tells of each
// arrival, it can do only where it carries them.
inline void leave_to_kernel(int fd) {
  const int kept = errno;
  Connection* const connection = find_connection(fd);
  if (connection != nullptr && connection->life.load() != Life::plain) make_plain(*connection, fd, Why::kernel_feature);
  errno = kept;
}

// vfork and posix_spawn children run in the parent's memory: what they do with descriptors is not the parent's doing.
bool in_borrowed_memory();
pid_t own_pid();

// The process ends without having closed them: those that have read everything say so.
void table_at_exit();

// Of connections that exec is about to close leave is taken; and where it fails, not.
void table_before_exec();
void table_after_failed_exec();

void table_before_fork();
void table_after_failed_fork();
void table_after_fork_in_child();

// Another process has this end open.
bool has_other_holders(const Connection& connection);

}  // namespace viaduct::sockets
