// What epoll tells when not everything can be told at once: room that comes late, members that take turns.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

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

}  // namespace conformance
