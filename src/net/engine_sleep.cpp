// Threads that sleep on an engine: the bell for news that others make, and the timer for what is due.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "net/live_engine.hpp"

namespace viaduct::net {

namespace {

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

}  // namespace

struct LiveEngine::Bell {
  LiveEngine& engine;

  std::uint64_t news() const { return engine.news_.load(std::memory_order_relaxed); }
  void set_news(std::uint64_t news) { engine.news_.store(news, std::memory_order_release); }
  std::uint32_t sleepers() const { return engine.sleepers_; }
  void set_sleepers(std::uint32_t sleepers) { engine.sleepers_ = sleepers; }
  bool rung() const { return engine.rung_; }
  void set_rung(bool rung) { engine.rung_ = rung; }
  void ring() {
    const std::uint64_t one = 1;
    (void)!::write(engine.bell_.get(), &one, sizeof one);
  }
  void silence() {
    std::uint64_t rings = 0;
    (void)!::read(engine.bell_.get(), &rings, sizeof rings);
  }
};

void LiveEngine::make_news() {
  Bell bell{*this};
  SleepProtocol<Bell>::make_news(bell);
}

std::uint64_t LiveEngine::next_deadline() const {
  std::uint64_t next = node_->next_deadline();
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (!doubts_.empty()) next = std::min(next, doubts_.begin()->first);
  if (!idle_.empty()) next = std::min(next, idle_.begin()->first + kKeepIdle);
  return next;
}

// The timer may be early, which costs a look; it is never late.
void LiveEngine::arm_timer(std::uint64_t due) {
  if (due >= timer_at_) return;
  timer_at_ = due;
  itimerspec when{};
  when.it_value = to_timespec(std::max<std::uint64_t>(due, 1));
  (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void LiveEngine::drain_timer() {
  std::uint64_t times = 0;
  (void)!::read(timer_.get(), &times, sizeof times);
  timer_at_ = UINT64_MAX;
}

// After a call that may have made something due: those who sleep hear of it in time.
void LiveEngine::mind_sleepers() {
  if (sleepers_ > 0 || keeping_ == Keeping::all) arm_timer(next_deadline());
}

int LiveEngine::descriptor() const {
  const std::lock_guard lock(mutex_);
  return node_ == nullptr ? -1 : bed_.get();
}

bool LiveEngine::prepare_to_sleep(std::uint64_t seen) {
  const std::lock_guard lock(mutex_);
  if (node_ == nullptr) return false;
  program_is_here();
  if (node_->progress()) {
    (void)distribute(now_ns());
    mind_keeper();
    return false;
  }
  node_->prepare_to_sleep();
  Bell bell{*this};
  if (!SleepProtocol<Bell>::prepare(bell, seen)) return mind_keeper(), false;
  arm_timer(next_deadline());
  return true;
}

void LiveEngine::woke() {
  const std::lock_guard lock(mutex_);
  if (node_ == nullptr) return;
  Bell bell{*this};
  SleepProtocol<Bell>::woke(bell);
  mind_keeper();
  if (now_ns() < timer_at_) return;
  drain_timer();
  mind_sleepers();  // who is awake may go away without another call: the others see the time by themselves
}

void LiveEngine::sleep(std::uint64_t seen, std::uint64_t most_ns) {
  if (!prepare_to_sleep(seen)) return;
  const timespec time = to_timespec(std::min<std::uint64_t>(most_ns, 1'000'000'000'000));
  epoll_event event;
  (void)::epoll_pwait2(descriptor(), &event, 1, most_ns == UINT64_MAX ? nullptr : &time, nullptr);
  woke();
}

}  // namespace viaduct::net
