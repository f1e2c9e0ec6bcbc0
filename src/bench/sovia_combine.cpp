// Combining small messages: they are copied one behind the other into a chunk, which leaves when (1) its time is up,
// (2) the next one does not fit, (3) a large one follows, or (4) the application receives or closes.
#include <cstring>

#include "bench/sovia_end.hpp"

namespace viaduct::bench {

void SoviaEnd::append(std::span<const std::byte> part, Lock& lock) {
  if (filled_ + part.size() > kSoviaChunk) flush(lock);
  if (filling_ == nullptr) filling_ = take_chunk();
  std::memcpy(filling_ + filled_, part.data(), part.size());
  filled_ += part.size();
  ++counts_.combined;
  if (timer_asleep_) timer_changed_.notify_one();
}

void SoviaEnd::flush() {
  Lock lock = guard();
  flush(lock);
}

void SoviaEnd::flush(Lock& lock) {
  if (filled_ == 0) return;
  await(lock, [this] { return window_ > 0 || filled_ == 0; });
  if (filled_ != 0) send_combined();  // the timer may have been first
}

void SoviaEnd::send_combined() {
  send_packet(Kind::data, {{filling_, filled_}, memory_->handle(), filling_, false}, 0);
  filling_ = nullptr;
  filled_ = 0;
  ++combined_packets_;
}

// ---- the timer

// It ticks twice in the time allowed, and flushes what it has seen before. So an append costs no look at the clock, and
// wakes the timer only when that has found nothing to wait for: about once in a tick, not once in a message.
void SoviaEnd::run_timer() {
  Lock lock(mutex_);
  const auto tick = options_.flush_after / 2;
  while (!timer_ends_) {
    if (filled_ == 0) {
      timer_asleep_ = true;
      timer_changed_.wait(lock, [this] { return filled_ != 0 || timer_ends_; });
      timer_asleep_ = false;
    }
    const std::uint64_t seen = combined_packets_;
    timer_changed_.wait_for(lock, tick, [this] { return timer_ends_; });
    if (filled_ != 0 && combined_packets_ == seen) flush_if_possible();
  }
}

// Without room in the window it stays for the next tick. The application is elsewhere: if packets are its business,
// acknowledgements are taken in here.
void SoviaEnd::flush_if_possible() {
  if (options_.handling == SoviaOptions::Handling::application) {
    VIP_DESCRIPTOR* descriptor = nullptr;
    while (window_ == 0 && VipRecvDone(vi_, &descriptor) == VIP_SUCCESS) handle(descriptor);
  }
  if (window_ > 0) send_combined();
}

}  // namespace viaduct::bench
