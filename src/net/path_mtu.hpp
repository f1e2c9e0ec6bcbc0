// How large the frames of a session may be: what is known to arrive. It begins with what nearly every way carries, asks
// for more with padded frames that carry nothing else (their loss is no harm), and believes that the way has become
// narrower when only large frames are lost (RFC 8899's idea). No timer: whoever sends asks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace viaduct::net {

class PathMtu {
 public:
  static constexpr std::size_t kOrdinary = 1438;  // of a packet of 1500 bytes, over IPv6

  // `most`: what the interfaces at both ends carry.
  explicit PathMtu(std::size_t most)
      : most_(most), size_(std::min(most, kOrdinary)), too_large_(most + 1), probe_size_(most) {}

  std::size_t size() const { return size_; }

  // The size of a frame that should be tried now; 0: none.
  std::size_t probe(std::uint64_t now) {
    if (!heard_ || under_way_) return 0;
    if (probe_size_ == 0) {
      if (size_ == most_ || now < again_at_) return 0;
      too_large_ = most_ + 1;
      probe_size_ = most_;
    }
    if (probe_size_ <= size_) probe_size_ = 0;
    return probe_size_;
  }
  void probe_sent() { under_way_ = true; }

  void came(std::size_t size, bool was_probe, std::uint64_t now) {
    heard_ = true;
    if (size >= least_lost_) forget_losses();
    if (!was_probe) return;
    under_way_ = false;
    tries_ = 0;
    size_ = std::max(size_, size);
    next(now);
  }
  void lost(std::size_t size, bool was_probe, std::uint64_t now) {
    if (was_probe) {
      under_way_ = false;
      if (++tries_ < kTries) return;
      tries_ = 0;
      too_large_ = std::min(too_large_, size);
      return next(now);
    }
    // Those that are larger were sent before it was smaller.
    if (size <= kLeast || size > size_) return;
    least_lost_ = std::min(least_lost_, size);
    if (++large_lost_ < kProof) return;
    const std::size_t smaller = floor_below(least_lost_);
    // The old size is the first to be tried again: perhaps everything was lost for a while.
    forget_losses();
    tries_ = 0;
    probe_size_ = size_;
    too_large_ = size_ + 1;
    size_ = smaller;
  }

 private:
  static constexpr unsigned kTries = 3;  // losses that prove a size too large
  static constexpr unsigned kProof = 5;  // large frames lost in a row
  static constexpr std::size_t kLeast = 256;
  static constexpr std::size_t kClose = 32;
  static constexpr std::uint64_t kPause = 60'000'000'000;  // ns until it is tried again

  static std::size_t floor_below(std::size_t size) {
    for (const std::size_t floor : {std::size_t{1200}, std::size_t{512}}) {
      if (size > floor) return floor;
    }
    return kLeast;
  }
  void forget_losses() {
    large_lost_ = 0;
    least_lost_ = SIZE_MAX;
  }
  // Half way between what arrives and what does not.
  void next(std::uint64_t now) {
    const std::size_t between = size_ + (too_large_ - size_) / 2;
    probe_size_ = size_ < most_ && too_large_ > size_ + kClose ? std::min(between, most_) : 0;
    again_at_ = now + kPause;
  }

  const std::size_t most_;
  std::size_t size_;
  std::size_t too_large_;   // the least that is known not to arrive
  std::size_t probe_size_;  // what is being tried; 0: nothing
  bool under_way_ = false;
  bool heard_ = false;
  unsigned tries_ = 0;
  unsigned large_lost_ = 0;            // since one of their size came
  std::size_t least_lost_ = SIZE_MAX;  // of them
  std::uint64_t again_at_ = 0;
};

}  // namespace viaduct::net
