#include "nic/endpoint/doorbells.hpp"

#include <sys/epoll.h>

#include <array>

namespace viaduct::nic {

Result<Doorbells> Doorbells::create() {
  Doorbells made;
  made.set_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!made.set_) return Error::from_errno("make a descriptor for the doorbells of endpoints");
  return made;
}

// Edge-triggered: a user who rings without end, or is gone, does not keep anybody awake by what has not been read.
void Doorbells::add(int socket) {
  epoll_event entry{};
  entry.events = EPOLLIN | EPOLLET;
  entry.data.fd = socket;
  (void)::epoll_ctl(set_.get(), EPOLL_CTL_ADD, socket, &entry);
}

void Doorbells::settle() {
  std::array<epoll_event, 32> rung;
  while (::epoll_wait(set_.get(), rung.data(), static_cast<int>(rung.size()), 0) == static_cast<int>(rung.size())) {
  }
}

}  // namespace viaduct::nic
