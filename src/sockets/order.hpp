// Who sends on several connections is heard in the order in which it sent, as on TCP: each slot says when its bytes
// were sent, and whether its process has used TCP for anything since it last sent on that connection (then
// Tally::tcp_used says when).
#pragma once

#include <sys/single_threaded.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "sockets/thread_state.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace viaduct::sockets {

// A count that all processors share, of some nanoseconds each; from an arbitrary start.
inline std::uint64_t moment_now() {
#if defined(__x86_64__)
  return __rdtsc() >> 5;
#else
  return Clock::steady().now_ns() >> 4;
#endif
}

constexpr std::uint64_t kTurnMoments = 2048;  // some 25 us: what else there is comes to its turn after that

// The moment of a send, after that of this thread's last one. The counter takes longer to read than the rest of a send:
// in a process with one thread, whose sends it alone orders, it is read now and then.
inline std::uint64_t moment_of_send() {
  constexpr std::uint32_t kSendsPerLook = 16;
  static thread_local std::uint64_t last [[gnu::tls_model("initial-exec")]] = 0;
  static thread_local std::uint32_t left [[gnu::tls_model("initial-exec")]] = 0;
  if (left != 0 && __libc_single_threaded != 0) [[likely]] {
    --left;
    return ++last;
  }
  left = kSendsPerLook - 1;
  return last = std::max(last + 1, moment_now());
}

// The low 31 bits of a moment, which tell it from others for some seconds, and a bit.
class SentMark {
 public:
  SentMark() = default;
  explicit SentMark(std::uint32_t word) : word_(word) {}
  static SentMark of(std::uint64_t moment, bool after_tcp) {
    return SentMark(static_cast<std::uint32_t>(moment << 1) | (after_tcp ? 1U : 0U));
  }
  std::uint32_t word() const { return word_; }
  bool after_tcp() const { return (word_ & 1) != 0; }
  SentMark without_tcp() const { return SentMark(word_ & ~1U); }
  // The moment, as it looks at another: that, or much longer ago, or a little later.
  std::uint64_t moment(std::uint64_t now) const {
    constexpr std::uint64_t kAll = std::uint64_t{1} << 31, kLittle = kAll >> 10;
    const std::uint64_t ahead = ((word_ >> 1) - now) % kAll;
    return ahead < kLittle ? now + ahead : now - (kAll - ahead);
  }

 private:
  std::uint32_t word_ = 0;
};

// When this process last sent, rang, connected or closed over TCP where the peer may be one that reads rings.
inline std::atomic<std::uint64_t> tcp_used{0};

inline void note_tcp_use() {
  tcp_used.store(moment_now(), std::memory_order_relaxed);
  this_thread.last_sent_on = nullptr;
}

}  // namespace viaduct::sockets
