// Room that comes late, and those who are told of it: a thread that sleeps since before the connection was full, one
// that looks at a set from outside, a connection that has gone back to TCP meanwhile.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"
#include "sockets/conformance/splice_into.hpp"

namespace conformance {

namespace {

constexpr std::uint32_t kEdge = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr int kLimitMs = 1500;

int put(int set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(set, operation, fd, &event);
}

// An urgent byte goes by TCP, which the connection then stays on; what a pipe holds does not.
void send_otherwise(int fd, bool urgent) {
  if (urgent)
    call("urgent", ::send(fd, "!", 1, MSG_OOB));
  else
    call("splice", splice_into(fd, "abc"));
}

// A thread that sleeps on a set, without a limit, and counts how often it is told of room.
class RoomWatcher {
 public:
  explicit RoomWatcher(int set) : set_(set), thread_([this] { watch(); }) {
    ::usleep(50'000);  // asleep by now
  }
  ~RoomWatcher() {
    put(set_, EPOLL_CTL_ADD, enough_, EPOLLIN);
    thread_.join();
    ::close(enough_);
  }
  RoomWatcher(const RoomWatcher&) = delete;
  RoomWatcher& operator=(const RoomWatcher&) = delete;

  int told() const { return told_; }
  // Whether it is told once more than `before`, soon; `meanwhile` is done again and again.
  template <class Meanwhile>
  bool told_after(int before, Meanwhile meanwhile) const {
    for (int ms = 0; ms < kLimitMs && told_ == before; ++ms, ::usleep(1000)) meanwhile();
    return told_ != before;
  }

 private:
  void watch() {
    for (epoll_event event{}; ::epoll_wait(set_, &event, 1, -1) == 1 && event.data.fd != enough_;)
      if ((event.events & EPOLLOUT) != 0) ++told_;
  }
  const int set_;
  const int enough_ = ::eventfd(1, 0);
  std::atomic<int> told_ = 0;
  std::thread thread_;
};

// The client's end is full, and stays so until the other end reads: then the watcher is told.
void note_room_after_reading(const RoomWatcher& watcher, const OwnPair& pair) {
  int before = 0;
  do {
    before = watcher.told();
    fill_up(pair.client);
    ::usleep(50'000);
  } while (watcher.told() != before);
  std::vector<char> bytes(std::size_t{64} << 10);
  const bool told = watcher.told_after(before, [&] {
    while (::recv(pair.server, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  });
  note("told of room %d", told);
}

// More than the ring holds of a connection whose send buffer was small when it was used first, and less than TCP does
// with one that anybody may have.
constexpr std::size_t kMuch = 300'000;
constexpr int kSmallBuffer = 16 << 10, kUsualBuffer = 200 << 10;

Link warm_with_small_ring(Run& run) {
  Link link = run.open();
  ::setsockopt(link.fd, SOL_SOCKET, SO_SNDBUF, &kSmallBuffer, sizeof kSmallBuffer);
  run.warm_up(link);
  ::setsockopt(link.fd, SOL_SOCKET, SO_SNDBUF, &kUsualBuffer, sizeof kUsualBuffer);
  return link;
}

// Without blocking, by one who waits for room with `wait` where there is none: whether the waits end.
bool send_much(Link& link, const std::function<bool()>& wait) {
  std::vector<char> piece(std::size_t{64} << 10);
  for (const std::uint64_t end = link.sent + kMuch; link.sent < end;) {
    const std::size_t size = std::min<std::uint64_t>(piece.size(), end - link.sent);
    fill(piece.data(), size, link.sent);
    const ssize_t sent = ::send(link.fd, piece.data(), size, MSG_DONTWAIT);
    if (sent > 0)
      link.sent += static_cast<std::uint64_t>(sent);
    else if (errno != EAGAIN || !wait())
      return false;
  }
  return true;
}

// The peer receives only when all is sent.
void note_much_sent(Run& run, Link& link, const std::function<bool()>& wait) {
  const bool all = send_much(link, wait);
  note("all sent %d", all);
  if (all) run.peer_receives(link, kMuch);
}

}  // namespace

CASE(epoll, room_after_hand_back,
     "an idle member with EPOLLET goes back to TCP and is full; its peer reads: room is told of") {
  for (const bool urgent : {true, false}) {
    Link link = run.warm();
    const int set = ::epoll_create1(0);
    call("ADD", put(set, EPOLL_CTL_ADD, link.fd, kEdge));
    epoll_event event{};
    call("room", ::epoll_wait(set, &event, 1, 1000));
    for (int i = 0; i < 20; ++i)
      if (::epoll_wait(set, &event, 1, 5) != 0) note("told again");
    send_otherwise(link.fd, urgent);
    do fill_up(link.fd);
    while (::epoll_wait(set, &event, 1, 50) == 1);
    run.agent.begin(Order::receive_to_end, link.number);
    event = {};
    call("room again", ::epoll_wait(set, &event, 1, kLimitMs));
    note("%s", poll_bits(event.events).c_str());
    ::shutdown(link.fd, SHUT_WR);
    note("the peer has all %d", run.agent.end().result > 0);
    for (const int fd : {set, link.fd}) ::close(fd);
  }
}

CASE(epoll, room_after_hand_back_asleep,
     "the same with a thread that sleeps in epoll_wait meanwhile; either end is the one that leaves the ring") {
  const std::function<void(const OwnPair&)> leaves[] = {
      [](const OwnPair& pair) { send_otherwise(pair.client, true); },
      [](const OwnPair& pair) { send_otherwise(pair.client, false); },
      [](const OwnPair& pair) { send_otherwise(pair.server, false); },
      [](const OwnPair& pair) { call("the other end's shutdown", ::shutdown(pair.server, SHUT_WR)); },
  };
  for (const auto& leave : leaves) {
    const OwnPair pair;
    pair.warm();
    const int set = ::epoll_create1(0);
    call("ADD", put(set, EPOLL_CTL_ADD, pair.client, kEdge));
    {
      const RoomWatcher watcher(set);
      leave(pair);
      ::usleep(50'000);  // the sleeper has seen to it
      note_room_after_reading(watcher, pair);
    }
    ::close(set);
  }
}

CASE(epoll, room_while_asleep, "a thread sleeps in epoll_wait; much is sent, and received only when all is sent") {
  Link link = warm_with_small_ring(run);
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLIN | EPOLLOUT | EPOLLET));
  {
    const RoomWatcher watcher(set);
    int before = watcher.told();
    note_much_sent(run, link, [&] {
      const bool told = watcher.told_after(before, [] {});
      before = watcher.told();
      return told;
    });
  }
  for (const int fd : {set, link.fd}) ::close(fd);
}

CASE(epoll, room_seen_from_outside, "the same by one who polls the set, or waits on a set around it") {
  for (const bool by_poll : {true, false}) {
    Link link = warm_with_small_ring(run);
    const int inner = ::epoll_create1(0), outer = ::epoll_create1(0);
    call("ADD", put(inner, EPOLL_CTL_ADD, link.fd, EPOLLIN | EPOLLOUT));
    call("ADD", put(outer, EPOLL_CTL_ADD, inner, EPOLLIN));
    note_much_sent(run, link, [&] {
      pollfd entry{inner, POLLIN, 0};
      epoll_event event{};
      return (by_poll ? ::poll(&entry, 1, kLimitMs) : ::epoll_wait(outer, &event, 1, kLimitMs)) == 1;
    });
    for (const int fd : {inner, outer, link.fd}) ::close(fd);
  }
}

CASE(epoll, room_asleep_since_young,
     "a thread sleeps in epoll_wait for EPOLLOUT with EPOLLET since before the connection was used much") {
  const OwnPair pair;
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, pair.client, EPOLLOUT | EPOLLET));
  {
    const RoomWatcher watcher(set);
    pair.warm();
    ::usleep(50'000);
    note_room_after_reading(watcher, pair);
  }
  ::close(set);
}

CASE(data, room_is_much, "what poll calls room takes 128 KB in one piece, however little the peer reads at a time") {
  const OwnPair pair;
  pair.warm();
  std::vector<char> bytes(std::size_t{128} << 10);
  fill_up(pair.client);
  int whole = 0, cut = 0;
  for (int reads = 0; reads < 4000 && whole + cut < 20; ++reads) {
    if (::recv(pair.server, bytes.data(), 8 << 10, MSG_DONTWAIT) < 0) ::usleep(1000);
    pollfd entry{pair.client, POLLOUT, 0};
    if (::poll(&entry, 1, 0) != 1) continue;
    const ssize_t sent = ::send(pair.client, bytes.data(), bytes.size(), MSG_DONTWAIT);
    ++(sent == static_cast<ssize_t>(bytes.size()) ? whole : cut);
    if (sent > 0 && whole == 1) fill_up(pair.client);
  }
  note("some were sent %d, in pieces %d", whole != 0, cut);
}

CASE(data, small_and_unread,
     "small messages sent without waiting, 130 KB of them, and nobody reads: all are taken at once") {
  for (const std::size_t size : {1, 20, 57, 256, 3000}) {
    Link link = run.warm();
    std::vector<char> bytes(size);
    std::size_t total = size == 1 ? 5'000 : 130'000 / size * size;
    for (std::size_t left = total; left != 0; left -= size) {
      fill(bytes.data(), size, link.sent);
      if (const ssize_t sent = ::send(link.fd, bytes.data(), size, MSG_DONTWAIT); sent != static_cast<ssize_t>(size)) {
        call("send", sent);
        total -= left;
        break;
      }
      link.sent += size;
    }
    note("sent %zu", total);
    run.peer_says("the peer receives", Order::receive, link, static_cast<std::int64_t>(total));
    ::close(link.fd);
  }
}

CASE(data, tried_again_and_again,
     "a megabyte of small messages sent without waiting, tried again after a while and never asked poll") {
  Link link = run.warm();
  std::vector<char> bytes(100);
  int failed = 0;
  for (std::size_t left = 1'000'000; left != 0 && failed < 300;) {
    fill(bytes.data(), bytes.size(), link.sent);
    const ssize_t sent = ::send(link.fd, bytes.data(), std::min(left, bytes.size()), MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN) call("send", sent);
      ++failed;
      ::usleep(10'000);
      continue;
    }
    link.sent += static_cast<std::size_t>(sent);
    left -= static_cast<std::size_t>(sent);
  }
  note("sent in the end: %d", failed < 300);
  run.peer_says("the peer receives", Order::receive, link, 1'000'000);
  ::close(link.fd);
}

}  // namespace conformance
