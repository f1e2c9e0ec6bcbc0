// Who does the work, and how those who wait sleep: the protocol of via/port/leader_protocol.hpp.
#include <sched.h>

#include <algorithm>

#include "base/config.hpp"
#include "mx/core.hpp"
#include "mx/doorkeeper.hpp"
#include "mx/places.hpp"

namespace viaduct::mx {

namespace {

constexpr std::size_t kTagsAtOnce = 32;
constexpr int kMostPerVisit = 256;  // fragments
constexpr std::uint64_t kHandshakeNapNs = 1'000'000;
constexpr std::uint64_t kHelpNapNs = 1'000'000;

const void* this_thread() {
  static thread_local char place;
  return &place;
}

}  // namespace

// Learns how long this thread's waits take, whatever they are for.
Waiter& Core::waiter() {
  thread_local Waiter waiter(Config::process().number("VIADUCT_SPIN_US") * 1000);
  return waiter;
}

// ---- the lock

void Core::enter() {
  const void* const self = this_thread();
  if (owner_.load(std::memory_order_relaxed) == self) {
    ++depth_;
    return;
  }
  lock_.lock();
  owner_.store(self, std::memory_order_relaxed);
  depth_ = 1;
}

void Core::leave() {
  if (depth_ > 1) {
    --depth_;
    return;
  }
  if (events_ != nullptr && !to_tell_.empty()) tell_events();
  if (statistics_ != nullptr) publish();
  const bool waiters = std::exchange(tell_waiters_, false);
  const bool leader = std::exchange(tell_leader_, false);
  depth_ = 0;
  owner_.store(nullptr, std::memory_order_relaxed);
  lock_.unlock();
  if (waiters) leadership_.tell_waiters();
  if (leader) leadership_.leader_has_to_know();
}

void Core::tell_events() {
  while (Request* const request = to_tell_.take_first()) {
    const bool over = request->forgotten || events_->completed(request, completion_of(*request));
    if (over)
      give_back(*request);
    else
      finished_.append(*request);
  }
}

// ---- looking

bool Core::progress() {
  const bool led = poll(false);
  if (population() > 1) help_in_time();
  return led;
}

// After many polls in vain, and then now and then.
void Core::help_in_time() {
  constexpr std::uint32_t kPollsInVain = 64;
  if (idle_polls_.load(std::memory_order_relaxed) % kPollsInVain == kPollsInVain - 1) help_others(*this);
}

bool Core::poll(bool of_a_wait) {
  if (!leadership_.try_lead()) return false;
  poll_as_leader();
  of_a_wait ? leadership_.pause() : leadership_.stop();
  return true;
}

// It looks seldom: so it looks at the door, too.
bool Core::poll_for_another(std::uint64_t now) {
  constexpr std::uint64_t kDoorNs = 100'000;
  if (owner_.load(std::memory_order_relaxed) == this_thread() || !leadership_.try_lead()) return false;
  if (now - door_looked_at_ns_ >= kDoorNs) {
    door_looked_at_ns_ = now;
    somebody_knocks_ = true;
  }
  poll_as_leader();
  leadership_.stop();
  return true;
}

// The door is looked at now and then also by those who never sleep.
void Core::look_at_door_in_time() {
  constexpr std::uint32_t kPollsPerClock = 64;
  constexpr std::uint64_t kDoorNs = 1'000'000;
  if (++polls_of_leader_ % kPollsPerClock != 0) return;
  const std::uint64_t now = Clock::steady().now_ns();
  if (now - door_looked_at_ns_ < kDoorNs) return;
  door_looked_at_ns_ = now;
  somebody_knocks_ = true;
}

void Core::poll_as_leader() {
  std::uint64_t tags[kTagsAtOnce];
  const std::size_t count = ready_->take(tags);
  idle_polls_.store(count == 0 ? idle_polls_.load(std::memory_order_relaxed) + 1 : 0, std::memory_order_relaxed);
  const Guard guard(*this);
  visit_tags({tags, count});
  if (!leftovers_.empty()) [[unlikely]] {
    std::vector<Link*> again;
    again.swap(leftovers_);
    for (Link* const link : again) link->leftover = false;
    links_dropped_seen_ = links_dropped_;
    for (Link* const link : again) visit_if_there(link);
  }
  if (!blocked_.empty()) press_on();
  look_at_times();
  look_at_door_in_time();
  answer_the_door();
  advance_connecting();
  advance_answered();
}

void Core::visit_tags(std::span<const std::uint64_t> tags) {
  links_dropped_seen_ = links_dropped_;
  for (const std::uint64_t tag : tags) {
    if (tag == kAlarmTag)
      leadership_.quiet_alarm();
    else if (tag == kDoorTag)
      somebody_knocks_ = true;
    else
      visit_if_there(reinterpret_cast<Link*>(tag));
  }
}

// A visit may have ended others with it.
void Core::visit_if_there(Link* link) {
  if (links_dropped_ != links_dropped_seen_) [[unlikely]] {
    for (const auto& partner : partners_)
      for (const auto& one : partner->links)
        if (one.get() == link) return visit(*link);
    return;
  }
  visit(*link);
}

void Core::look_again_at(Link& link) {
  if (link.leftover) return;
  link.leftover = true;
  leftovers_.push_back(&link);
  tell_leader_ = true;
}

void Core::visit(Link& link) {
  if (link.over || link.stalled) return;
  attend(link);
  via::Channel& channel = link.channel();
  via::Fragment fragment;
  int handled = 0;
  bool more = true;
  while (more && handled < kMostPerVisit) {
    switch (channel.peek(fragment)) {
      case via::Got::fragment:
        break;
      case via::Got::nothing:
        more = false;
        continue;
      case via::Got::end:
        return link_ended(link);
    }
    switch (take_fragment(link, fragment)) {
      case Took::yes:
        channel.consume();
        ++handled;
        break;
      case Took::not_now:
        link.stalled = true;
        leave_alone(link);  // there is something all the time
        stalled_.push_back(&link);
        more = false;
        break;
      case Took::nonsense:
        return link_broke(link, "sent something impossible");
    }
  }
  if (link.failed) return link_ended(link);
  if (link.connection.far != nullptr) take_ends(link);
  run_getters(*link.partner);
  if (handled != 0) tell_of_room(link);
  Partner& partner = *link.partner;
  if (partner.blocked) run_line(partner);
  if (more) look_again_at(link);
}

void Core::press_on() {
  const std::vector<Partner*> waiting = blocked_;
  for (Partner* const partner : waiting) run_line(*partner);
}

// ---- sleeping

// Before the leader sleeps: whoever waits for room is woken by a message of its peer. False: something moved.
bool Core::ask_for_room() {
  const std::vector<Partner*> waiting = blocked_;
  for (Partner* const partner : waiting) {
    if (partner->out == nullptr || !partner->out->is_local()) continue;  // credit is reported
    port_->registrations().view().words(partner->out->slot).wants_room.store(1, std::memory_order_seq_cst);
    fence::heavy();  // the wish, then our look at the ring; the peer gives room back, then looks for wishes
    run_line(*partner);
    if (!partner->blocked) return false;
  }
  return true;
}

std::uint64_t Core::most_sleep_ns() const {
  std::uint64_t most = UINT64_MAX;
  if (!connecting_.empty() || !answered_.empty() || somebody_knocks_) most = kHandshakeNapNs;
  if (next_time_ != UINT64_MAX) {
    const std::uint64_t now = Clock::steady().now_ns();
    most = std::min(most, next_time_ > now ? next_time_ - now : 0);
  }
  if (population() > 1) most = std::min(most, kHelpNapNs);
  return most;
}

SleepResult Core::sleep_as_leader(Deadline deadline, const Clock& clock) {
  std::uint64_t tags[kTagsAtOnce];
  std::size_t count = 0;
  bool ready = false;
  std::uint64_t most = UINT64_MAX;
  {
    const Guard guard(*this);
    ready = !leftovers_.empty() || (!blocked_.empty() && !ask_for_room()) || tell_waiters_;
    most = most_sleep_ns();
    tell_leader_ = false;  // we know
  }
  if (population() > 1) help_others(*this);
  if (!ready) {
    std::uint64_t left = std::min(deadline.is_never() ? UINT64_MAX : deadline.left_ns(clock.now_ns()), most);
    left = std::min<std::uint64_t>(left, 1'000'000'000'000'000);
    const int milliseconds =
        most == UINT64_MAX && deadline.is_never() ? -1 : static_cast<int>((left + 999'999) / 1'000'000);
    count = ready_->wait(tags, milliseconds);
  }
  leadership_.get_up();
  {
    const Guard guard(*this);
    visit_tags({tags, count});
  }
  poll_as_leader();
  leadership_.pause();
  while (leadership_.is_claimed()) ::sched_yield();
  return count > 0 || ready || !deadline.expired(clock.now_ns()) ? SleepResult::woken : SleepResult::timeout;
}

// Where S4 of the wait protocol happens: in the ready queue for the leader, on the futex for everybody else.
class Core::LeaderSleeper final : public Sleeper {
 public:
  explicit LeaderSleeper(Core& core) : core_(core) {}
  SleepResult sleep(WaitWord&, std::uint32_t armed, Deadline deadline, const Clock& clock) override {
    return core_.leadership_.sleep(armed, deadline, clock, [&] { return core_.sleep_as_leader(deadline, clock); });
  }

 private:
  Core& core_;
};

bool Core::wait(std::uint64_t within_ns, Look look) {
  LeaderSleeper sleeper(*this);
  const Deadline deadline = within_ns == kForever ? Deadline::never() : Deadline::after_ns(Clock::steady(), within_ns);
  const std::uint64_t wakes = wakes_.load(std::memory_order_acquire);
  bool found = false;
  const auto ready = [&] {
    if (look.function(look.argument)) return found = true;
    (void)poll(true);
    if (look.function(look.argument)) return found = true;
    if (population() > 1) help_in_time();
    return wakes_.load(std::memory_order_acquire) != wakes;
  };
  for (;;) {
    const WaitResult result = waiter().wait(leadership_.word(), sleeper, deadline, ready);
    if (result == WaitResult::interrupted) continue;
    leadership_.leave();
    return found;
  }
}

void Core::wake() {
  wakes_.fetch_add(1, std::memory_order_acq_rel);
  leadership_.tell_waiters();
}

}  // namespace viaduct::mx
