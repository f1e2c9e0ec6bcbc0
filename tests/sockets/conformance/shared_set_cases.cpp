// Sets of epoll that others hold or hold something in: sets in sets, sets of a parent. And edges with room, and waits
// that something else changes meanwhile.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"

namespace conformance {

namespace {

int put(int set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(set, operation, fd, &event);
}

void note_told(const char* what, int set) {
  epoll_event event{};
  const int found = ::epoll_wait(set, &event, 1, 0);
  note("%s: %d %s", what, found, found == 1 ? poll_bits(event.events).c_str() : "");
}

void take(int fd) {
  char bytes[64];
  if (::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) < 1) note("nothing to take");
}

// From the other end, and there by now.
void give(const OwnPair& pair) {
  int before = 0, there = 0;
  ::ioctl(pair.client, FIONREAD, &before);
  if (::send(pair.server, "0123456789", 10, 0) != 10) note("not given");
  for (int ms = 0; ms < 1000 && there != before + 10; ++ms, ::usleep(1000)) ::ioctl(pair.client, FIONREAD, &there);
}

constexpr std::uint32_t kInEdge = EPOLLIN | EPOLLET;

}  // namespace

CASE(epoll, edges_three_deep, "a set in a set in a set, on edges: each message is told at the top") {
  const OwnPair pair;
  pair.warm();
  const int inner = ::epoll_create1(0), middle = ::epoll_create1(0), outer = ::epoll_create1(0);
  call("ADD", put(inner, EPOLL_CTL_ADD, pair.client, EPOLLIN));
  call("ADD", put(middle, EPOLL_CTL_ADD, inner, EPOLLIN));
  call("ADD", put(outer, EPOLL_CTL_ADD, middle, kInEdge));
  for (int i = 0; i < 3; ++i) {
    give(pair);
    note_told("message", outer);
    note_told("again", outer);
    for (const int set : {middle, inner}) note_told("inside", set);
    take(pair.client);
    for (const int set : {inner, middle}) note_told("taken", set);
  }
  for (const int set : {inner, middle, outer}) ::close(set);
}

CASE(epoll, edges_of_members_again, "a set in a set on edges: members that are armed, or added, again have news") {
  const OwnPair once, usual;
  once.warm();
  usual.warm();
  const int inner = ::epoll_create1(0), outer = ::epoll_create1(0);
  call("ADD", put(inner, EPOLL_CTL_ADD, once.client, EPOLLIN | EPOLLONESHOT));
  call("ADD", put(inner, EPOLL_CTL_ADD, usual.client, EPOLLIN));
  call("ADD", put(outer, EPOLL_CTL_ADD, inner, kInEdge));
  give(once);
  note_told("outer", outer);
  note_told("inner", inner);
  take(once.client);
  give(once);
  give(usual);
  note_told("outer", outer);
  note_told("inner", inner);
  take(usual.client);
  call("MOD", put(inner, EPOLL_CTL_MOD, once.client, EPOLLIN | EPOLLONESHOT));
  note_told("armed again", outer);
  note_told("inner", inner);
  take(once.client);
  give(usual);
  note_told("outer", outer);
  call("DEL", put(inner, EPOLL_CTL_DEL, usual.client, 0));
  call("ADD", put(inner, EPOLL_CTL_ADD, usual.client, EPOLLIN));
  note_told("added again", outer);
  ::close(inner);
  ::close(outer);
}

CASE(epoll, inherited_and_closed,
     "a child waits on its parent's set, for a member that was silent; the parent closes it") {
  Link silent = run.warm(), busy = run.warm();
  const int set = ::epoll_create1(0);
  for (const Link* link : {&silent, &busy}) call("ADD", put(set, EPOLL_CTL_ADD, link->fd, EPOLLIN));
  for (int i = 0; i < 40; ++i) {  // waits that sleep
    std::thread late([&] {
      ::usleep(3000);
      run.peer_sends(busy, 1);
    });
    epoll_event event{};
    if (::epoll_wait(set, &event, 1, 1000) != 1) note("not told");
    late.join();
    char byte;
    if (::recv(busy.fd, &byte, 1, 0) != 1) note("not received");
    ++busy.received;
  }
  int told[2];
  if (::pipe(told) != 0) note("no pipe");
  struct Waiting {
    int set, told;
  } waiting{set, told[1]};
  const int child = spawn_child(
      [](void* argument) {
        const Waiting& with = *static_cast<Waiting*>(argument);
        epoll_event event{};
        const char found = ::epoll_wait(with.set, &event, 1, 2000) == 1 ? 'y' : 'n';
        ::_exit(::write(with.told, &found, 1) == 1 ? 0 : 1);
      },
      &waiting);
  ::usleep(100'000);
  for (const Link* link : {&silent, &busy}) ::close(link->fd);
  ::usleep(20'000);
  run.peer_says("the peer sends", Order::send, silent, 1);
  char found = '?';
  if (::read(told[0], &found, 1) != 1) note("no answer");
  note("told: %c", found);
  note_exit("child", child);
  for (const int fd : {set, told[0], told[1]}) ::close(fd);
}

CASE(epoll, edge_has_room, "an edge of data says that there is room too, also before this end has sent by the ring") {
  for (int round = 0; round < 10; ++round) {
    const OwnPair pair;
    const int set = ::epoll_create1(0);
    call("ADD", put(set, EPOLL_CTL_ADD, pair.client, EPOLLIN | EPOLLOUT | EPOLLET));
    int without = 0;
    for (int i = 0; i < 60; ++i) {
      if (::send(pair.server, "q", 1, 0) != 1) note("not sent");
      epoll_event event{};
      if (::epoll_wait(set, &event, 1, 1000) != 1) note("not told");
      if ((event.events & EPOLLIN) != 0 && (event.events & EPOLLOUT) == 0) ++without;
      take(pair.client);
    }
    call("close", ::shutdown(pair.server, SHUT_WR));
    ::usleep(2000);
    note("without room %d", without);
    note_told("the end", set);
    ::close(set);
  }
}

CASE(wait, select_for_urgent_only, "select for exceptional conditions alone sleeps on where the peer has gone") {
  Link link = run.warm();
  run.peer_says("the peer closes", Order::close, link);
  ::usleep(5000);
  ::shutdown(link.fd, SHUT_WR);
  fd_set exceptional;
  FD_ZERO(&exceptional);
  FD_SET(link.fd, &exceptional);
  timeval limit{0, 80'000};
  call("select", ::select(link.fd + 1, nullptr, nullptr, &exceptional, &limit));
  note("time is over: %d", limit.tv_sec == 0 && limit.tv_usec < 20'000);
  ::close(link.fd);
}

CASE(data, nonblocking_set_in_sleep, "two threads sleep in recv; O_NONBLOCK set meanwhile does not end that") {
  const OwnPair pair;
  pair.warm();
  std::atomic<int> ended = 0;
  const auto receive = [&] {
    char byte;
    if (::recv(pair.client, &byte, 1, 0) != 1) note("recv: %s", strerrorname_np(errno));
    ++ended;
  };
  std::thread first(receive), second(receive);
  ::usleep(50'000);
  ::fcntl(pair.client, F_SETFL, ::fcntl(pair.client, F_GETFL) | O_NONBLOCK);
  ::usleep(150'000);
  note("ended %d", ended.load());
  if (::send(pair.server, "ab", 2, 0) != 2) note("not sent");
  first.join();
  second.join();
}

}  // namespace conformance
