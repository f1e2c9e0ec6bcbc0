// epoll with more than one thread, more members than usual, and sets that are looked at from outside.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
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

namespace {

int put_set(int outer, int inner, std::uint64_t data) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = data}};
  return ::epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
}

void note_told(const char* what, int set, int limit_ms) {
  std::array<epoll_event, 8> events{};
  const int found = ::epoll_wait(set, events.data(), events.size(), limit_ms);
  call(what, found);
  for (int i = 0; i < found; ++i) note("data %d", static_cast<int>(events[static_cast<std::size_t>(i)].data.u64));
}

}  // namespace

CASE(epoll, nested_number_again,
     "a set in a set is closed, another has its number: it is a member only once it is added") {
  Link link = run.warm();
  const int outer = ::epoll_create1(0), first = ::epoll_create1(0);
  call("the first", put_set(outer, first, 111));
  ::close(first);
  const int second = ::epoll_create1(0);
  note("the same number %d", first == second);
  put(second, EPOLL_CTL_ADD, link, EPOLLIN);
  run.peer_sends(link, 5);
  ::usleep(5000);
  note_told("not added", outer, 50);
  call("the second", put_set(outer, second, 222));
  note_told("added", outer, 1000);
  call("the second again", put_set(outer, second, 333));
  note_told("still once", outer, 1000);
  const int another = ::epoll_create1(0);
  call("in another set", put_set(another, second, 7));
  call("there twice", put_set(another, second, 8));
  note_told("once there", another, 1000);
  note("read %d", link.receive(5));
  note_told("nothing", outer, 20);
  for (const int fd : {another, second, outer, link.fd}) ::close(fd);
}

CASE(epoll, nested_while_waiting,
     "a set is put into one that a thread sleeps on, its member ready before or afterwards") {
  for (const bool before : {true, false}) {
    Link link = run.warm();
    const int outer = ::epoll_create1(0), inner = ::epoll_create1(0);
    put(inner, EPOLL_CTL_ADD, link, EPOLLIN);
    note_told("nothing", inner, 0);
    while_another_waits("told", outer, [&] {
      if (before) run.peer_sends(link, 1);
      ::usleep(50'000);
      call("the set", put_set(outer, inner, 1));
      ::usleep(50'000);
      if (!before) run.peer_sends(link, 1);
    });
    note("read %d", link.receive(1));
    for (const int fd : {inner, outer, link.fd}) ::close(fd);
  }
}

CASE(epoll, nested_many, "300 sets in a set, and one at the end of a long poll: data in the last is told at once") {
  constexpr std::size_t kSets = 300;
  Link link = run.warm();
  const int outer = ::epoll_create1(0);
  std::vector<int> inner;
  for (std::size_t i = 0; i < kSets; ++i) {
    inner.push_back(::epoll_create1(0));
    if (put_set(outer, inner.back(), i) != 0) note("set %d was refused", static_cast<int>(i));
  }
  put(inner.back(), EPOLL_CTL_ADD, link, EPOLLIN);
  note_told("nothing", outer, 20);
  while_another_waits("the last set has something", outer, [&] { run.peer_sends(link, 1); });
  note("read %d", link.receive(1));
  std::vector<pollfd> entries(kSets, pollfd{-1, POLLIN, 0});
  entries.back().fd = inner.back();
  std::atomic<int> found{-1};
  std::thread waiter([&] { found = ::poll(entries.data(), entries.size(), 3000); });
  ::usleep(20'000);
  run.peer_sends(link, 1);
  for (int i = 0; found < 0 && i < 1500; ++i) ::usleep(1000);
  note("the last entry: %d", found.load());
  waiter.join();
  for (const int fd : inner) ::close(fd);
  for (const int fd : {outer, link.fd}) ::close(fd);
}

CASE(epoll, young_looked_at_from_outside,
     "a thread sleeps in poll on a set since before its member was used much; another sends") {
  Link link = run.open();
  const int set = ::epoll_create1(0);
  put(set, EPOLL_CTL_ADD, link, EPOLLIN);
  int found = -1;
  std::thread waiter([&] {
    pollfd entry{set, POLLIN, 0};
    found = ::poll(&entry, 1, 3000);
  });
  ::usleep(50'000);
  constexpr int kRounds = 60;
  run.agent.begin(Order::receive, link.number, kRounds);
  for (int i = 0; i < kRounds && link.send(1); ++i) ::usleep(1000);
  note("the peer has %d", static_cast<int>(run.agent.end().result));
  run.peer_sends(link, 5);
  waiter.join();
  note("poll %d", found);
  note("read %d", link.receive(5));
  for (const int fd : {set, link.fd}) ::close(fd);
}

CASE(epoll, closed_while_waiting,
     "a set is closed under a thread that waits on it, another set has its number at once: who waits there is told") {
  Link link = run.warm(), other = run.warm();
  const int first = ::epoll_create1(0);
  put(first, EPOLL_CTL_ADD, link, EPOLLIN);
  int found = -1;
  std::thread waiter([&] {
    epoll_event event{};
    found = ::epoll_wait(first, &event, 1, 300);
  });
  ::usleep(50'000);
  ::close(first);
  const int second = ::epoll_create1(0);
  note("the same number %d", first == second);
  put(second, EPOLL_CTL_ADD, other, EPOLLIN);
  while_another_waits("on the second", second, [&] {
    waiter.join();
    ::usleep(100'000);
    run.peer_sends(other, 1);
  });
  note("on the first: %d", found);
  for (const int fd : {second, link.fd, other.fd}) ::close(fd);
}

}  // namespace conformance
