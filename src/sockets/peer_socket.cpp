#include "sockets/peer_socket.hpp"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/address.hpp"
#include "sockets/kernel.hpp"

namespace viaduct::sockets {

// By system call: the C library has neither of them here and there.
Fd borrow_peer_socket(pid_t pid, int socket) {
  const Address here = own_address(socket), there = peer_address(socket);
  if (pid <= 0 || !here.ok || !there.ok) return Fd();
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return Fd();
  char folder[32];
  std::snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
  DIR* const listing = ::opendir(folder);
  Fd found;
  while (const dirent* entry = listing == nullptr || found ? nullptr : ::readdir(listing)) {
    char path[64], link[32] = {};
    std::snprintf(path, sizeof path, "%s/%.16s", folder, entry->d_name);
    if (::readlink(path, link, sizeof link - 1) <= 0 || std::strncmp(link, "socket:", 7) != 0) continue;
    Fd candidate(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), std::atoi(entry->d_name), 0)));
    if (candidate && own_address(candidate.get()) == there && peer_address(candidate.get()) == here)
      found = std::move(candidate);
  }
  if (listing != nullptr) ::closedir(listing);
  return found;
}

}  // namespace viaduct::sockets
