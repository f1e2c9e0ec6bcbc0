#include "sockets/peer_socket.hpp"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sockets/kernel.hpp"

namespace viaduct::sockets {

namespace {

struct Name {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
};

bool operator==(const Name& one, const Name& other) {
  if (one.address.ss_family != other.address.ss_family || one.size != other.size) return false;
  return std::memcmp(&one.address, &other.address, one.size) == 0;
}

Name own_name(int fd) {
  Name name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name.address), &name.size) != 0) name.size = 0;
  return name;
}

Name peer_name(int fd) {
  Name name;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name.address), &name.size) != 0) name.size = 0;
  return name;
}

}  // namespace

// By system call: the C library has neither of them here and there.
Fd borrow_peer_socket(pid_t pid, int socket) {
  const Name here = own_name(socket), there = peer_name(socket);
  if (pid <= 0 || here.size == 0 || there.size == 0) return Fd();
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
    if (candidate && own_name(candidate.get()) == there && peer_name(candidate.get()) == here)
      found = std::move(candidate);
  }
  if (listing != nullptr) ::closedir(listing);
  return found;
}

}  // namespace viaduct::sockets
