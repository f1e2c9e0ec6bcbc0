// What epoll tells when not everything can be told at once: room that comes late, members that take turns.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

namespace {

int unread(int fd) {
  int bytes = 0;
  ::ioctl(fd, FIONREAD, &bytes);
  return bytes;
}

}  // namespace

CASE(epoll, room, "a sender that sends only when it is told to, and a receiver that reads much later") {
  for (const std::uint32_t how : {static_cast<std::uint32_t>(EPOLLOUT), EPOLLIN | EPOLLOUT}) {
    Link link = run.warm();
    ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
    const int set = ::epoll_create1(0);
    epoll_event event{.events = how, .data = {.u64 = 1}};
    call("epoll_ctl", ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event));
    // Until there is no room for a long time. It never tries in vain.
    const std::uint64_t before = link.sent;
    constexpr std::size_t kPiece = 16 << 10;
    std::vector<char> piece(kPiece);
    for (int silent = 0; silent < 30;) {
      if (::epoll_wait(set, &event, 1, 5) != 1) {
        ++silent;
        continue;
      }
      silent = 0;
      fill(piece.data(), kPiece, link.sent);
      const ssize_t sent = ::send(link.fd, piece.data(), kPiece, 0);
      if (sent < 0) break;
      link.sent += static_cast<std::uint64_t>(sent);
    }
    run.agent.begin(Order::receive, link.number, static_cast<std::int64_t>(link.sent - before));
    call("there is room again", ::epoll_wait(set, &event, 1, 4000));
    note("%s", poll_bits(event.events).c_str());
    note("all came: %d", run.agent.end().result >= 0);
    ::close(set);
    ::close(link.fd);
  }
}

CASE(epoll, turns, "one event at a time, a connection that always has data, and a pipe that has some") {
  Link link = run.warm();
  run.peer_sends(link, 3);
  int pipe[2];
  if (::pipe(pipe) != 0 || ::write(pipe[1], "x", 1) != 1) return;
  const int set = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  call("the connection", ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event));
  event.data.u64 = 2;
  call("the pipe", ::epoll_ctl(set, EPOLL_CTL_ADD, pipe[0], &event));
  for (const int timeout : {0, 1000}) {
    bool told[3] = {};
    for (int i = 0; i < 100'000 && !(told[1] && told[2]); ++i) {
      if (::epoll_wait(set, &event, 1, timeout) != 1) return note("nothing told");
      told[event.data.u64] = true;
    }
    note("told of the connection %d, of the pipe %d", told[1], told[2]);
  }
  for (const int fd : {set, pipe[0], pipe[1]}) ::close(fd);
}

CASE(epoll, slow_turns,
     "a program that takes its time, a connection that has news each time, and a pipe that has some") {
  constexpr int kTurns = 40;
  Link link = run.warm();
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  const int set = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
  event.data.u64 = 2;
  ::epoll_ctl(set, EPOLL_CTL_ADD, pipe[0], &event);
  for (const int most : {1, 8}) {
    for (int turn = 0, written = -1; turn < kTurns; ++turn) {
      run.peer_sends(link, 5);
      if (turn == kTurns / 2) written = ::write(pipe[1], "x", 1) == 1 ? turn : -1;
      ::usleep(1000);
      epoll_event events[8];
      const int told = ::epoll_wait(set, events, most, 1000);
      for (int i = 0; i < told; ++i) {
        char byte;
        if (events[i].data.u64 == 1)
          (void)link.receive(static_cast<std::size_t>(std::max(0, unread(link.fd))));
        else if (::read(pipe[0], &byte, 1) == 1)
          note("the pipe: %s", turn - written <= 8 ? "soon" : "late");
      }
    }
    (void)link.receive(static_cast<std::size_t>(std::max(0, unread(link.fd))));
  }
  for (const int fd : {set, pipe[0], pipe[1]}) ::close(fd);
}

