// What /proc says about a process and its descriptors.
#pragma once

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace viaduct::sockets_view {

std::string command_of(int pid);

// As it calls itself: in the innermost of its process-number namespaces. 0: gone.
int own_number_of(int pid);

// The inode of the socket at a descriptor; 0: it is none.
unsigned long socket_inode(int pid, int fd);

// Whether the process has a file of that name mapped, in whatever folder.
bool maps_file_named(int pid, const std::string& name);

// Every process's number, in order.
std::vector<int> process_numbers();

// Descriptors of the process that are a memfd of that name. ESRCH, EACCES: it has gone, it is not ours to see.
Result<std::vector<int>> memfds_named(int pid, const std::string& name);

// Opens what is at the descriptor, if it is a memfd of that name (ENOENT where not).
Result<Fd> open_memfd(int pid, int fd, const std::string& name, int flags);

}  // namespace viaduct::sockets_view
