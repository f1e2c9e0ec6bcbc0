#include "via/vipl/progress.hpp"

#include <sched.h>

#include <algorithm>

#include "base/config.hpp"

namespace viaduct::vipl {

namespace {

constexpr std::uint64_t kAlarmTag = 0;
constexpr std::size_t kTagsAtOnce = 32;

std::uint64_t tag_of(const Vi& vi) {
  return reinterpret_cast<std::uint64_t>(&vi);
}

int milliseconds_left(Deadline deadline, const Clock& clock) {
  if (deadline.is_never()) return -1;
  const std::uint64_t left = (deadline.left_ns(clock.now_ns()) + 999'999) / 1'000'000;  // never early
  return static_cast<int>(std::min<std::uint64_t>(left, 1'000'000'000));
}

}  // namespace

// Learns how long this thread's waits take, whatever they are for.
Waiter& Progress::waiter() {
  thread_local Waiter waiter(Config::process().number("VIADUCT_SPIN_US") * 1000);
  return waiter;
}

Status Progress::start() {
  std::error_code fault;
  ready_ = via::ReadyQueue::make(kMostConnections + 1, fault);
  if (!fault) fault = ready_->add(adapter_.leadership().alarm(), kAlarmTag);
  if (fault) return Error(fault.value(), "ready queue: " + fault.message());
  return {};
}

// ---- attending to VIs

std::error_code Progress::attend(Vi& vi) {
  if (vi.attended || vi.channel() == nullptr) return {};
  const std::error_code fault = ready_->add(*vi.channel(), tag_of(vi));
  vi.attended = !fault;
  return fault;
}

void Progress::leave_alone(Vi& vi) {
  if (vi.attended) ready_->remove(*vi.channel());
  vi.attended = false;
  if (vi.leftover) std::erase(leftovers_, &vi);
  vi.leftover = false;
}

bool Progress::ask_for_attention(Vi& vi) {
  {
    const std::lock_guard lock(vi.lock);
    vi.wants_attention = true;
    if (vi.attended || vi.state() != VIP_STATE_CONNECTED) return true;
  }
  adapter_.leadership().lead();
  bool attended = true;
  {
    const std::lock_guard lock(vi.lock);
    if (vi.state() == VIP_STATE_CONNECTED) attended = !attend(vi);
  }
  adapter_.leadership().stop();
  return attended;
}

// ---- looking

bool Progress::poll(Effects& effects) {
  if (!adapter_.leadership().try_lead()) return false;
  poll_as_leader(effects);
  adapter_.stop_leading(effects);
  return true;
}

void Progress::poll_as_leader(Effects& effects) {
  std::uint64_t tags[kTagsAtOnce];
  if (!leftovers_.empty()) [[unlikely]] {
    std::size_t count = 0;
    for (; count < kTagsAtOnce && !leftovers_.empty(); leftovers_.pop_back()) {
      leftovers_.back()->leftover = false;
      tags[count++] = tag_of(*leftovers_.back());
    }
    visit({tags, count}, effects);
  }
  if (const std::size_t count = ready_->take(tags); count > 0) visit({tags, count}, effects);
  if (adapter_.has_blocked()) [[unlikely]]
    press_on(effects);
}

void Progress::visit(std::span<const std::uint64_t> tags, Effects& effects) {
  for (const std::uint64_t tag : tags) {
    if (tag == kAlarmTag) {
      adapter_.leadership().quiet_alarm();
      continue;
    }
    Vi& vi = *reinterpret_cast<Vi*>(tag);  // attended: it leaves the ready queue before it goes
    const std::lock_guard lock(vi.lock);
    if (vi.visit(effects) && !vi.leftover) {
      vi.leftover = true;
      leftovers_.push_back(&vi);
    }
    if (vi.state() != VIP_STATE_CONNECTED) leave_alone(vi);  // a channel at its end would be reported for ever
  }
}

// Under leadership a VI that is blocked cannot be disconnected, so the pointers stay good.
void Progress::press_on(Effects& effects) {
  for (Vi* const vi : adapter_.blocked()) {
    const std::lock_guard lock(vi->lock);
    (void)vi->run_sends(effects);
  }
}

// ---- sleeping

// Before the leader sleeps: whoever waits for room is woken by a message of its peer, and so must be attended.
// False: something moved meanwhile.
bool Progress::ask_for_room(Effects& effects) {
  for (Vi* const vi : adapter_.blocked()) {
    const std::lock_guard lock(vi->lock);
    (void)attend(*vi);
    vi->ask_for_room(effects);
    if (!vi->blocked) return false;
  }
  return true;
}

SleepResult Progress::sleep_as_leader(Deadline deadline, const Clock& clock) {
  Effects effects;
  std::uint64_t tags[kTagsAtOnce];
  std::size_t count = 0;
  bool ready = !leftovers_.empty();
  if (adapter_.has_blocked() && !ask_for_room(effects)) ready = true;
  if (!ready && !effects.wake) count = ready_->wait(tags, milliseconds_left(deadline, clock));
  adapter_.leadership().get_up();
  visit({tags, count}, effects);
  if (ready) poll_as_leader(effects);
  adapter_.leadership().pause();
  adapter_.deliver(effects);
  while (adapter_.leadership().is_claimed()) ::sched_yield();
  return count > 0 || ready || !deadline.expired(clock.now_ns()) ? SleepResult::woken : SleepResult::timeout;
}

}  // namespace viaduct::vipl
