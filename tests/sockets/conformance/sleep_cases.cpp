// Sleeps that cost nothing, whatever happened before: a descriptor that others keep, a handler that jumped away, a
// process that was killed, another thread that waits for the same. And sleeps that a handler comes into.
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/sleeps_in.hpp"
#include "sockets/pass_descriptor.hpp"

namespace conformance {

namespace {

using viaduct::sockets::pass_descriptor;
using viaduct::sockets::take_descriptor;

constexpr int kSleepMs = 300;

// The agent sends after a while. The thread takes no signals.
std::thread sends_later(Run& run, const Link& link, std::size_t bytes, int after_ms = kSleepMs) {
  return std::thread([&run, number = link.number, bytes, after_ms] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::usleep(static_cast<useconds_t>(after_ms) * 1000);
    run.agent.tell(Order::send, number, static_cast<std::int64_t>(bytes));
  });
}

void note_sleep_until_sent(Run& run, Link& link, const char* what) {
  std::thread sender = sends_later(run, link, 5);
  bool received = false;
  const bool slept = sleeps_in([&] { received = link.receive(5); });
  sender.join();
  note("%s: received %d, slept %d", what, received, slept);
}

int put(int set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(set, operation, fd, &event);
}

void alarm_in(int ms) {
  const itimerval timer{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

sigjmp_buf jump;

template <class Wait>
void jump_out_of(Wait wait) {
  ::signal(SIGALRM, [](int) { siglongjmp(jump, 1); });
  if (sigsetjmp(jump, 1) == 0) {
    alarm_in(50);
    wait();
    note("came back by itself");
  }
}

}  // namespace

CASE(epoll, kept_by_another,
     "a member is taken out and closed, a child keeps it, by fork or by SCM_RIGHTS: waiting costs nothing") {
  for (const bool passed : {false, true}) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
    auto keep = [&] {
      if (passed && take_descriptor(pair[1]) < 0) return;
      if (::write(pair[1], "x", 1) == 1) ::pause();
    };
    const auto start = [&] {
      return spawn_child([](void* argument) { (*static_cast<decltype(keep)*>(argument))(); }, &keep);
    };
    int child = passed ? start() : -1;
    Link link = run.warm();
    const int set = ::epoll_create1(0);
    call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLIN));
    run.peer_sends(link, 1);
    epoll_event event{};
    call("told", ::epoll_wait(set, &event, 1, 1000));
    note("read %d", link.receive(1));
    call("nothing", ::epoll_wait(set, &event, 1, 20));
    if (!passed) child = start();
    call("DEL", put(set, EPOLL_CTL_DEL, link.fd, 0));
    if (passed) note("passed %d", pass_descriptor(pair[0], link.fd));
    char byte;
    call("the child has it", ::read(pair[0], &byte, 1));
    call("close", ::close(link.fd));
    ::usleep(20'000);
    run.peer_sends(link, 5);
    run.peer_says("the peer ends", Order::shutdown, link, SHUT_WR);
    int found = -1;
    const bool slept = sleeps_in([&] { found = ::epoll_wait(set, &event, 1, kSleepMs); });
    note("found %d, slept %d", found, slept);
    ::kill(child, SIGKILL);
    note_exit("the child", child);
    for (const int fd : {pair[0], pair[1], set}) ::close(fd);
  }
}

CASE(epoll, shot_read_elsewhere,
     "a thread waits on a set, another receives from a member that has had its shot: both sleep") {
  Link link = run.warm();
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLIN | EPOLLONESHOT));
  call("ADD", put(set, EPOLL_CTL_ADD, pipe[0], EPOLLIN));
  run.peer_sends(link, 1);
  epoll_event event{};
  call("the shot", ::epoll_wait(set, &event, 1, 1000));
  note("read %d", link.receive(1));
  bool slept = false, told_of_pipe = false;
  std::thread waiter([&] {
    epoll_event found{};
    slept = sleeps_in([&] { told_of_pipe = ::epoll_wait(set, &found, 1, 5000) == 1 && found.data.fd == pipe[0]; });
  });
  ::usleep(50'000);
  note_sleep_until_sent(run, link, "the receiver");
  note("write %d", static_cast<int>(::write(pipe[1], "x", 1)));
  waiter.join();
  note("the waiter: told of the pipe %d, slept %d", told_of_pipe, slept);
  for (const int fd : {pipe[0], pipe[1], set, link.fd}) ::close(fd);
}

