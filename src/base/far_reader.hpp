// Learns, from how long copies into a ring take, whether the core that reads it shares a cache with the one that
// writes.
//
// Where it does not (another cluster of cores, another socket), each line that is written must first be given up by the
// other core's cache, and a stream crawls: 16 KB take 6 us instead of 0.4. Written past the caches they take 0.4 there
// too, but the reader then gets them from memory, which is half as fast as out of a cache it shares. So neither is
// right for ever, and the two may be moved at any time: which it is, is measured again and again.
#pragma once

#include <cstddef>
#include <cstdint>

namespace viaduct {

class FarReader {
 public:
  struct Way {
    bool past_caches;
    bool timed;  // took() is to be told
  };
  // How the next so many bytes are to be copied.
  Way next(std::size_t bytes) {
    if (bytes < kWorthTiming) return {false, false};  // too short to tell, and what nobody times might stay so for good
    if (--until_timed_ != 0) [[likely]]
      return {past_caches_, false};
    return timed();
  }
  void took(std::size_t bytes, std::uint64_t ns);

 private:
  static constexpr std::size_t kWorthTiming = 4096;
  static constexpr std::uint32_t kBetween = 256;  // a copy that is timed waits for all that is on its way
  static constexpr std::uint32_t kAfterVainTrial = 1024;
  static constexpr std::uint32_t kSlowInARow = 3;
  static constexpr std::uint64_t kSlowBytesPerNs = 4;  // out of memory they come at 10, within one cache at 40

  Way timed();
  void go_on(bool past_caches, std::uint32_t until_timed);

  bool past_caches_ = false;
  bool on_trial_ = false;  // the next timed one goes the other way
  std::uint32_t until_timed_ = kBetween;
  std::uint32_t slow_ = 0;      // in a row
  std::uint64_t least_ns_ = 0;  // of those, for kWorthTiming bytes
};

}  // namespace viaduct
