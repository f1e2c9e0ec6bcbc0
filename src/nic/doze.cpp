#include "nic/doze.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include "base/waiter.hpp"

namespace viaduct::nic {

Result<std::unique_ptr<Doze>> Doze::create(unsigned processors) {
  auto doze = std::make_unique<Doze>();
  for (unsigned i = 0; i < processors; ++i) {
    doze->places_[i].wakeup = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!doze->places_[i].wakeup) return Error::from_errno("make an eventfd for a processor to sleep on");
    doze->places_[i].word.promise_heavy_fence();
  }
  return doze;
}

void Doze::wake(unsigned processor) {
  Place& place = places_[processor];
  if (place.word.must_wake()) wake_eventfd(place.wakeup.get());
}

bool Doze::sleep(int wakeup, int mac_fd, std::uint64_t most_ns) {
  pollfd fds[2] = {{wakeup, POLLIN, 0}, {mac_fd, POLLIN, 0}};
  const timespec limit = to_timespec(most_ns);
  const int ready = ::ppoll(fds, mac_fd < 0 ? 1 : 2, most_ns == UINT64_MAX ? nullptr : &limit, nullptr);
  if (ready <= 0) return false;
  if ((fds[0].revents & POLLIN) != 0) {
    std::uint64_t count = 0;
    (void)!::read(wakeup, &count, sizeof count);
  }
  return true;
}

}  // namespace viaduct::nic
