// Whether a connection is better off on TCP. Where nearly every message wakes somebody, the ring may cost more than it
// saves: it is work on top of a wake-up, and where a byte on TCP has to do the waking, on top of TCP. So the connection
// tries: a few hundred messages over the ring, as many over TCP, and the processor time of both. Where TCP is cheaper
// it stays there, looks at the ring again after a while, and for less and less of its time if it is so again.
//
// Both ends measure themselves (the thread that sends or receives, with all that it does for a message) and see each
// other's figures; whoever is first to have what it needs decides for both. All is counted in messages: no decision
// hangs on a clock, and one that is wrong costs time, nothing else.
//
// Nothing happens while messages find their receiver awake: only wake-ups are looked at, one in many.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace viaduct::sockets {

class Judge {
 public:
  struct Terms {
    std::uint32_t window = 64;         // messages between two readings of the clock, at least
    std::uint32_t windows = 8;         // of which the median is taken
    std::uint32_t settling = 2;        // windows after each change that do not count
    std::uint64_t patience = 1 << 16;  // messages that wake somebody, before TCP is tried
    std::uint64_t pause = 1 << 14;     // messages on TCP, before the ring is looked at again
    std::uint64_t most_pause = 1 << 22;
    bool always = false;  // for tests: TCP is always cheaper, and every message a reason to find out
  };
  static constexpr std::uint64_t kMostPatience = std::uint64_t{1} << 30;
  static constexpr std::uint64_t kLessPatient = 64;     // times, where bytes on TCP do the waking
  static constexpr std::uint64_t kMorePatient = 8;      // times, after each trial that TCP has lost
  static constexpr std::uint64_t kWorthOfHundred = 97;  // TCP is cheaper when it costs less than so much of the ring

  // The connection as its end sees it.
  struct Look {
    std::uint32_t thread = 0;  // whose time it is
    std::uint64_t cpu_ns = 0;
    std::uint64_t messages = 0;                           // both ways so far, over the ring and over TCP
    std::uint64_t wakes = 0;                              // that somebody was rung for, both ways
    std::uint64_t doorbells = 0;                          // of those: over TCP
    bool resting = false;                                 // on TCP just now
    bool dearer = false;                                  // and the last trial is why
    std::uint32_t peer_ring_cost = 0, peer_tcp_cost = 0;  // 0: it does not know
  };
  enum class Verdict {
    none,
    try_tcp,
    stay_on_tcp,  // the trial was won
    keep_ring,    // and lost
    look_again,   // at the ring, after a while on TCP
  };

  Judge() = default;
  explicit Judge(const Terms& terms) : terms_(terms), patience_(terms.patience), pause_(terms.pause) {}

  // Of this end; 0: not known, or not any more.
  std::uint32_t ring_cost() const { return ring_cost_; }
  std::uint32_t tcp_cost() const { return tcp_cost_; }

  Verdict look(const Look& now) {
    if (now.resting != resting_) return begin_phase(now), Verdict::none;
    if (resting_ && now.dearer) return stay(now);
    if (!measure(now)) return Verdict::none;
    return resting_ ? judge(now) : may_try(now) ? Verdict::try_tcp : Verdict::none;
  }

 private:
  static constexpr std::size_t kMostWindows = 8;

  void begin_phase(const Look& now) {
    resting_ = now.resting;
    if (resting_) {
      tcp_cost_ = 0;
    } else if (now.dearer) {  // looked at again: TCP is tried as soon as there is a figure
      patience_ = 0;
      pause_ = std::min(2 * pause_, terms_.most_pause);
      ring_cost_ = 0;
    } else {
      patience_ = std::min(std::max(patience_, terms_.patience) * kMorePatient, kMostPatience);
      pause_ = terms_.pause;
      ring_cost_ = 0;
    }
    stays_ = false;
    suspicion_ = 0;
    forget();
    skip_ = terms_.settling;
    begin_window(now);
  }

  Verdict stay(const Look& now) {
    if (!stays_) {
      stays_ = true;
      stays_since_ = now.messages;
    }
    return now.messages - stays_since_ < pause_ ? Verdict::none : Verdict::look_again;
  }

  void begin_window(const Look& now) { window_ = now; }
  void forget() { count_ = 0; }

  // True: there is a figure, and it is fresh.
  bool measure(const Look& now) {
    const std::uint64_t messages = now.messages - window_.messages, wakes = now.wakes - window_.wakes;
    if (now.thread != window_.thread || now.messages < window_.messages || now.cpu_ns < window_.cpu_ns)
      return begin_window(now), false;
    if (messages < terms_.window) return false;
    if (!resting_) {
      constexpr std::uint64_t kFew = 5, kOfThem = 2;  // where both ends sleep it is all; where one does, half
      if (wakes * kFew < messages * kOfThem && !terms_.always) {
        suspicion_ = 0;
        forget();
        return begin_window(now), false;
      }
      const bool over_tcp = (now.doorbells - window_.doorbells) * 2 > wakes;
      suspicion_ += messages * (over_tcp ? kLessPatient : 1);
    }
    const std::uint64_t each = (now.cpu_ns - window_.cpu_ns) / messages;
    begin_window(now);
    if (skip_ != 0) return --skip_, false;
    costs_[count_++ % terms_.windows] = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(each, 1, UINT32_MAX / 4));
    if (count_ < terms_.windows) return false;
    (resting_ ? tcp_cost_ : ring_cost_) = median();
    return true;
  }

  std::uint32_t median() const {
    std::array<std::uint32_t, kMostWindows> sorted = costs_;
    const auto middle = sorted.begin() + terms_.windows / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + terms_.windows);
    return *middle;
  }

  // A peer whose threads take turns, or that neither sends nor sleeps, has no figures: not waited for without end.
  bool waited_for_peer() const { return count_ >= 3 * terms_.windows; }

  bool may_try(const Look& now) const {
    return suspicion_ >= patience_ && (now.peer_ring_cost != 0 || waited_for_peer());
  }

  Verdict judge(const Look& now) {
    if (terms_.always) return Verdict::stay_on_tcp;
    if (now.peer_ring_cost != 0 && now.peer_tcp_cost == 0 && !waited_for_peer()) return Verdict::none;
    std::uint64_t ring = 0, tcp = 0;
    const auto add = [&](std::uint32_t on_ring, std::uint32_t on_tcp) {
      if (on_ring != 0 && on_tcp != 0) ring += on_ring, tcp += on_tcp;
    };
    add(ring_cost_, tcp_cost_);
    add(now.peer_ring_cost, now.peer_tcp_cost);
    return tcp * 100 < ring * kWorthOfHundred ? Verdict::stay_on_tcp : Verdict::keep_ring;
  }

  Terms terms_;
  Look window_;  // when it began
  std::array<std::uint32_t, kMostWindows> costs_{};
  std::uint32_t count_ = 0, skip_ = 0;
  std::uint32_t ring_cost_ = 0, tcp_cost_ = 0;
  std::uint64_t suspicion_ = 0, patience_ = terms_.patience, pause_ = terms_.pause, stays_since_ = 0;
  bool resting_ = false, stays_ = false;
};

}  // namespace viaduct::sockets
