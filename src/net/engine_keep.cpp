// What the keeper does for an engine whose program does not call, and what becomes of an engine at fork and exit.
#include <algorithm>

#include "base/clock.hpp"
#include "net/live_engine.hpp"

namespace viaduct::net {

namespace {

constexpr std::uint64_t kFirstPause = 5'000'000;  // ns without a call, after which the keeper steps in
constexpr std::uint64_t kLongestPause = 40'000'000;
constexpr int kTurns = 64;  // then others are looked at

std::uint64_t now_ns() {
  return Clock::steady().now_ns();
}

}  // namespace

// Peers may send, or want something of this side.
bool LiveEngine::can_need_keeper() const {
  return node_->tells_of_frames() && (node_->station().sessions() > 0 || node_->station().offers_any());
}

// Under the lock, when the program looks for frames itself.
void LiveEngine::program_is_here() {
  ++calls_;
  if (keeping_ != Keeping::all) return;
  keeping_ = Keeping::looking;
  pause_ = kFirstPause;
  Keeper::process().call();
}

// Under the lock, before the program goes away: the keeper looks whether it comes back. Who sleeps wakes up by himself.
void LiveEngine::mind_keeper() {
  if (keeping_ != Keeping::nothing || sleepers_ > 0 || !can_need_keeper()) return;
  keeping_ = Keeping::looking;
  pause_ = kFirstPause;
  Keeper::process().call();
}

Kept::Next LiveEngine::keep(std::uint64_t now) {
  const std::lock_guard lock(mutex_);
  const bool called = std::exchange(calls_seen_, calls_) != calls_;
  if (!can_need_keeper() || (sleepers_ > 0 && !called)) {
    keeping_ = Keeping::nothing;
    return {};
  }
  if (keeping_ == Keeping::nothing) return {};
  if (called) {
    keeping_ = Keeping::looking;
    const std::uint64_t pause = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return {.look_at = now + pause};
  }
  keeping_ = Keeping::all;
  drain_timer();
  bool moved = true;
  for (int turn = 0; moved && turn < kTurns; ++turn) {
    moved = node_->progress();
    moved |= distribute(now_ns());
    if (!moved) node_->prepare_to_sleep();
  }
  if (!can_need_keeper()) {
    keeping_ = Keeping::nothing;
    return {};
  }
  arm_timer(next_deadline());
  return {.look_at = moved ? now_ns() : UINT64_MAX, .watch = true};
}

// A child has no engines: what it has of its parent's would speak in the parent's name. Its descriptors are closed; the
// parent's are others.
void LiveEngine::after_fork(bool in_child) {
  if (in_child) {
    node_ = nullptr;
    bell_ = Fd();
    timer_ = Fd();
    bed_ = Fd();
    sleepers_ = 0;
    keeping_ = Keeping::nothing;
  }
  mutex_.unlock();
}

// What was taken is delivered, and peers need not wait until they miss this process.
void LiveEngine::end_at_exit(std::uint64_t within_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (node_ == nullptr || node_->station().sessions() == 0) return;
  }
  (void)drain(within_ns);
  const std::lock_guard lock(mutex_);
  for (const auto& [number, record] : sessions_) node_->forget(number);
}

}  // namespace viaduct::net
