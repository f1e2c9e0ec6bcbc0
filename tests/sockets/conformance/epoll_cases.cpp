// epoll, exactly.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

namespace {

std::string event_bits(unsigned bits) {
  return poll_bits(bits);  // the same numbers
}

ssize_t control(int set, int operation, int fd, unsigned events, std::uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return ::epoll_ctl(set, operation, fd, &event);
}

ssize_t add(int set, int fd, unsigned events, std::uint64_t data) {
  return control(set, EPOLL_CTL_ADD, fd, events, data);
}

// What a wait finds, in the order of the members' data.
int wait_for(const char* what, int set, int timeout = 0, int most = 16) {
  epoll_event events[64];
  const int found = ::epoll_wait(set, events, most, timeout);
  if (found < 0) return static_cast<int>(call(what, found));
  std::sort(events, events + found, [](const epoll_event& a, const epoll_event& b) { return a.data.u64 < b.data.u64; });
  std::string text;
  for (int i = 0; i < found; ++i) text += " " + std::to_string(events[i].data.u64) + ":" + event_bits(events[i].events);
  note("%s = %d%s", what, found, text.c_str());
  return found;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void fill_up(int fd) {
  std::vector<char> much(std::size_t{1} << 20);
  for (std::size_t size = much.size(); size != 0; size /= 32)
    while (::send(fd, much.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

volatile sig_atomic_t alarms = 0;
void on_alarm(int) {
  alarms = alarms + 1;
}

}  // namespace

CASE(epoll, level, "level-triggered: told for as long as there is something") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("add", add(set, link.fd, EPOLLIN, 7));
  wait_for("idle", set);
  run.peer_sends(link, 10);
  wait_for("data", set, 1000);
  wait_for("data, again", set, 1000);
  note("received %d", link.receive(4));
  wait_for("a part read", set, 1000);
  note("received %d", link.receive(6));
  wait_for("all read", set);
  wait_for("all read, waiting", set, 30);
  call("both", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 8));
  wait_for("room", set, 1000);
  run.peer_sends(link, 10);
  wait_for("data and room", set, 1000);
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  wait_for("data, room and the end", set, 1000);
  note("received %d", link.receive(10));
  wait_for("room and the end", set, 1000);
  ::shutdown(link.fd, SHUT_WR);
  wait_for("both ends", set, 1000);
  call("nothing asked", control(set, EPOLL_CTL_MOD, link.fd, 0, 9));
  wait_for("still", set, 1000);
}

CASE(epoll, edge, "edge-triggered: told once for each arrival") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("add", add(set, link.fd, EPOLLIN | EPOLLET, 7));
  wait_for("idle", set);
  run.peer_sends(link, 10);
  wait_for("data", set, 1000);
  wait_for("the same data", set, 30);
  run.peer_sends(link, 10);
  wait_for("more data", set, 1000);
  note("received %d", link.receive(5));
  wait_for("a part read", set, 30);
  note("received %d", link.receive(15));
  wait_for("all read", set, 30);
  run.peer_sends(link, 10);
  wait_for("data", set, 1000);
  call("modified", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLET | EPOLLRDHUP, 8));
  wait_for("told again after MOD", set, 1000);
  wait_for("and not again", set, 30);
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  wait_for("the end", set, 1000);
  wait_for("and not again", set, 30);
  char in[32];
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  call("recv", ::recv(link.fd, in, sizeof in, 0));
  wait_for("all read", set, 30);
}

CASE(epoll, edge_room, "edge-triggered room: told at first, not again, and again once a full one has room") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("add", add(set, link.fd, EPOLLOUT | EPOLLET, 7));
  wait_for("room", set, 1000);
  wait_for("not again", set, 30);
  fill_up(link.fd);
  wait_for("full", set, 30);
  run.agent.begin(Order::receive_slowly, link.number, 0);
  wait_for("room", set, 5000);
  ::shutdown(link.fd, SHUT_WR);
  run.agent.end();
}