CASE(epoll, silent_for_long, "members that were silent for ten thousand waits are heard when they have something") {
  constexpr std::size_t kLinks = 12;
  for (const std::uint32_t events : {std::uint32_t{EPOLLIN}, std::uint32_t{EPOLLIN | EPOLLET}}) {
    const int set = ::epoll_create1(0);
    std::vector<Link> links;
    for (std::size_t i = 0; i < kLinks; ++i) {
      links.push_back(run.warm());
      epoll_event event{.events = events, .data = {.u64 = i}};
      ::epoll_ctl(set, EPOLL_CTL_ADD, links.back().fd, &event);
    }
    epoll_event event{};
    for (const int timeout : {0, 1000}) {
      int told = 0;
      for (int i = 0; i < 14'000; ++i) told += ::epoll_wait(set, &event, 1, 0);
      note("told meanwhile: %d", told);
      for (std::size_t i = 0; i < kLinks; ++i) {
        run.peer_sends(links[i], 5);
        if (timeout == 0) ::usleep(1000);
        call("heard", ::epoll_wait(set, &event, 1, timeout));
        note("%d, received %d", static_cast<int>(event.data.u64), links[i].receive(5));
      }
    }
    ::close(set);
    for (const Link& link : links) ::close(link.fd);
  }
}

CASE(epoll, end_only, "a member that is only to be told of the end is told for as long as it lasts") {
  for (const std::uint32_t events : {std::uint32_t{EPOLLRDHUP}, std::uint32_t{0}}) {
    Link link = run.warm();
    const int set = ::epoll_create1(0);
    epoll_event event{.events = events, .data = {.u64 = 1}};
    ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
    call("at first", ::epoll_wait(set, &event, 1, 0));
    run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
    const auto look = [&] {
      for (int i = 0; i < 4; ++i) {
        if (call("epoll_wait", ::epoll_wait(set, &event, 1, i == 3 ? 30 : 0)) == 1)
          note("%s", poll_bits(event.events).c_str());
        pollfd outside{set, POLLIN, 0};
        call("poll of the set", ::poll(&outside, 1, 0));
      }
    };
    ::usleep(20'000);
    look();
    ::shutdown(link.fd, SHUT_WR);
    ::usleep(20'000);
    look();
    ::close(set);
    ::close(link.fd);
  }
}

CASE(epoll, spent_and_ended, "EPOLLONESHOT was told, and the connection ends: nothing more") {
  for (const bool reset : {false, true}) {
    Link link = run.warm();
    const int set = ::epoll_create1(0);
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 1}};
    ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
    run.peer_sends(link, 5);
    call("told", ::epoll_wait(set, &event, 1, 1000));
    if (reset)
      run.peer_says("peer resets", Order::abort, link);
    else
      run.peer_says("peer closes", Order::close, link);
    ::usleep(20'000);
    int readable = 0, told = 0;
    for (int i = 0; i < 10; ++i) {
      pollfd outside{set, POLLIN, 0};
      readable += ::poll(&outside, 1, 1);
      told += ::epoll_wait(set, &event, 1, 1);
    }
    note("readable often: %d, told %d", readable > 1, told);
    event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 2}};
    ::epoll_ctl(set, EPOLL_CTL_MOD, link.fd, &event);
    event = {};
    call("asked again", ::epoll_wait(set, &event, 1, 1000));
    note("%s", poll_bits(event.events).c_str());
    ::close(set);
    ::close(link.fd);
  }
}

CASE(epoll, past_the_set,
     "a member that was silent for long is read without asking the set, and then has something again") {
  for (const bool by_poll : {false, true}) {
    Link link = run.warm();
    const int set = ::epoll_create1(0);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
    call("epoll_ctl", ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event));
    int told = 0;
    for (int i = 0; i < 30; ++i) told += ::epoll_wait(set, &event, 1, 1);
    note("told while it was silent: %d", told);
    for (int i = 0; i < 3; ++i) {
      run.peer_sends(link, 5);
      pollfd entry{link.fd, POLLIN, 0};
      if (by_poll) call("poll", ::poll(&entry, 1, 1000));
      ::usleep(1000);
      note("read past the set: %d", link.receive(5));
      pollfd again{link.fd, POLLIN, 0};
      if (by_poll) call("poll", ::poll(&again, 1, 0));
      run.peer_sends(link, 7);
      call("the set tells of the next", ::epoll_wait(set, &event, 1, 2000));
      note("and that is there: %d", link.receive(7));
      call("now nothing", ::epoll_wait(set, &event, 1, 0));
    }
    ::close(set);
    ::close(link.fd);
  }
}

