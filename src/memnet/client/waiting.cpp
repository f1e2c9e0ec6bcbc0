// Who looks at the lines, and how those who wait sleep.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/config.hpp"
#include "memnet/client/client.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::uint64_t kAlarmTag = 0;
constexpr std::size_t kTagsAtOnce = 32;

int milliseconds_left(Deadline deadline, const Clock& clock) {
  if (deadline.is_never()) return -1;
  const std::uint64_t left = (deadline.left_ns(clock.now_ns()) + 999'999) / 1'000'000;  // never early
  return static_cast<int>(std::min<std::uint64_t>(left, 1'000'000'000));
}

void drain(int descriptor) {
  std::uint64_t tokens;
  (void)!::read(descriptor, &tokens, sizeof tokens);
}

}  // namespace

// Learns how long this thread's waits take, whatever they are for.
Waiter& Client::waiter() {
  thread_local Waiter waiter(Config::process().number("VIADUCT_SPIN_US") * 1000);
  return waiter;
}

void Client::poll() {
  if (!leadership_.try_lead()) return;
  Effects effects;
  look_as_leader(effects);
  leadership_.stop();
  has_led();
  deliver(effects);
}

// After leadership was given up: somebody who wanted to prepare a sleep meanwhile looks for himself now.
void Client::has_led() {
  if (!uses_descriptor_.load(std::memory_order_relaxed)) return;
  fence::full();  // leadership is free, then the word is read: pairs with prepare()
  if (bell_wanted_.load(std::memory_order_relaxed) && bell_wanted_.exchange(false)) wake_eventfd(bell_.get());
}

void Client::look_as_leader(Effects& effects) {
  if (prepared_.load(std::memory_order_relaxed)) [[unlikely]]
    end_preparation(true);
  std::uint64_t tags[kTagsAtOnce];
  if (const std::size_t count = ready_->take(tags); count > 0) visit({tags, count}, effects);
}

void Client::visit(std::span<const std::uint64_t> tags, Effects& effects) {
  for (const std::uint64_t tag : tags) {
    if (tag == kAlarmTag) {
      leadership_.quiet_alarm();
      continue;
    }
    const std::lock_guard held(lock);
    lines_[tag - 1]->receive(effects);
  }
}

void Client::deliver(Effects& effects, bool of_a_wait) {
  if (!effects.news) return;
  leadership_.tell_waiters();
  if (effects.notify.empty()) return;
  if (of_a_wait) leadership_.leave();  // the program may take its time
  for (const auto& [notify, argument] : effects.notify) notify(argument);
}

SleepResult Client::sleep_as_leader(Deadline deadline, const Clock& clock) {
  Effects effects;
  std::uint64_t tags[kTagsAtOnce];
  if (prepared_.load(std::memory_order_relaxed)) end_preparation(true);
  const std::size_t count = ready_->wait(tags, milliseconds_left(deadline, clock));
  leadership_.get_up();
  visit({tags, count}, effects);
  leadership_.pause();
  has_led();
  deliver(effects, true);
  while (leadership_.is_claimed()) ::sched_yield();
  if (count > 0) return SleepResult::woken;
  return deadline.expired(clock.now_ns()) ? SleepResult::timeout : SleepResult::interrupted;
}

// ---- sleeping elsewhere

// The descriptor that programs sleep on: the ready queue's, a bell for what another thread has found meanwhile, and a
// timer for the one more look that a first sleep needs (ReadyQueue::prepare_to_sleep).
int Client::descriptor() {
  if (edge_) return edge_.get();
  Fd edge(::epoll_create1(EPOLL_CLOEXEC));
  bell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  nap_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!edge || !bell_ || !nap_) return -1;
  for (const int one : {ready_->descriptor(), bell_.get(), nap_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(edge.get(), EPOLL_CTL_ADD, one, &event) != 0) return -1;
  }
  edge_ = std::move(edge);
  uses_descriptor_ = true;
  return edge_.get();
}

bool Client::prepare() {
  if (descriptor() < 0) return false;
  drain(bell_.get());
  const bool timed_out = [&] {
    std::uint64_t tokens;
    return ::read(nap_.get(), &tokens, sizeof tokens) == sizeof tokens;
  }();
  if (!leadership_.try_lead()) {  // somebody else looks, and rings when he has
    bell_wanted_.store(true, std::memory_order_seq_cst);
    if (!leadership_.try_lead()) {
      const std::lock_guard held(lock);
      return events_.empty() && jobs_.first_ended() == nullptr;
    }
    bell_wanted_ = false;
  }
  if (prepared_.load(std::memory_order_relaxed)) end_preparation(false);
  Effects effects;
  look_as_leader(effects);
  bool ready = effects.news;
  {
    const std::lock_guard held(lock);
    ready = ready || !events_.empty() || jobs_.first_ended() != nullptr;
  }
  if (!ready && !ready_->prepare_to_sleep()) ready = true;
  if (!ready) {
    prepared_ = true;
    constexpr itimerspec kNap{{0, 0}, {0, 1'000'000}}, kNone{};
    (void)::timerfd_settime(nap_.get(), 0, timed_out ? &kNone : &kNap, nullptr);
  }
  leadership_.stop();
  deliver(effects);
  return !ready;
}

// By the leader: somebody may sleep on the descriptor, for whom the queue was prepared. It is not any more.
void Client::end_preparation(bool tell) {
  prepared_ = false;
  ready_->woke();
  if (tell) wake_eventfd(bell_.get());
}

}  // namespace viaduct::memnet
