#include "nic/endpoint/delivery_processor.hpp"

#include <pthread.h>
#include <signal.h>

#include <mutex>

#include "base/log.hpp"
#include "base/spin.hpp"
#include "base/topology.hpp"

namespace viaduct::nic {

DeliveryProcessor::~DeliveryProcessor() {
  stopping_.store(true);
  if (word_.must_wake()) word_.wake_sleepers();
  if (thread_.joinable()) thread_.join();
}

void DeliveryProcessor::start() {
  word_.promise_heavy_fence();
  thread_ = std::thread([this] { run(); });
}

void DeliveryProcessor::publish() {
  if (producer_.load(std::memory_order_relaxed) == written_) return;
  producer_.store(written_, std::memory_order_release);  // R1
  word_.wake_if_armed();
}

// Frames in a row for one endpoint are one locking and one ring of its bell.
void DeliveryProcessor::move(std::uint32_t from, std::uint32_t to) {
  while (from != to) {
    const Entry& first = entries_[from % kFrames];
    Port& port = *first.port;
    {
      const std::lock_guard locked(port.receive_lock);
      const bool is_it = port.is_open() && port.id() == first.id;
      std::uint16_t id = first.id;
      for (; from != to && entries_[from % kFrames].port == &port && entries_[from % kFrames].id == id; ++from)
        if (is_it) (void)port.deliver(entries_[from % kFrames].frame, queue_);
      if (is_it) port.ring_user();
    }
    done_.store(from, std::memory_order_release);  // R2
  }
}

void DeliveryProcessor::run() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), ("nic-queue-" + std::to_string(queue_)).c_str());
  if (core_ >= 0)
    if (auto pinned = pin_this_thread(core_); !pinned) log::fault(pinned.error().message());
  const Clock& clock = Clock::steady();
  constexpr int kPatience = 64;                       // looks between looks at the clock
  constexpr std::uint64_t kSecondLookNs = 1'000'000;  // as in base/waiter.hpp
  constexpr std::uint64_t kLongestSleepNs = 64'000'000;
  std::uint64_t idle_since = 0, sleep_ns = kSecondLookNs;
  int idle = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const std::uint32_t at = done_.load(std::memory_order_relaxed);
    if (const std::uint32_t producer = producer_.load(std::memory_order_acquire); producer != at) {  // A1
      move(at, producer);
      idle_since = 0, idle = 0, sleep_ns = kSecondLookNs;
      continue;
    }
    cpu_relax();
    if (spin_us_ != 0 && ++idle < kPatience) continue;
    idle = 0;
    const std::uint64_t now = clock.now_ns();
    if (idle_since == 0) idle_since = now;
    if (spin_us_ == UINT64_MAX || now - idle_since < spin_us_ * 1000) continue;
    const std::uint32_t armed = word_.arm();
    if (producer_.load(std::memory_order_acquire) != at || stopping_.load()) continue;
    (void)word_.sleep(armed, Deadline::at_ns(now + sleep_ns), clock);
    sleep_ns = std::min(2 * sleep_ns, kLongestSleepNs);
  }
}

}  // namespace viaduct::nic
