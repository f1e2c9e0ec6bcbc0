// What happens when, in virtual time. Of things at the same moment, the one entered first comes first: a run repeats.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

namespace viaduct::nic::model {

using Time = std::uint64_t;  // picoseconds
constexpr Time kMicrosecond = 1'000'000;
constexpr Time seconds_to_time(double seconds) {
  return static_cast<Time>(seconds * 1e12 + 0.5);
}

enum class What : std::uint8_t {
  processor_free,  // argument: which
  raised,          // an event
  timer,           // an event; value: which arming
  bus_wanted,      // a transfer may start
  transfer_done,   // argument: channel
  transmit_ready,  // a frame's place in the transmit queue was filled
  frame_sent,
  frame_arrives,
  mailbox_written,  // argument: which; value: index
  host_interrupted,
  host_may_send,
};

struct Entry {
  Time at;
  std::uint64_t order;
  What what;
  std::uint32_t argument;
  std::uint64_t value;
};

class Calendar {
 public:
  void enter(Time at, What what, std::uint32_t argument = 0, std::uint64_t value = 0) {
    entries_.push({at < now_ ? now_ : at, order_++, what, argument, value});
  }
  bool empty() const { return entries_.empty(); }
  Entry next() {
    const Entry entry = entries_.top();
    entries_.pop();
    now_ = entry.at;
    return entry;
  }
  Time now() const { return now_; }

 private:
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.at != b.at ? a.at > b.at : a.order > b.order; }
  };
  std::priority_queue<Entry, std::vector<Entry>, Later> entries_;
  Time now_ = 0;
  std::uint64_t order_ = 0;
};

}  // namespace viaduct::nic::model
