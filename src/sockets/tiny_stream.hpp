// One tiny message after the other, in one direction: a receiver that fetches the line for each of them takes it away
// from the sender each time. So in such a stream a receiver that has taken all it saw waits for some lines before it
// looks again. Not where it looks more seldom anyway, nor where it answers, and ever more seldom where nothing follows.
//
// Hints only: threads may change them under each other's hands.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/spin.hpp"
#include "sockets/stream.hpp"

namespace viaduct::sockets {

class TinyStream {
 public:
  // This end has answered, waited, or found nothing.
  void interrupted() { in_a_row_.store(0, std::memory_order_relaxed); }
  // A look has found so much at once, and gave so many slots back.
  void found(std::size_t bytes, std::uint64_t slots) {
    const bool tiny = bytes <= (slots + 1) * kInlineBytes;
    in_a_row_.store(tiny ? in_a_row_.load(std::memory_order_relaxed) + 1 : 0, std::memory_order_relaxed);
  }
  // The same, where that is known to be tiny: after so many.
  void went_on(std::uint32_t in_a_row) { in_a_row_.store(in_a_row + 1, std::memory_order_relaxed); }
  std::uint32_t in_a_row() const { return in_a_row_.load(std::memory_order_relaxed); }
  bool is_likely() const {
    return in_a_row_.load(std::memory_order_relaxed) >= enough_.load(std::memory_order_relaxed);
  }

  void let_fill(const Receiver& ring) {
    const std::uint64_t start = Clock::steady().now_ns();
    if (start - last_look_ns_.exchange(start, std::memory_order_relaxed) > 2 * kPatienceNs) return;
    for (std::uint64_t now = start; !ring.is_behind_by(kLinesToFill); now = Clock::steady().now_ns()) {
      if (now - start >= kPatienceNs) {
        enough_.store(std::min(enough_.load(std::memory_order_relaxed) * 2, kMost), std::memory_order_relaxed);
        return interrupted();
      }
      for (int i = 0; i < 8; ++i) cpu_relax();
    }
    enough_.store(kLeast, std::memory_order_relaxed);
  }

  void forget() {
    interrupted();
    enough_.store(kLeast, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kLeast = 8, kMost = 4096;
  static constexpr std::uint64_t kPatienceNs = 1500;
  static constexpr std::uint64_t kLinesToFill = 8;

  std::atomic<std::uint32_t> in_a_row_{0};
  std::atomic<std::uint32_t> enough_{kLeast};  // so many in a row make a stream; twice as many each time it was none
  std::atomic<std::uint64_t> last_look_ns_{0};
};

}  // namespace viaduct::sockets
