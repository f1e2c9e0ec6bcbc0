// The frames that a session has sent and still cares about, in the order of their numbers: when, how large, and what
// must be sent again should one prove lost. A frame that proved lost is remembered for a while: should it be
// acknowledged after all, the repair was needless, and the bounds that judged it widen.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "net/wire.hpp"

namespace viaduct::net {

// What of a frame must be sent again when it is lost.
struct Repair {
  ChunkKind kind = ChunkKind::ping;
  std::uint8_t detail = 0;     // of a result: its status
  std::uint32_t id = 0;        // flow or transfer
  std::uint32_t sequence = 0;  // of an item
  std::uint32_t size = 0;
  std::uint64_t offset = 0;
};

struct SentFrame {
  static constexpr std::size_t kMostRepairs = 8;
  enum class State : std::uint8_t { flying, lost, over };

  std::uint64_t number = 0;
  std::uint64_t sent_at = 0;
  std::uint32_t size = 0;
  std::uint8_t repair_count = 0;
  State state = State::over;
  bool probe = false;  // of the path, and nothing else
  std::array<Repair, kMostRepairs> repairs;

  std::span<const Repair> to_repair() const { return std::span(repairs).first(repair_count); }
  bool full() const { return repair_count == kMostRepairs; }
  void note(const Repair& repair) { repairs[repair_count++] = repair; }
};

class SentFrames {
 public:
  explicit SentFrames(std::uint64_t first_number) : oldest_(first_number), next_(first_number), ring_(kSmallest) {}

  std::uint64_t next_number() const { return next_; }
  std::uint64_t oldest() const { return oldest_; }
  std::uint16_t span() const { return static_cast<std::uint16_t>(next_ - oldest_); }
  // The receiver tracks no more: nothing can be sent until the oldest is acknowledged or forgotten.
  bool at_limit() const { return next_ - oldest_ >= kNumbersTracked; }
  std::uint32_t flying() const { return flying_; }

  // A frame with the next number, to be filled in; not at the limit.
  SentFrame& add(std::uint64_t now) {
    if (next_ - oldest_ == ring_.size()) grow();
    SentFrame& frame = at(next_);
    frame.number = next_++;
    frame.sent_at = now;
    frame.repair_count = 0;
    frame.probe = false;
    frame.state = SentFrame::State::flying;
    ++flying_;
    return frame;
  }

  // Null where it was never sent, or is not cared about any more.
  SentFrame* find(std::uint64_t number) {
    if (number < oldest_ || number >= next_) return nullptr;
    SentFrame& frame = at(number);
    return frame.state == SentFrame::State::over ? nullptr : &frame;
  }

  void set_lost(SentFrame& frame) {
    frame.state = SentFrame::State::lost;
    --flying_;
  }
  void set_over(SentFrame& frame) {
    if (frame.state == SentFrame::State::flying) --flying_;
    frame.state = SentFrame::State::over;
    while (oldest_ < next_ && at(oldest_).state == SentFrame::State::over) ++oldest_;
  }

 private:
  static constexpr std::size_t kSmallest = 16;  // an idle session holds little

  SentFrame& at(std::uint64_t number) { return ring_[number % ring_.size()]; }
  void grow() {
    std::vector<SentFrame> larger(ring_.size() * 2);
    for (std::uint64_t number = oldest_; number < next_; ++number) larger[number % larger.size()] = at(number);
    ring_.swap(larger);
  }

  std::uint64_t oldest_;
  std::uint64_t next_;
  std::uint32_t flying_ = 0;
  std::vector<SentFrame> ring_;
};

}  // namespace viaduct::net
