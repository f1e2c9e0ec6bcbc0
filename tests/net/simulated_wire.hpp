// Two hosts and the wire between them in virtual time. One seed, one run: what is dropped, doubled, delayed, corrupted,
// when the wire is cut in one direction and when a host stands still.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

#include "base/random.hpp"
#include "net/session.hpp"

namespace viaduct::net {

struct Interval {
  std::size_t side;
  std::uint64_t begin;
  std::uint64_t end;
};

struct WireFaults {
  double drop = 0;
  double duplicate = 0;
  double corrupt = 0;
  double delay_chance = 0;  // of a frame to be overtaken by others
  std::uint64_t delay_ns = 20'000;
  std::uint64_t jitter_ns = 0;  // most extra delay of a delayed frame
  double mark = 0;
  std::size_t largest_frame = 9000;  // longer ones vanish
  std::vector<Interval> cuts;        // what `side` sends is lost
  std::vector<Interval> stops;       // `side` does not run
};

// What one host runs: its session and whatever uses it.
class SimulatedHost {
 public:
  virtual ~SimulatedHost() = default;
  virtual Session& session() = 0;
  virtual void run(std::uint64_t now) = 0;  // the program: takes events, sends, reads
  virtual std::uint64_t next_run() const { return UINT64_MAX; }
};

class SimulatedWire {
 public:
  static constexpr std::size_t kReceiveBuffer = 1024;  // frames that wait for a host that stands still

  SimulatedWire(const WireFaults& faults, std::uint64_t seed) : faults_(faults), random_(seed) {}

  std::uint64_t now() const { return now_; }
  std::uint64_t frames() const { return order_; }
  void set_largest_frame(std::size_t size) { faults_.largest_frame = size; }

  // One step: the next frame, deadline or start of a host. False: nothing will ever happen.
  bool step(std::array<SimulatedHost*, 2> hosts) {
    std::uint64_t next = under_way_.empty() ? UINT64_MAX : under_way_.top().at;
    for (std::size_t side = 0; side < 2; ++side) next = std::min(next, wake(*hosts[side], side));
    if (next == UINT64_MAX) return false;
    now_ = std::max(now_, next);
    while (!under_way_.empty() && under_way_.top().at <= now_) {
      const Frame& frame = under_way_.top();
      if (inbox_[frame.to].size() < kReceiveBuffer) inbox_[frame.to].push_back(frame);
      under_way_.pop();
    }
    for (std::size_t side = 0; side < 2; ++side) {
      if (wake(*hosts[side], side) <= now_) drive(*hosts[side], side);
    }
    return true;
  }

  // Runs a host once, whatever is due: to begin with.
  void drive(SimulatedHost& host, std::size_t side) {
    Session& session = host.session();
    while (!inbox_[side].empty()) {
      const Frame frame = std::move(inbox_[side].front());
      inbox_[side].pop_front();
      if (const auto opened = open_frame(frame.bytes)) session.receive(*opened, now_, frame.marked);
    }
    session.tick(now_);
    host.run(now_);
    send_all(session, side);
    session.about_to_sleep();
    send_all(session, side);
  }

 private:
  struct Frame {
    std::uint64_t at;
    std::uint64_t order;
    std::size_t to;
    bool marked;
    std::vector<std::byte> bytes;
    bool operator<(const Frame& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  static bool within(const std::vector<Interval>& intervals, std::size_t side, std::uint64_t moment,
                     std::uint64_t* end) {
    for (const Interval& interval : intervals) {
      if (interval.side == side && moment >= interval.begin && moment < interval.end) {
        if (end != nullptr) *end = interval.end;
        return true;
      }
    }
    return false;
  }

  std::uint64_t wake(SimulatedHost& host, std::size_t side) {
    std::uint64_t at = std::min(host.session().next_deadline(), host.next_run());
    if (!inbox_[side].empty()) at = now_;
    if (at == UINT64_MAX) return at;
    at = std::max(at, now_);
    std::uint64_t end = 0;
    while (within(faults_.stops, side, at, &end)) at = end;
    return at;
  }

  void send_all(Session& session, std::size_t side) {
    std::array<std::byte, 9216> room;
    while (const std::size_t size = session.next_frame(room, now_)) {
      const std::span<const std::byte> frame = std::span(room).first(size);
      if (size > faults_.largest_frame || within(faults_.cuts, side, now_, nullptr)) continue;
      if (random_.chance(faults_.drop)) continue;
      send(frame, side);
      if (random_.chance(faults_.duplicate)) send(frame, side);
    }
  }

  void send(std::span<const std::byte> frame, std::size_t side) {
    Frame sent{now_ + faults_.delay_ns, order_++, 1 - side, random_.chance(faults_.mark), {frame.begin(), frame.end()}};
    if (faults_.jitter_ns > 0 && random_.chance(faults_.delay_chance)) sent.at += random_.below(faults_.jitter_ns);
    if (random_.chance(faults_.corrupt)) {
      sent.bytes[random_.below(sent.bytes.size())] ^= static_cast<std::byte>(1 << random_.below(8));
    }
    under_way_.push(std::move(sent));
  }

  WireFaults faults_;
  Random random_;
  std::uint64_t now_ = 1'000'000;
  std::uint64_t order_ = 0;
  std::priority_queue<Frame> under_way_;
  std::array<std::deque<Frame>, 2> inbox_;
};

}  // namespace viaduct::net
