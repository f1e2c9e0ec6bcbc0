#include "base/waiter.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace viaduct {

SleepResult FdSleeper::sleep(WaitWord&, std::uint32_t, Deadline deadline, const Clock& clock) {
  pollfd entry{fd_, POLLIN, 0};
  timespec left{};
  const timespec* timeout = nullptr;
  if (!deadline.is_never()) {
    left = to_timespec(deadline.left_ns(clock.now_ns()));
    timeout = &left;
  }
  const int count = ::ppoll(&entry, 1, timeout, nullptr);
  if (count < 0) return SleepResult::interrupted;
  if (count == 0) return SleepResult::timeout;
  if (drain_ == Drain::eventfd) {
    std::uint64_t tokens;
    [[maybe_unused]] const ssize_t n = ::read(fd_, &tokens, sizeof tokens);
  }
  return SleepResult::woken;
}

void wake_eventfd(int fd) {
  const std::uint64_t one = 1;
  ssize_t n;
  do n = ::write(fd, &one, sizeof one);
  while (n < 0 && errno == EINTR);
}

Waiter::Waiter(std::uint64_t spin_bound_ns, const Clock& clock, const CoreProbe& probe)
    : clock_(clock), spinner_(spin_bound_ns, clock, probe) {}

}  // namespace viaduct
