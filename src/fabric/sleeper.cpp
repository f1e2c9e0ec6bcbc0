#include "fabric/sleeper.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/waiter.hpp"
#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

namespace {

constexpr std::uint64_t kSliceNs = 1'000'000;  // of a sleep beside several endpoints: each sleeps by itself

}  // namespace

void Sleeper::add(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  if (std::find(endpoints_.begin(), endpoints_.end(), &endpoint) == endpoints_.end()) endpoints_.push_back(&endpoint);
}

void Sleeper::remove(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  std::erase(endpoints_, &endpoint);
}

void Sleeper::progress() {
  const std::lock_guard lock(mutex_);
  for (Endpoint* const endpoint : endpoints_) endpoint->progress();
}

bool Sleeper::wait(int timeout_ms, const std::function<bool()>& look) {
  const Clock& clock = Clock::steady();
  const Deadline deadline = timeout_ms < 0
                                ? Deadline::never()
                                : Deadline::after_ns(clock, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
  for (std::size_t turn = 0;; ++turn) {
    progress();
    if (look()) return true;
    const std::uint64_t now = clock.now_ns();
    if (deadline.expired(now)) return false;
    Endpoint* endpoint = nullptr;
    bool alone = false;
    {
      const std::lock_guard lock(mutex_);
      alone = endpoints_.size() == 1;
      if (!endpoints_.empty()) endpoint = endpoints_[turn % endpoints_.size()];
    }
    if (endpoint == nullptr) return false;  // nothing will ever come
    const std::uint64_t left = deadline.left_ns(now);
    (void)endpoint->below().wait(
        alone ? left : std::min(left, kSliceNs),
        {[](void* argument) { return (*static_cast<const std::function<bool()>*>(argument))(); },
         const_cast<void*>(static_cast<const void*>(&look))});
  }
}

void Sleeper::wake() {
  const std::lock_guard lock(mutex_);
  for (Endpoint* const endpoint : endpoints_) endpoint->below().wake();
}

}  // namespace viaduct::fabric