CASE(signals, sleep_after_jump, "a handler jumps out of recv, poll and epoll_wait; later sleeps cost nothing") {
  Link received = run.warm(), polled = run.warm(), in_set = run.warm();
  char byte;
  jump_out_of([&] { ::recv(received.fd, &byte, 1, 0); });
  note_sleep_until_sent(run, received, "after recv");
  pollfd entry{polled.fd, POLLIN, 0};
  jump_out_of([&] { ::poll(&entry, 1, -1); });
  note_sleep_until_sent(run, polled, "after poll");
  const int set = ::epoll_create1(0);
  put(set, EPOLL_CTL_ADD, in_set.fd, EPOLLIN);
  epoll_event event{};
  jump_out_of([&] { ::epoll_wait(set, &event, 1, -1); });
  std::thread sender = sends_later(run, in_set, 3, 50);
  note("received %d", in_set.receive(3));
  sender.join();
  note_sleep_until_sent(run, in_set, "after epoll_wait");
  for (const int fd : {set, received.fd, polled.fd, in_set.fd}) ::close(fd);
}

namespace {

void kill_in_recv(Link& link) {
  const int child = spawn_child(
      [](void* fd) {
        char byte;
        ::recv(*static_cast<int*>(fd), &byte, 1, 0);
      },
      &link.fd);
  ::usleep(100'000);  // asleep by now
  ::kill(child, SIGKILL);
  note_exit("the child", child);
}

}  // namespace

CASE(process, sleep_after_kill, "a child is killed while it sleeps in recv; the parent's sleep there costs nothing") {
  if (!run.agent.is_process()) return skip();  // the parent has one thread
  Link link = run.warm();
  kill_in_recv(link);
  auto body = [&] {
    ::close(link.fd);
    ::usleep(kSleepMs * 1000);
    run.agent.begin(Order::send, link.number, 5);
  };
  const int other = spawn_child([](void* argument) { (*static_cast<decltype(body)*>(argument))(); }, &body);
  bool received = false;
  const bool slept = sleeps_in([&] { received = link.receive(5); });
  note("received %d, slept %d", received, slept);
  run.agent.end();
  note_exit("the other child", other);
  ::close(link.fd);
}

CASE(process, sleep_after_kill_beside_threads, "the same in a process with several threads") {
  Link link = run.warm();
  kill_in_recv(link);
  note_sleep_until_sent(run, link, "the parent");
  ::close(link.fd);
}

CASE(signals, mixed_handlers_one_way,
     "a handler with SA_RESTART, another without one: recv on a connection that has only been sent on goes on") {
  Link link = run.open();
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &action, nullptr);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  constexpr int kRounds = 60;
  run.agent.begin(Order::receive, link.number, kRounds);
  for (int i = 0; i < kRounds && link.send(1); ++i) ::usleep(1000);
  note("the peer has %d", static_cast<int>(run.agent.end().result));
  alarm_in(100);
  std::thread sender = sends_later(run, link, 5);
  char in[16];
  call("SA_RESTART", ::recv(link.fd, in, sizeof in, 0), in);
  sender.join();
  std::thread other([target = ::pthread_self()] {
    ::usleep(100'000);
    ::pthread_kill(target, SIGUSR1);
  });
  call("without", ::recv(link.fd, in, sizeof in, 0));
  other.join();
  ::close(link.fd);
}

namespace {

bool poll_all(const std::vector<Link>& links, int pipe) {
  std::vector<pollfd> entries{{pipe, POLLIN, 0}};
  for (const Link& link : links) entries.push_back({link.fd, POLLIN, 0});
  ::poll(entries.data(), entries.size(), -1);
  return entries[0].revents != 0;
}

bool select_all(const std::vector<Link>& links, int pipe) {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(pipe, &readable);
  int most = pipe;
  for (const Link& link : links) {
    FD_SET(link.fd, &readable);
    most = std::max(most, link.fd);
  }
  ::select(most + 1, &readable, nullptr, nullptr, nullptr);
  return FD_ISSET(pipe, &readable);
}

}  // namespace

CASE(wait, crowd_asleep,
     "threads in poll and select on the same 100 connections, which have been used: sleeping is free") {
  constexpr int kCrowd = 100;
  std::vector<Link> links;
  for (int i = 0; i < kCrowd; ++i) links.push_back(run.warm());
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (const auto wait : {poll_all, poll_all, select_all, select_all})
    threads.emplace_back([&, wait] {
      while (!wait(links, pipe[0])) {
        char bytes[64];
        for (const Link& link : links)
          taken += static_cast<int>(std::max<ssize_t>(::recv(link.fd, bytes, sizeof bytes, MSG_DONTWAIT), 0));
      }
    });
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round)
    for (Link& link : links) run.peer_sends(link, 1);
  for (int ms = 0; ms < 1000 && taken != kRounds * kCrowd; ++ms) ::usleep(1000);
  note("taken %d", taken.load());
  const auto sleep = [] { ::usleep(kSleepMs * 1000); };
  sleep();  // whoever looks for what others might have taken does so less and less
  note("slept %d", sleeps_in(sleep, RUSAGE_SELF, static_cast<int>(threads.size())));
  call("write", ::write(pipe[1], "x", 1));
  for (std::thread& thread : threads) thread.join();
  for (const Link& link : links) ::close(link.fd);
  for (const int fd : pipe) ::close(fd);
}

}  // namespace conformance
