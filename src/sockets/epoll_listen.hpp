// Whose rings in a set have something, in the order in which it was sent: a part of waiting (epoll_wait.cpp).
#pragma once

#include <algorithm>

#include "sockets/epoll_member.hpp"
#include "sockets/epoll_set_state.hpp"

namespace viaduct::sockets {

class Listening {
 protected:
  static constexpr int kLeastHeard = 64;  // looked for, however few the program takes
  static constexpr int kLookAhead = 6;    // members whose lines are asked for ahead
  Listening(EpollSet& set, int most) : set_(set), most_(most) {}

  // Those whose rings have something go to set_.heard, in the order in which it was sent: as the kernel, which puts a
  // member behind the others when something comes, and when it was told. Returns how many. `tcp_known`: what was on TCP
  // until then has been told.
  int listen(std::uint64_t tcp_known) {
    if (++set_.turn % EpollSet::kTurnsPerRest == 0) [[unlikely]]
      set_.rest_silent();
    const int count = set_.active_count;
    const int enough = std::max(most_, kLeastHeard);
    const int start = count > 1 ? static_cast<int>(set_.turn % static_cast<unsigned>(count)) : 0;
    const auto behind = [count](int place) { return place + 1 == count ? 0 : place + 1; };
    EpollItem** const members = set_.active;
    EpollItem** const first = set_.heard;
    int heard = 0, last = start;
    std::uint64_t latest = 0;
    for (int i = 0, place = start; i < count && heard < enough; ++i, place = behind(place)) {
      if (const int ahead = place + 1 + kLookAhead; count > kLookAhead)
        members[ahead < count ? ahead : ahead - count]->still.prefetch();
      EpollItem& item = *members[place];
      if (!has_something(item, tcp_known, UINT64_MAX)) continue;
      first[heard++] = &item;
      latest = std::max(latest, item.heard_since);
      last = place;
    }
    if (heard == 0) return 0;
    // What was sent while we looked may have followed something that we looked for too early.
    for (int place = start; place != last && heard < enough; place = behind(place))
      if (EpollItem& item = *members[place]; item.heard_in != set_.turn && has_something(item, tcp_known, latest))
        first[heard++] = &item;
    set_.heard_until = std::max(set_.heard_until, latest);
    if (heard > 1)
      std::sort(first, first + heard, [](auto* one, auto* other) { return one->heard_since < other->heard_since; });
    return heard;
  }

  // That was not sent after `latest`; and notes what, and since when.
  [[gnu::always_inline]] bool has_something(EpollItem& item, std::uint64_t tcp_known, std::uint64_t latest) {
    if (item.still.holds()) [[likely]]
      return false;
    Stillness::FirstUnread unread;
    const std::uint32_t bits = ring_says(item, &unread);
    if (bits == 0) return false;
    note_when(item, bits, unread, tcp_known);
    if (item.heard_since > latest) return false;
    item.heard_bits = bits;
    item.heard_in = set_.turn;
    return true;
  }

  // What was told and left is as old as what had been heard by then.
  void note_when(EpollItem& item, std::uint32_t bits, const Stillness::FirstUnread& unread,
                 std::uint64_t tcp_known) const {
    const Connection& connection = *item.connection;
    const bool sent = (bits & kEpollData) != 0 && receives_on_ring(connection);
    item.heard_slot = unread.position;
    item.heard_taken = unread.taken;
    const bool told = !sent || unread.position == item.told_slot;
    item.heard_news = !told || unread.taken != item.told_taken;
    item.heard_since = told ? item.told : unread.mark.moment(set_.heard_until);
    item.heard_after_tcp =
        unread.mark.after_tcp() && connection.incoming().tally.tcp_used.load(std::memory_order_relaxed) > tcp_known;
  }

  int sent_until(std::uint64_t moment, int heard) const {
    if (moment == UINT64_MAX) [[likely]]
      return heard;
    int count = 0;
    while (count < heard && set_.heard[count]->heard_news && set_.heard[count]->heard_since <= moment) ++count;
    return count;
  }

  // How many of those heard come before the first that its sender sent after using TCP: the kernel may have older.
  int older_than_tcp(int heard) const {
    int count = 0;
    while (count < heard && !set_.heard[count]->heard_after_tcp) ++count;
    return count;
  }

  EpollSet& set_;
  int most_;  // events that the program takes
};

}  // namespace viaduct::sockets
