#include "base/wait_word.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace viaduct {

SleepResult WaitWord::sleep(std::uint32_t armed, Deadline deadline, const Clock& clock) {
  timespec left{};
  const timespec* timeout = nullptr;
  if (!deadline.is_never()) {
    left = to_timespec(deadline.left_ns(clock.now_ns()));
    timeout = &left;
  }
  const long rc = ::syscall(SYS_futex, &state_, FUTEX_WAIT, armed, timeout, nullptr, 0);
  if (rc == 0 || errno == EAGAIN) return SleepResult::woken;
  return errno == ETIMEDOUT ? SleepResult::timeout : SleepResult::interrupted;
}

void WaitWord::wake_sleepers() {
  (void)::syscall(SYS_futex, &state_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace viaduct
