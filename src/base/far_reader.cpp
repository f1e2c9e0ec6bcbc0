#include "base/far_reader.hpp"

#include <algorithm>

namespace viaduct {

FarReader::Way FarReader::timed() {
  until_timed_ = 1;
  return {past_caches_ != on_trial_, true};
}

void FarReader::go_on(bool past_caches, std::uint32_t until_timed) {
  past_caches_ = past_caches;
  on_trial_ = past_caches;  // how it goes past the caches says nothing of the other way
  until_timed_ = until_timed;
  slow_ = 0;
}

void FarReader::took(std::size_t bytes, std::uint64_t ns) {
  const bool slow = bytes < ns * kSlowBytesPerNs;
  const std::uint64_t each_ns = ns * kWorthTiming / bytes;
  if (past_caches_) return go_on(slow, kBetween);
  if (on_trial_) {
    // Both ways are slow where something else is, such as a source that has to be paged in.
    const bool better = each_ns < least_ns_ / 2;
    return go_on(better, better ? kBetween : kAfterVainTrial);
  }
  if (!slow) return go_on(false, kBetween);
  // Once may be an interruption.
  least_ns_ = slow_ == 0 ? each_ns : std::min(least_ns_, each_ns);
  slow_ += 1;
  until_timed_ = 1;
  on_trial_ = slow_ == kSlowInARow;
}

}  // namespace viaduct