namespace {

// A kernel that is busy delivers what was sent over its TCP a little later, and a ring is faster.
void wait_until_there(int fd, std::size_t bytes) {
  for (int tries = 0, unread = 0; tries < 1000; ++tries) {
    if (::ioctl(fd, FIONREAD, &unread) != 0 || static_cast<std::size_t>(unread) >= bytes) return;
    ::usleep(1000);
  }
}

}  // namespace

// One look cannot tell what is on TCP from what is in rings more than once: either the one first, or the other.
CASE(epoll, order, "a peer that sends on one connection after the other, some of them young, is heard in that order") {
  constexpr std::size_t kWarm = 4, kLinks = kWarm + 2, kRounds = 30;
  std::uint32_t random = 1;
  const auto below = [&random](std::size_t limit) { return ((random = random * 1103515245 + 12345) >> 16) % limit; };
  for (const int most : {1, 8}) {
    const int set = ::epoll_create1(0);
    std::vector<Link> links;
    const auto add = [&](const Link& link) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = links.size()}};
      ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
      links.push_back(link);
    };
    for (std::size_t i = 0; i < kWarm; ++i) add(run.warm());
    for (std::size_t round = 0; round < kRounds; ++round) {
      while (links.size() < kLinks) add(run.open());
      std::vector<std::size_t> order(kLinks);
      for (std::size_t i = 0; i < kLinks; ++i) order[i] = i;
      for (std::size_t i = 1; i < kWarm; ++i) std::swap(order[i], order[below(i + 1)]);
      if (below(2) == 0) std::rotate(order.begin(), order.begin() + kWarm, order.end());
      const bool closing = below(2) == 0;  // the last one ends its connection instead
      // In one line, or two.
      const auto bytes = [round](std::size_t which) { return 1 + (which * 20 + round * 31) % 112; };
      std::string sent, heard;
      epoll_event nothing;
      call("nothing yet", ::epoll_wait(set, &nothing, 1, 0));
      for (const std::size_t which : order) {
        sent += std::to_string(which);
        if (closing && which == kLinks - 1)
          run.agent.tell(Order::close, links[which].number);
        else
          run.peer_sends(links[which], bytes(which));
        if (which >= kWarm && !(closing && which == kLinks - 1)) wait_until_there(links[which].fd, bytes(which));
      }
      if (below(2) == 0) ::usleep(1000);
      while (heard.size() < kLinks) {
        epoll_event events[kLinks];
        const int told = ::epoll_wait(set, events, std::min<int>(most, kLinks), 1000);
        if (told <= 0) break;
        for (int i = 0; i < told; ++i) {
          const std::size_t which = events[i].data.u64;
          heard += std::to_string(which);
          if (closing && which == kLinks - 1)
            ::epoll_ctl(set, EPOLL_CTL_DEL, links[which].fd, nullptr);
          else
            links[which].receive(bytes(which));
        }
      }
      note("%s: sent %s, heard %s", closing ? "closing" : "not closing", sent.c_str(), heard.c_str());
      for (; links.size() > kWarm; links.pop_back()) {
        run.agent.tell(Order::close, links.back().number);
        ::close(links.back().fd);
      }
    }
    ::close(set);
    for (const Link& link : links) ::close(link.fd);
  }
}

CASE(epoll, other_words, "EPOLLRDNORM and EPOLLWRNORM, alone and beside EPOLLIN and EPOLLOUT") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  epoll_event event{.events = 0, .data = {.u64 = 1}};
  call("epoll_ctl", ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event));
  for (const bool data : {false, true}) {
    if (data) run.peer_sends(link, 5);
    ::usleep(1000);
    for (const std::uint32_t asked : {static_cast<std::uint32_t>(EPOLLRDNORM), static_cast<std::uint32_t>(EPOLLWRNORM),
                                      EPOLLIN | EPOLLRDNORM, EPOLLRDNORM | EPOLLWRNORM | EPOLLOUT}) {
      event.events = asked;
      call("epoll_ctl", ::epoll_ctl(set, EPOLL_CTL_MOD, link.fd, &event));
      event.events = 0;
      call("epoll_wait", ::epoll_wait(set, &event, 1, 20));
      note("%x", event.events);
    }
  }
  ::close(set);
  ::close(link.fd);
}

}  // namespace conformance