CASE(epoll, edge_loop, "the usual loop of an edge-triggered server: 4 MB in and out without blocking") {
  Link link = run.warm();
  ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
  const int set = ::epoll_create1(0);
  add(set, link.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 7);
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  run.agent.begin(Order::send, link.number, kBytes);
  std::vector<char> buffer(100'000);
  std::size_t got = 0;
  bool good = true;
  while (got < kBytes) {
    epoll_event event;
    if (::epoll_wait(set, &event, 1, 5000) != 1) break;
    for (ssize_t now; (now = ::recv(link.fd, buffer.data(), buffer.size(), 0)) > 0;) {
      good &= matches(buffer.data(), static_cast<std::size_t>(now), link.received);
      link.received += static_cast<std::uint64_t>(now);
      got += static_cast<std::size_t>(now);
    }
  }
  run.agent.end();
  note("received %zu, %s", got, good ? "verified" : "wrong");
  run.agent.begin(Order::receive, link.number, kBytes);
  std::size_t sent = 0;
  while (sent < kBytes) {
    const std::size_t size = std::min(buffer.size(), kBytes - sent);
    fill(buffer.data(), size, link.sent);
    const ssize_t now = ::send(link.fd, buffer.data(), size, 0);
    if (now > 0) {
      sent += static_cast<std::size_t>(now);
      link.sent += static_cast<std::uint64_t>(now);
      continue;
    }
    epoll_event event;
    if (errno != EAGAIN || ::epoll_wait(set, &event, 1, 5000) != 1) break;
  }
  note("sent %zu, peer verified %d", sent, static_cast<int>(run.agent.end().result));
}

CASE(epoll, oneshot, "EPOLLONESHOT: once, then nothing until MOD, not even a reset") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("add", add(set, link.fd, EPOLLIN | EPOLLONESHOT, 7));
  run.peer_sends(link, 10);
  wait_for("data", set, 1000);
  wait_for("spent", set, 30);
  run.peer_sends(link, 10);
  wait_for("more data, spent", set, 30);
  call("again", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLONESHOT, 8));
  wait_for("data", set, 1000);
  note("received %d", link.receive(20));
  run.peer_says("peer resets", Order::abort, link);
  const double before = cpu_seconds();
  wait_for("reset, spent", set, 300);
  note("waiting used the processor: %s", cpu_seconds() - before > 0.15 ? "yes" : "no");
  call("again", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLONESHOT, 9));
  wait_for("reset", set, 1000);
}

CASE(epoll, control, "epoll_ctl: its errors, DEL and ADD again, EPOLLEXCLUSIVE") {
  Link link = run.warm();
  const int set = ::epoll_create(1);
  call("MOD of none", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN, 1));
  call("DEL of none", control(set, EPOLL_CTL_DEL, link.fd, 0, 0));
  call("ADD", add(set, link.fd, EPOLLIN, 1));
  call("ADD twice", add(set, link.fd, EPOLLIN, 1));
  run.peer_sends(link, 5);
  wait_for("data", set, 1000);
  call("DEL", control(set, EPOLL_CTL_DEL, link.fd, 0, 0));
  call("DEL twice", control(set, EPOLL_CTL_DEL, link.fd, 0, 0));
  call("MOD of the deleted", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN, 1));
  wait_for("deleted", set, 20);
  call("ADD again", add(set, link.fd, EPOLLIN, 2));
  wait_for("data", set, 1000);
  call("ADD of itself", add(set, set, EPOLLIN, 3));
  call("ADD to no set", add(link.fd, link.fd, EPOLLIN, 3));
  call("ADD of closed", add(set, 999, EPOLLIN, 3));
  call("no such operation", control(set, 77, link.fd, EPOLLIN, 3));
  call("MOD to EXCLUSIVE", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLEXCLUSIVE, 3));
  call("DEL", control(set, EPOLL_CTL_DEL, link.fd, 0, 0));
  call("ADD EXCLUSIVE|ONESHOT", add(set, link.fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 3));
  call("ADD EXCLUSIVE|WRNORM", add(set, link.fd, EPOLLIN | EPOLLWRNORM | EPOLLEXCLUSIVE, 3));
  call("ADD EXCLUSIVE", add(set, link.fd, EPOLLIN | EPOLLEXCLUSIVE, 4));
  wait_for("data", set, 1000);
  call("MOD of EXCLUSIVE", control(set, EPOLL_CTL_MOD, link.fd, EPOLLIN, 3));
  note("received %d", link.receive(5));
  wait_for("read", set, 20);
  run.peer_sends(link, 5);
  wait_for("data", set, 1000);
  epoll_event none[1];
  call("wait for 0 events", ::epoll_wait(set, none, 0, 0));
  call("wait on no set", ::epoll_wait(link.fd, none, 1, 0));
}

