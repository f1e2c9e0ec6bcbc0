#include "bench/bare_loop.hpp"

#include "base/copy_loop.hpp"
#include "base/spin.hpp"
#include "base/topology.hpp"

namespace viaduct::bench {

BareLoop::BareLoop(int other_processor) : thread_([this, other_processor] { serve(other_processor); }) {}

BareLoop::~BareLoop() {
  wanted_.store(State::gone, std::memory_order_release);
  wanted_.notify_one();
  thread_.join();
}

void BareLoop::copy(Way way, std::byte* to, const std::byte* from, std::size_t size) {
  if (way == Way::past_caches)
    copy_past_caches(to, from, size);
  else
    copy_through_ring(to, from, size);
}

void BareLoop::copy_by_two(Way way, std::byte* to, const std::byte* from, std::size_t size) {
  const std::size_t half = size / 2 / 64 * 64;
  way_ = way, to_ = to + half, from_ = from + half, size_ = size - half;
  const std::uint64_t turn = done_.load(std::memory_order_relaxed) + 1;
  asked_.store(turn, std::memory_order_release);  // R1: publishes what to copy; pairs with A1 in serve()
  copy(way, to, from, half);
  while (done_.load(std::memory_order_acquire) != turn) cpu_relax();  // A2
}

void BareLoop::serve(int processor) {
  (void)pin_this_thread(processor);
  for (std::uint64_t done = 0;;) {
    const State wanted = wanted_.load(std::memory_order_acquire);
    if (wanted == State::gone) return;
    if (const std::uint64_t asked = asked_.load(std::memory_order_acquire); asked != done) {  // A1
      copy(way_, to_, from_, size_);
      done_.store(done = asked, std::memory_order_release);  // R2: the bytes are there; pairs with A2
    } else if (wanted == State::asleep) {
      wanted_.wait(State::asleep, std::memory_order_acquire);
    } else {
      cpu_relax();
    }
  }
}

// A copy of nothing says when the other thread is there.
BareLoop::Awake::Awake(BareLoop& loop) : loop_(loop) {
  loop_.wanted_.store(State::awake, std::memory_order_release);
  loop_.wanted_.notify_one();
  loop_.copy_by_two(Way::through_caches, nullptr, nullptr, 0);
}

BareLoop::Awake::~Awake() {
  loop_.wanted_.store(State::asleep, std::memory_order_release);
}

}  // namespace viaduct::bench
