#include "nic/doze.hpp"

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

bool Doze::sleep(int wakeup, std::span<const pollfd> watched, std::uint64_t most_ns) {
  std::array<pollfd, 1 + kMostWatched> fds{{{wakeup, POLLIN, 0}}};
  std::copy(watched.begin(), watched.end(), fds.begin() + 1);
  const timespec limit = to_timespec(most_ns);
  const int ready = ::ppoll(fds.data(), 1 + watched.size(), most_ns == UINT64_MAX ? nullptr : &limit, nullptr);
  if (ready <= 0) return false;
  if ((fds[0].revents & POLLIN) != 0) {
    std::uint64_t count = 0;
    (void)!::read(wakeup, &count, sizeof count);
  }
  return true;
}

}  // namespace viaduct::nic