CASE(epoll, exclusive_room, "EPOLLEXCLUSIVE with EPOLLOUT: full is full, and waiting costs nothing") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("ADD", add(set, link.fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE, 4));
  wait_for("room", set, 1000);
  fill_up(link.fd);
  const double before = cpu_seconds();
  wait_for("full", set, 200);
  note("waiting used the processor: %s", cpu_seconds() - before > 0.1 ? "yes" : "no");
}

CASE(epoll, close_and_dup, "close takes a member out, unless a duplicate lives: then its events go on with its data") {
  Link link = run.warm(), other = run.warm();
  const int set = ::epoll_create1(0);
  add(set, link.fd, EPOLLIN, 1);
  add(set, other.fd, EPOLLIN, 2);
  run.peer_sends(link, 5);
  run.peer_sends(other, 5);
  wait_for("both", set, 1000);
  ::close(other.fd);
  wait_for("one closed", set, 1000);
  const int copy = ::dup(link.fd);
  ::close(link.fd);
  wait_for("the other closed, its duplicate lives", set, 1000);
  char in[16];
  call("recv from the duplicate", ::recv(copy, in, sizeof in, 0), in);
  wait_for("read", set, 20);
  run.peer_sends(link, 5);
  wait_for("data again", set, 1000);
  ::close(copy);
  wait_for("the duplicate closed", set, 20);
}

CASE(epoll, dup_back_on_tcp, "the number of a member closed, its duplicate alive: told of room on TCP as well") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("add", add(set, link.fd, EPOLLIN | EPOLLOUT, 1));
  const int copy = ::dup(link.fd);
  ::close(link.fd);
  wait_for("room", set, 1000);
  call("out of band", ::send(copy, "!", 1, MSG_OOB));
  wait_for("room, over TCP by now", set, 1000);
}

CASE(epoll, duplicates, "a connection under two numbers in one set, and in two sets") {
  Link link = run.warm();
  const int set = ::epoll_create1(0), second = ::epoll_create1(0);
  const int copy = ::dup(link.fd);
  call("add", add(set, link.fd, EPOLLIN, 1));
  call("add its duplicate", add(set, copy, EPOLLIN | EPOLLET, 2));
  call("add to another set", add(second, link.fd, EPOLLIN, 3));
  run.peer_sends(link, 5);
  wait_for("data", set, 1000);
  wait_for("data, again", set, 1000);
  wait_for("data, other set", second, 1000);
  const int same = ::dup(set);
  wait_for("data, by a duplicate of the set", same, 1000);
  ::close(set);
  wait_for("data, the first number closed", same, 1000);
  note("received %d", link.receive(5));
  wait_for("read", same, 20);
  wait_for("read", second, 20);
}

