// This process's records in its registry (registry_format.hpp): made with its first TCP socket, so that a process
// without any publishes nothing. A record costs a few stores; a system call only when the registry grows by a page.
#pragma once

#include <atomic>

#include "sockets/registry_format.hpp"

namespace viaduct::sockets {

struct Connection;

extern std::atomic<RegistryRecord*> registry_records;

// The record at a connection's place. Null: nobody looks on.
inline RegistryRecord* registry_record(std::uint32_t place) {
  RegistryRecord* const all = registry_records.load(std::memory_order_acquire);
  return all == nullptr || place == 0 ? nullptr : all + place;
}

// A socket was born. Keeps errno.
void registry_add(Connection& connection, int fd);
void registry_remove(const Connection& connection);

// The memory is there.
void registry_attached(const Connection& connection);

// One of several descriptors of the socket was closed.
void registry_descriptor_closed(const Connection& connection, int fd);

// The program needs the descriptor of the records: nobody can look on until one can be spared again. False: it has gone
// already.
bool registry_gives_descriptor();

// The descriptor of the records has another number now.
void registry_moved(int from, int to);

// The records are the parent's. The child makes its own now, or with its next socket.
void registry_after_fork_in_child(bool now);

}  // namespace viaduct::sockets
