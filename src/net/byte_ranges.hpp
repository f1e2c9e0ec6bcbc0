// A set of bytes, kept as ranges in order: what has come of an item, what has yet to be sent of a transfer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace viaduct::net {

struct ByteRange {
  std::uint64_t begin;
  std::uint64_t end;

  std::uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

class ByteRanges {
 public:
  // How many of them were not in it before.
  std::uint64_t add(ByteRange added) {
    if (added.begin >= added.end) return 0;
    // Those that overlap or touch become one.
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), added.begin,
                                        [](const ByteRange& range, std::uint64_t begin) { return range.end < begin; });
    auto last = first;
    std::uint64_t had = 0;
    ByteRange joined = added;
    for (; last != ranges_.end() && last->begin <= added.end; ++last) {
      had += last->size();
      joined.begin = std::min(joined.begin, last->begin);
      joined.end = std::max(joined.end, last->end);
    }
    if (first == last) {
      ranges_.insert(first, joined);
    } else {
      *first = joined;
      ranges_.erase(first + 1, last);
    }
    const std::uint64_t fresh = joined.size() - had;
    bytes_ += fresh;
    return fresh;
  }

  // Takes `removed` out; how many were in it.
  std::uint64_t remove(ByteRange removed) {
    std::uint64_t gone = 0;
    for (std::size_t i = 0; i < ranges_.size();) {
      ByteRange& range = ranges_[i];
      const ByteRange both{std::max(range.begin, removed.begin), std::min(range.end, removed.end)};
      if (both.begin >= both.end) {
        ++i;
        continue;
      }
      gone += both.size();
      const ByteRange after{both.end, range.end};
      range.end = both.begin;
      const bool keep = range.size() > 0;
      if (after.size() > 0) {
        if (keep) {
          ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(i) + 1, after);
        } else {
          range = after;
        }
        break;
      }
      if (keep) {
        ++i;
      } else {
        ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    bytes_ -= gone;
    return gone;
  }

  // The first ones, `most` at most, taken out.
  ByteRange take_front(std::uint64_t most) {
    ByteRange& front = ranges_.front();
    const ByteRange taken{front.begin, front.begin + std::min(most, front.size())};
    front.begin = taken.end;
    if (front.size() == 0) ranges_.erase(ranges_.begin());
    bytes_ -= taken.size();
    return taken;
  }

  bool empty() const { return ranges_.empty(); }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t pieces() const { return ranges_.size(); }
  const std::vector<ByteRange>& ranges() const { return ranges_; }
  void clear() {
    ranges_.clear();
    bytes_ = 0;
  }

 private:
  std::vector<ByteRange> ranges_;
  std::uint64_t bytes_ = 0;
};

}  // namespace viaduct::net