CASE(epoll, mixed, "a set with connections, a pipe, a timer, a signal and an event") {
  Link link = run.warm(), second = run.warm();
  const int set = ::epoll_create1(0);
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int signal = ::signalfd(-1, &signals, SFD_NONBLOCK);
  const int event = ::eventfd(0, EFD_NONBLOCK);
  add(set, link.fd, EPOLLIN, 1);
  add(set, second.fd, EPOLLIN | EPOLLET, 2);
  add(set, pipe[0], EPOLLIN, 3);
  add(set, timer, EPOLLIN, 4);
  add(set, signal, EPOLLIN, 5);
  add(set, event, EPOLLIN, 6);
  wait_for("nothing", set);
  if (::write(pipe[1], "x", 1) != 1) return;
  wait_for("pipe", set, 1000);
  run.peer_sends(link, 5);
  std::uint64_t one = 1;
  if (::write(event, &one, sizeof one) != sizeof one) return;
  // All of them within a few waits, whatever comes first.
  const auto gather = [&](const char* what, unsigned expected) {
    unsigned seen = 0;
    for (int i = 0; i < 100'000 && seen != expected; ++i) {
      epoll_event events[8];
      const int found = ::epoll_wait(set, events, 8, 1000);
      for (int k = 0; k < found; ++k) seen |= 1U << events[k].data.u64;
    }
    note("%s: %x", what, seen);
  };
  gather("connection, pipe, event", 1U << 1 | 1U << 3 | 1U << 6);
  ::raise(SIGUSR1);
  gather("and the signal", 1U << 1 | 1U << 3 | 1U << 6 | 1U << 5);
  run.peer_sends(second, 5);
  gather("and the second connection", 1U << 1 | 1U << 2 | 1U << 3 | 1U << 6 | 1U << 5);
  note("received %d", link.receive(5));
  char byte;
  if (::read(pipe[0], &byte, 1) != 1 || ::read(event, &one, sizeof one) != sizeof one) return;
  signalfd_siginfo info;
  if (::read(signal, &info, sizeof info) != sizeof info) return;
  wait_for("all quiet", set, 20);
  const itimerspec soon{{0, 0}, {0, 50'000'000}};
  ::timerfd_settime(timer, 0, &soon, nullptr);
  wait_for("the timer", set, 3000);
}

CASE(epoll, sleeping, "a sleeping wait wakes for data, room and the end; timeouts hold") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  add(set, link.fd, EPOLLIN | EPOLLRDHUP, 1);
  const auto start = std::chrono::steady_clock::now();
  wait_for("a timeout", set, 60);
  note("not too soon: %d", std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(58));
  const auto after = [&](Order order, int a) {
    return std::thread([&run, &link, order, a] {
      ::usleep(40'000);
      run.agent.tell(order, link.number, a);
    });
  };
  std::thread later = after(Order::send, 5);
  wait_for("data", set, 3000);
  later.join();
  note("received %d", link.receive(5));
  for (int i = 0; i < 12; ++i) wait_for("idle", set, 2);
  later = after(Order::send, 5);
  wait_for("data after idle times", set, 3000);
  later.join();
  note("received %d", link.receive(5));
  later = after(Order::close, 0);
  wait_for("the end", set, 3000);
  later.join();
}

CASE(epoll, pwait, "epoll_pwait and epoll_pwait2: masks, times, EINTR") {
  struct sigaction action {};
  action.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &action, nullptr);
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  add(set, link.fd, EPOLLIN, 1);
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGALRM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  ::raise(SIGALRM);
  epoll_event event;
  const timespec time{0, 20'000'000};
  call("epoll_pwait2, blocked", ::epoll_pwait2(set, &event, 1, &time, nullptr));
  note("alarms %d", static_cast<int>(alarms));
  call("epoll_pwait, let in", ::epoll_pwait(set, &event, 1, -1, &before));
  note("alarms %d", static_cast<int>(alarms));
  ::raise(SIGALRM);
  call("epoll_pwait2, let in", ::epoll_pwait2(set, &event, 1, nullptr, &before));
  note("alarms %d", static_cast<int>(alarms));
  const timespec bad{0, -5};
  call("epoll_pwait2, bad time", ::epoll_pwait2(set, &event, 1, &bad, nullptr));
  run.peer_sends(link, 5);
  call("epoll_pwait2, data", ::epoll_pwait2(set, &event, 1, nullptr, nullptr));
}

