#include "nic/endpoint/wake_descriptor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/waiter.hpp"

namespace viaduct::nic {

Result<WakeDescriptor> WakeDescriptor::create() {
  WakeDescriptor made;
  made.set_.reset(::epoll_create1(EPOLL_CLOEXEC));
  made.bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  made.timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!made.set_ || !made.bell_ || !made.timer_)
    return Error::from_errno("make descriptors for an endpoint to sleep on");
  made.watch(made.bell_.get(), EPOLLIN);
  made.watch(made.timer_.get(), EPOLLIN);
  return made;
}

void WakeDescriptor::watch(int fd, std::uint32_t events) {
  epoll_event entry{};
  entry.events = events;
  entry.data.fd = fd;
  if (events == 0)
    (void)::epoll_ctl(set_.get(), EPOLL_CTL_DEL, fd, nullptr);
  else if (::epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &entry) != 0)
    (void)::epoll_ctl(set_.get(), EPOLL_CTL_MOD, fd, &entry);
}

void WakeDescriptor::set_timer(std::uint64_t due_ns) {
  // One that has gone off is set again, or it would stay readable.
  if (due_ns == due_ns_ && (due_ns == UINT64_MAX || due_ns > Clock::steady().now_ns())) return;
  due_ns_ = due_ns;
  itimerspec when{};
  if (due_ns != UINT64_MAX) when.it_value = to_timespec(due_ns == 0 ? 1 : due_ns);
  (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void WakeDescriptor::arm(Word& word, std::uint64_t due_ns) {
  set_timer(due_ns);
  (void)WakeProtocol<FullFences>::arm(word);
}

// The bell is looked at even if nobody seems to have rung: a waker may have cleared the word and ring a moment later,
// and then the next sleep ends for nothing, once.
void WakeDescriptor::disarm(Word& word) {
  word.fetch_and(~std::uint32_t{1});
  std::uint64_t count = 0;
  (void)!::read(bell_.get(), &count, sizeof count);
}

void WakeDescriptor::ring(Word& word, int bell) {
  if (WakeProtocol<FullFences>::must_wake(word)) wake_eventfd(bell);
}

}  // namespace viaduct::nic
