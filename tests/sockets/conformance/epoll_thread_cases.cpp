// epoll with more than one thread, more members than usual, and sets that are looked at from outside.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

namespace {

void put(int set, int operation, const Link& link, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = link.fd}};
  call("epoll_ctl", ::epoll_ctl(set, operation, link.fd, &event));
}

// One thread waits for long; this one lets it fall asleep and then does something.
template <class Body>
void while_another_waits(const char* what, int set, Body body) {
  int found = -1;
  std::thread waiter([&] {
    epoll_event event{};
    found = ::epoll_wait(set, &event, 1, 3000);
  });
  ::usleep(20'000);
  body();
  waiter.join();
  note("%s: %d", what, found);
}

}  // namespace

CASE(epoll, changed_while_waiting,
     "one thread waits, another adds members and arms them again, with and without data there") {
  Link link = run.warm(), other = run.warm();
  const int set = ::epoll_create1(0);
  put(set, EPOLL_CTL_ADD, other, EPOLLIN);
  run.peer_sends(link, 3);
  ::usleep(20'000);
  while_another_waits("added with data there", set, [&] { put(set, EPOLL_CTL_ADD, link, EPOLLIN | EPOLLONESHOT); });
  while_another_waits("armed again", set, [&] { put(set, EPOLL_CTL_MOD, link, EPOLLIN | EPOLLONESHOT); });
  note("read %d", link.receive(3));
  while_another_waits("armed again, data later", set, [&] {
    put(set, EPOLL_CTL_MOD, link, EPOLLIN | EPOLLONESHOT);
    run.peer_sends(link, 2);
  });
  put(set, EPOLL_CTL_MOD, link, 0);
  while_another_waits("wanted again", set, [&] { put(set, EPOLL_CTL_MOD, link, EPOLLIN | EPOLLET); });
  while_another_waits("room wanted too", set, [&] { put(set, EPOLL_CTL_MOD, link, EPOLLIN | EPOLLOUT | EPOLLET); });
  note("read %d", link.receive(2));
  for (const int fd : {set, link.fd, other.fd}) ::close(fd);
}

CASE(epoll, spent_shots, "members that have had their shot get more; the others are told of all the same") {
  std::vector<Link> links;
  for (int i = 0; i < 3; ++i) links.push_back(run.warm());
  const int set = ::epoll_create1(0);
  for (const Link& link : links) put(set, EPOLL_CTL_ADD, link, EPOLLIN | EPOLLONESHOT);
  run.peer_sends(links[0], 1);
  epoll_event event{};
  call("the shot", ::epoll_wait(set, &event, 1, 2000));
  for (int round = 0; round < 3; ++round) {
    while_another_waits("the others", set, [&] {
      run.peer_sends(links[0], 1);
      run.peer_sends(links[1], 1);
    });
    note("read %d", links[1].receive(1));
    put(set, EPOLL_CTL_MOD, links[1], EPOLLIN | EPOLLONESHOT);
  }
  ::close(set);
  for (const Link& link : links) ::close(link.fd);
}

CASE(epoll, all_have_something, "more members than anybody looks at, and all have something when they are added") {
  constexpr int kMembers = 140;
  std::vector<Link> links;
  for (int i = 0; i < kMembers; ++i) {
    links.push_back(run.warm());
    run.peer_sends(links.back(), 1);
  }
  ::usleep(10'000);
  const int set = ::epoll_create1(0);
  for (const Link& link : links) {
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = link.fd}};
    ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
  }
  int told = 0;
  for (epoll_event event{}; told < kMembers && ::epoll_wait(set, &event, 1, 1000) == 1;) ++told;
  note("told of %d", told);
  ::close(set);
  for (const Link& link : links) ::close(link.fd);
}

CASE(epoll, looked_at_from_outside,
     "a set in poll and in another set: room, edges, one shot, and a thread in it meanwhile") {
  Link link = run.warm();
  const int inner = ::epoll_create1(0), outer = ::epoll_create1(0);
  put(inner, EPOLL_CTL_ADD, link, EPOLLOUT);
  pollfd entry{inner, POLLIN, 0};
  call("room, by poll", ::poll(&entry, 1, 1000));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 1}};
  call("epoll_ctl", ::epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
  call("room, by the set around", ::epoll_wait(outer, &event, 1, 1000));
  put(inner, EPOLL_CTL_MOD, link, EPOLLIN);
  run.peer_sends(link, 1);
  call("data, on the edge", ::epoll_wait(outer, &event, 1, 1000));
  call("not again", ::epoll_wait(outer, &event, 1, 20));
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  event = {.events = EPOLLIN, .data = {.u64 = 2}};
  call("a pipe beside it", ::epoll_ctl(outer, EPOLL_CTL_ADD, pipe[0], &event));
  while_another_waits("which has something", outer, [&] { call("write", ::write(pipe[1], "x", 1)); });
  for (const int fd : pipe) ::close(fd);
  note("read %d", link.receive(1));
  call("nothing", ::epoll_wait(outer, &event, 1, 20));
  while_another_waits("told inside, with polls outside", inner, [&] {
    entry.revents = 0;
    call("a poll in vain", ::poll(&entry, 1, 5));
    run.peer_sends(link, 1);
  });
  note("read %d", link.receive(1));
  for (const int fd : {inner, outer, link.fd}) ::close(fd);
}

CASE(epoll, under_another_number, "a set is duplicated, its first number closed: members come and go") {
  Link link = run.warm();
  const int first = ::epoll_create1(0);
  put(first, EPOLL_CTL_ADD, link, EPOLLIN | EPOLLONESHOT);
  const int set = ::dup(first);
  ::close(first);
  run.peer_sends(link, 1);
  epoll_event event{};
  call("told", ::epoll_wait(set, &event, 1, 1000));
  put(set, EPOLL_CTL_MOD, link, EPOLLIN);
  call("told again", ::epoll_wait(set, &event, 1, 1000));
  put(set, EPOLL_CTL_DEL, link, 0);
  put(set, EPOLL_CTL_ADD, link, EPOLLIN);
  call("and after it was added again", ::epoll_wait(set, &event, 1, 1000));
  ::close(set);
  ::close(link.fd);
}

}  // namespace conformance