CASE(epoll, nested, "a set inside a set, and a set in poll and select") {
  Link link = run.warm();
  const int inner = ::epoll_create1(0), outer = ::epoll_create1(0);
  add(inner, link.fd, EPOLLIN, 1);
  add(outer, inner, EPOLLIN, 2);
  wait_for("idle", outer, 20);
  run.peer_sends(link, 5);
  wait_for("outer", outer, 1000);
  pollfd entry{inner, POLLIN, 0};
  call("poll of the inner", ::poll(&entry, 1, 1000));
  entry.fd = outer;
  call("poll of the outer", ::poll(&entry, 1, 1000));
  wait_for("inner", inner, 1000);
  note("received %d", link.receive(5));
  wait_for("read", outer, 20);
  entry.fd = inner;
  call("poll, read", ::poll(&entry, 1, 20));
  std::thread later([&] {
    ::usleep(40'000);
    run.agent.tell(Order::send, link.number, 5);
  });
  wait_for("asleep in the outer", outer, 3000);
  later.join();
  note("received %d", link.receive(5));
  std::thread again([&] {
    ::usleep(40'000);
    run.agent.tell(Order::send, link.number, 5);
  });
  call("asleep in poll of the inner", ::poll(&entry, 1, 3000));
  again.join();
  call("DEL from the inner", control(inner, EPOLL_CTL_DEL, link.fd, 0, 0));
  wait_for("outer", outer, 20);
  call("poll of the inner", ::poll(&entry, 1, 20));
  call("a circle", add(inner, outer, EPOLLIN, 9));
}

CASE(epoll, shared_by_fork, "parent and child wait on one set that was made before the fork") {
  Link link = run.warm(), second = run.warm();
  const int set = ::epoll_create1(0);
  add(set, link.fd, EPOLLIN, 1);
  run.peer_sends(link, 5);
  in_child("child", [&] {
    wait_for("in the child", set, 1000);
    note("received in the child %d", link.receive(2));
    wait_for("in the child", set, 1000);
  });
  link.received += 2;
  wait_for("in the parent", set, 1000);
  note("received in the parent %d", link.receive(3));
  wait_for("in the parent, read", set, 20);
  int go[2];
  if (::pipe(go) != 0) return;
  auto body = [&] {
    char byte;
    if (::read(go[0], &byte, 1) != 1) return;
    wait_for("in the child, asleep", set, 3000);
    note("received in the child %d", link.receive(5));
    add(set, second.fd, EPOLLIN, 2);
  };
  const int child = spawn_child([](void* argument) { (*static_cast<decltype(body)*>(argument))(); }, &body);
  run.peer_sends(link, 5);
  if (::write(go[1], "x", 1) != 1) return;
  note_exit("child", child);
  link.received += 5;
  run.peer_sends(second, 5);
  wait_for("what the child added", set, 1000);
  note("received in the parent %d", second.receive(5));
}

CASE(epoll, young, "a thread sleeps in epoll_wait since before the connection was used much; another sends") {
  Link link = run.open();
  const int set = ::epoll_create1(0);
  add(set, link.fd, EPOLLIN, 1);
  run.ask_while_another_waits(link, [&] {
    epoll_event event;
    return ::epoll_wait(set, &event, 1, 3000);
  });
}

CASE(epoll, many, "200 connections in one set: each is told, none twice, none forgotten") {
  std::vector<Link> links;
  const int set = ::epoll_create1(0);
  for (int i = 0; i < 200; ++i) {
    links.push_back(i % 4 == 0 ? run.warm() : run.open());
    add(set, links.back().fd, EPOLLIN | (i % 2 == 0 ? EPOLLET : 0U), static_cast<std::uint64_t>(i));
  }
  for (int round = 0; round < 2; ++round) {
    for (Link& link : links) run.peer_sends(link, 3);
    std::vector<int> told(links.size());
    epoll_event events[64];
    for (int found; (found = ::epoll_wait(set, events, 64, 100)) > 0;)
      for (int i = 0; i < found; ++i) {
        const auto which = static_cast<std::size_t>(events[i].data.u64);
        ++told[which];
        char in[8];
        if (::recv(links[which].fd, in, sizeof in, MSG_DONTWAIT) != 3) note("nothing to read");
      }
    note("told once: %ld", std::count(told.begin(), told.end(), 1));
  }
}
