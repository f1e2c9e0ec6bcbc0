// A peer that is killed, seen by those who wait for something else: more bytes, or room.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/sleeps_in.hpp"

namespace conformance {

namespace {

constexpr int kSleepMs = 200;
constexpr int kLimitMs = 1000;

// A set of it alone.
int set_of(int fd, std::uint32_t events) {
  const int set = ::epoll_create1(0);
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) note("ADD failed");
  return set;
}

unsigned bits_from(int set, int ms) {
  epoll_event event{};
  return ::epoll_wait(set, &event, 1, ms) == 1 ? event.events : 0;
}

std::string told_by(int set, int ms) {
  return poll_bits(bits_from(set, ms));
}

Link with_low_water(Run& run) {
  Link link = run.warm();
  constexpr int kMuch = 3000;
  ::setsockopt(link.fd, SOL_SOCKET, SO_RCVLOWAT, &kMuch, sizeof kMuch);
  run.peer_sends(link, 1);
  return link;
}

}  // namespace

CASE(
    epoll, low_water_and_killed_peer,
    "SO_RCVLOWAT of more than there is: a peer that is killed is told of at once, and to one who sleeps since before") {
  if (!run.agent.is_process()) return skip();
  const Link looked_at = with_low_water(run), slept_on = with_low_water(run);
  const int later = set_of(looked_at.fd, EPOLLIN), before = set_of(slept_on.fd, EPOLLIN);
  note("before: %s", told_by(later, 20).c_str());
  std::string woken_by;
  bool slept = false;
  std::thread sleeper([&] { slept = sleeps_in([&] { woken_by = told_by(before, kSleepMs + kLimitMs); }); });
  ::usleep(kSleepMs * 1000);
  run.agent.kill();
  note("looked at: %s", told_by(later, kLimitMs).c_str());
  sleeper.join();
  note("slept on: %s, slept %d", woken_by.c_str(), slept);
  for (const int fd : {later, before, looked_at.fd, slept_on.fd}) ::close(fd);
}

CASE(epoll, low_water_and_own_end, "SO_RCVLOWAT of more than there is: one's own shutdown is told of at once") {
  const Link link = with_low_water(run);
  const int set = set_of(link.fd, EPOLLIN);
  note("before: %s", told_by(set, 20).c_str());
  call("shutdown", ::shutdown(link.fd, SHUT_RD));
  note("after: %s", told_by(set, kLimitMs).c_str());
  for (const int fd : {set, link.fd}) ::close(fd);
}

CASE(wait, killed_unread,
     "bytes are unread here, perhaps there too, and the peer is killed: what poll and epoll tell in the end") {
  if (!run.agent.is_process()) return skip();
  struct Watched {
    Link link;
    bool reset;
    std::uint32_t events;
    int set;  // -1: it is polled
  };
  const auto look_at = [](const Watched& one) {
    if (one.set >= 0) return bits_from(one.set, 0);
    pollfd entry{one.link.fd, static_cast<short>(one.events), 0};
    ::poll(&entry, 1, 0);
    return static_cast<unsigned>(entry.revents);
  };
  std::vector<Watched> all;
  for (const bool reset : {false, true})
    for (const std::uint32_t events : {POLLIN, POLLIN | POLLRDHUP, POLLIN | POLLOUT | POLLRDHUP, POLLOUT, 0})
      for (const bool by_epoll : {false, true}) {
        Link link = run.warm();
        run.peer_sends(link, 100);
        if (reset && !link.send(1)) note("send failed");
        all.push_back({link, reset, events, by_epoll ? set_of(link.fd, events) : -1});
      }
  run.agent.kill();
  for (const Watched& one : all) {
    unsigned told = 0;
    // It is not found out at the first look.
    for (int ms = 0; ms < 50; ++ms, ::usleep(1000)) told |= look_at(one);
    note("%s, asked for %s: %s tells %s", one.reset ? "reset" : "ended", poll_bits(one.events).c_str(),
         one.set >= 0 ? "epoll" : "poll", poll_bits(told).c_str());
    ::close(one.set);
    ::close(one.link.fd);
  }
}

}  // namespace conformance
