// What a session counts. It may stand in memory that other processes read (docs/formats/net-statistics.md): numbers of
// 64 bits that one thread at a time writes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace viaduct::net {

// Round trips by their length: four classes for each doubling, from a microsecond.
struct RoundTripHistogram {
  static constexpr unsigned kClasses = 96;
  static constexpr unsigned kFirstBit = 10;
  std::uint64_t counts[kClasses] = {};

  static unsigned class_of(std::uint64_t ns) {
    if (ns >> kFirstBit == 0) return 0;
    const unsigned bit = static_cast<unsigned>(std::bit_width(ns)) - 1;
    return std::min((bit - kFirstBit) * 4 + static_cast<unsigned>(ns >> (bit - 2) & 3), kClasses - 1);
  }
  // From where the next class begins.
  static std::uint64_t end_of(unsigned index) { return (std::uint64_t{5} + index % 4) << (kFirstBit - 2 + index / 4); }
  void add(std::uint64_t ns) { ++counts[class_of(ns)]; }
  // Such a part of them was not longer; 0: there are none.
  std::uint64_t percentile(double part) const {
    std::uint64_t all = 0, below = 0;
    for (const std::uint64_t count : counts) all += count;
    if (all == 0) return 0;
    const double wanted = part * static_cast<double>(all);
    for (unsigned i = 0; i < kClasses; ++i) {
      below += counts[i];
      if (static_cast<double>(below) >= wanted) return end_of(i);
    }
    return end_of(kClasses - 1);
  }
};

struct SessionCounters {
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;  // frames, with their headers
  std::uint64_t bytes_received = 0;
  std::uint64_t acks_alone = 0;      // frames that had only an ack
  std::uint64_t lost_by_number = 0;  // frames: three later ones had come
  std::uint64_t lost_by_time = 0;    // frames: a later one had come, and 9/8 of a round trip had passed
  std::uint64_t needless = 0;        // of these: had come after all
  std::uint64_t probes = 0;          // pings because nothing was heard
  std::uint64_t keepalives = 0;
  std::uint64_t duplicates = 0;         // frames that had come before: dropped
  std::uint64_t out_of_window = 0;      // frames too far ahead: dropped
  std::uint64_t forged = 0;             // frames that the peer has not written, or that came again: dropped
  std::uint64_t window_limited = 0;     // times that the window held back something
  std::uint64_t window_limited_ns = 0;  // how long it did
  std::uint64_t credit_limited = 0;     // times that the peer's program had no room for another item
  std::uint64_t silent_ns = 0;          // how long the peer owed an answer, from the first ping to its next frame
  // As they are now.
  std::uint64_t window = 0;
  std::uint64_t frame_size = 0;
  std::uint64_t round_trip_ns = 0;        // smoothed
  std::uint64_t least_round_trip_ns = 0;  // of the last while
  RoundTripHistogram round_trips;
};

struct StationCounters {
  std::uint64_t hellos_sent = 0;
  std::uint64_t hellos_received = 0;
  std::uint64_t refusals_sent = 0;
  std::uint64_t unknown_sent = 0;     // frames of sessions that are not there
  std::uint64_t dropped_garbage = 0;  // no frame, or a wrong checksum
  std::uint64_t dropped_stray = 0;    // of a session, from elsewhere than its peer
  std::uint64_t dropped_forged = 0;   // nobody with the key has written it, or it came again
};

// Where a station and its sessions count, so that others see it.
class Ledger {
 public:
  virtual ~Ledger() = default;
  virtual StationCounters* station() = 0;
  virtual SessionCounters* open(std::uint64_t session) = 0;  // null: there is no place for it
  virtual void close(std::uint64_t session) = 0;
};

}  // namespace viaduct::net
