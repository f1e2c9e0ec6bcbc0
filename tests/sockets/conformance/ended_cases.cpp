// What is left of a connection: an end that nobody asks for, one that is told once, a process that goes without
// closing, a number that is used again. And waits that others share a thread with.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"
#include "sockets/conformance/sleeps_in.hpp"

namespace conformance {

namespace {

constexpr int kSleepMs = 80;

template <class Wait>
void note_sleep(const char* what, Wait wait) {
  int found = -1;
  const bool slept = sleeps_in([&] { found = wait(); });
  note("%s: found %d, slept %d", what, found, slept);
}

std::string bits_after_poll(int fd, int events) {
  pollfd entry{fd, static_cast<short>(events), 0};
  ::poll(&entry, 1, 1000);
  return poll_bits(static_cast<unsigned>(entry.revents));
}

int put(int set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(set, operation, fd, &event);
}

int wait_for(int set, int ms) {
  epoll_event event{};
  return ::epoll_wait(set, &event, 1, ms);
}

template <class Body>
int start_child(Body body) {
  return spawn_child([](void* argument) { (*static_cast<Body*>(argument))(); }, &body);
}

}  // namespace

CASE(wait, end_nobody_asks_for, "poll and select that ask for neither bytes nor room, after either end's shutdown") {
  const auto sleep_on = [](int fd) {
    pollfd entry{fd, 0, 0};
    note_sleep("poll for nothing", [&] { return ::poll(&entry, 1, kSleepMs); });
    entry.events = POLLPRI;
    note_sleep("poll for PRI", [&] { return ::poll(&entry, 1, kSleepMs); });
    note_sleep("select", [&] {
      fd_set exceptional;
      FD_ZERO(&exceptional);
      FD_SET(fd, &exceptional);
      timeval limit{0, kSleepMs * 1000};
      return ::select(fd + 1, nullptr, nullptr, &exceptional, &limit);
    });
    note("%s", bits_after_poll(fd, POLLIN | POLLOUT | POLLRDHUP).c_str());
    ::close(fd);
  };
  const Link closed = run.warm();
  run.peer_says("the peer closes", Order::close, closed);
  sleep_on(closed.fd);
  const Link ended = run.warm();
  run.peer_says("the peer ends", Order::shutdown, ended, SHUT_WR);
  sleep_on(ended.fd);
  const Link deaf = run.warm();
  call("own shutdown", ::shutdown(deaf.fd, SHUT_RD));
  sleep_on(deaf.fd);
}

CASE(epoll, end_nobody_asks_for, "a member with EPOLLONESHOT that asks for no bytes, and the peer's end") {
  for (const Order order : {Order::close, Order::shutdown})
    for (const std::uint32_t events : {0U, static_cast<unsigned>(EPOLLPRI)}) {
      const Link link = run.warm();
      const int set = ::epoll_create1(0);
      call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLONESHOT | events));
      run.peer_says("the peer", order, link, SHUT_WR);
      note_sleep("epoll_wait", [&] { return wait_for(set, kSleepMs); });
      call("MOD", put(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLRDHUP));
      call("told", wait_for(set, 1000));
      for (const int fd : {set, link.fd}) ::close(fd);
    }
}

CASE(epoll, end_on_edge, "EPOLLRDHUP with EPOLLET is told once") {
  for (const Order order : {Order::close, Order::shutdown}) {
    const Link link = run.warm();
    const int set = ::epoll_create1(0);
    call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLRDHUP | EPOLLET));
    call("nothing", wait_for(set, 20));
    run.peer_says("the peer", order, link, SHUT_WR);
    epoll_event event{};
    call("the end", ::epoll_wait(set, &event, 1, 1000));
    note("%s", poll_bits(event.events).c_str());
    for (int i = 0; i < 2; ++i) note_sleep("no more", [&] { return wait_for(set, kSleepMs); });
    for (const int fd : {set, link.fd}) ::close(fd);
  }
}

CASE(epoll, end_on_edge_has_room, "EPOLLET without EPOLLRDHUP: the edge of the end says that there is room too") {
  for (const Order order : {Order::close, Order::shutdown})
    for (const std::uint32_t events : {static_cast<unsigned>(EPOLLIN | EPOLLOUT), EPOLLRDNORM | EPOLLWRNORM | 0U}) {
      const Link link = run.warm();
      const int set = ::epoll_create1(0);
      call("ADD", put(set, EPOLL_CTL_ADD, link.fd, events | EPOLLET));
      call("room", wait_for(set, 1000));
      call("nothing", wait_for(set, 20));
      run.peer_says("the peer", order, link, SHUT_WR);
      epoll_event event{};
      call("the end", ::epoll_wait(set, &event, 1, 1000));
      note("%s", poll_bits(event.events).c_str());
      call("no more", wait_for(set, 20));
      for (const int fd : {set, link.fd}) ::close(fd);
    }
}

namespace {

// Another process accepts a connection, which exec closes, and uses it until it is on the ring. Then it does what
// `leave` does with it. The caller's end, when that is done: a byte in the pipe, or nobody has it any more.
template <class Leave, class Meanwhile>
int end_after(Leave leave, Meanwhile meanwhile) {
  int port = 0, done[2];
  const int listener = listening(AF_INET, port);
  if (::pipe2(done, O_CLOEXEC) != 0) note("pipe2 failed");
  start_child([&] {
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), 1);  // the trace ends with the case
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listener);
    for (char byte = 0; ::recv(fd, &byte, 1, 0) == 1 && byte != 'z';) ::send(fd, &byte, 1, 0);
    ::send(fd, "z", 1, 0);
    leave(fd, done[1]);
  });
  ::close(done[1]);
  bool ok = false;
  const int fd = connect_to(AF_INET, port, ok);
  ::close(listener);
  for (int i = 0; i <= 40; ++i)
    if (char byte = i < 40 ? 'a' : 'z'; ::send(fd, &byte, 1, 0) != 1 || ::recv(fd, &byte, 1, 0) != 1)
      note("warming up failed");
  meanwhile(fd);
  char byte;
  if (::read(done[0], &byte, 1) < 0) note("read failed");
  ::close(done[0]);
  ::usleep(20'000);  // what exec and exit close, they close one after the other
  return fd;
}

void sleep_instead() {
  ::execl("/bin/sleep", "sleep", "5", nullptr);
  ::_exit(9);
}

// Returns when it runs.
void start_program() {
  int runs[2];
  if (::pipe2(runs, O_CLOEXEC) != 0) ::_exit(9);
  start_child(sleep_instead);
  ::close(runs[1]);
  char byte;
  if (::read(runs[0], &byte, 1) != 0) ::_exit(9);
}

void close_and_stay(int fd, int done) {
  ::close(fd);
  if (::write(done, "x", 1) == 1) ::pause();
}

void note_end(int fd) {
  for (int i = 0; i < 3; ++i) {
    call("send", ::send(fd, "late", 4, MSG_NOSIGNAL));
    ::usleep(20'000);
  }
  char byte;
  call("recv", ::recv(fd, &byte, 1, 0));
  ::close(fd);
}

}  // namespace

CASE(process, exec_closes, "exec closes a connection: its peer sends, then receives") {
  note_end(end_after([](int, int) { sleep_instead(); }, [](int) {}));
}

CASE(process, exec_closes_in_child, "a child's exec closes its copy; the parent exits, or closes its own and stays") {
  const auto exit_later = [](int, int) {
    start_program();
    ::_exit(0);
  };
  note_end(end_after(exit_later, [](int) {}));
  const auto close_later = [](int fd, int done) {
    start_program();
    close_and_stay(fd, done);
  };
  note_end(end_after(close_later, [](int) {}));
}

CASE(process, exec_closes_unread, "the same with a byte unread: the peer is told of one reset, once") {
  const auto close_unread = [](int fd, int done) {
    start_program();
    bits_after_poll(fd, POLLIN);
    close_and_stay(fd, done);
  };
  const auto send_to_sleeper = [](int end) {
    ::usleep(150'000);
    call("send", ::send(end, "x", 1, 0));
  };
  const int fd = end_after(close_unread, send_to_sleeper);
  char byte;
  call("recv", ::recv(fd, &byte, 1, 0));
  note("%s", bits_after_poll(fd, POLLIN | POLLOUT | POLLRDHUP).c_str());
  note_end(fd);
}

CASE(process, exit_without_handlers, "quick_exit and the exit_group of syscall() end a connection as exit does") {
  const auto quick_exit = [](int, int) { std::quick_exit(0); };
  note_end(end_after(quick_exit, [](int) {}));
  const auto exit_group = [](int, int) { ::syscall(SYS_exit_group, 0); };
  note_end(end_after(exit_group, [](int) {}));
}

CASE(process, many_holders, "ten children have a connection and exit; the parent closes it and stays") {
  const auto share = [](int fd, int done) {
    int all_there[2];
    if (::pipe(all_there) != 0) return;
    std::array<int, 10> children;
    for (int& child : children)
      child = start_child([&] {
        char byte;
        ::close(all_there[1]);
        if (::read(all_there[0], &byte, 1) != 0) ::_exit(9);
      });
    ::close(all_there[1]);
    for (const int child : children) note_exit("a child", child);
    close_and_stay(fd, done);
  };
  note_end(end_after(share, [](int) {}));
}

namespace {

// Somebody polls a number that is closed meanwhile; the connection that has got it then.
template <class Open>
Link open_under_poll(Open open, std::size_t entries, std::thread& poller) {
  const Link former = open();
  poller = std::thread([fd = former.fd, entries] {
    std::vector<pollfd> polled(entries, pollfd{-1, 0, 0});
    polled.back() = {fd, POLLIN, 0};
    ::poll(polled.data(), polled.size(), 200);
  });
  ::usleep(50'000);  // asleep by now
  ::close(former.fd);
  const Link link = open();
  note("the same number %d", link.fd == former.fd);
  return link;
}

// One second for `reader`, which has the connection, to become `done`.
void note_done(std::thread& reader, const std::atomic<bool>& done, const Link& link) {
  for (int i = 0; i < 1000 && !done; ++i) ::usleep(1000);
  note("received %d", done.load());
  ::shutdown(link.fd, SHUT_RDWR);
  reader.join();
  ::close(link.fd);
}

}  // namespace

CASE(wait, number_used_again,
     "poll of 65 ends, of which one was closed; another connection has its number, and sleeps") {
  if (!run.agent.is_process()) return skip();  // the agent would take the number
  std::thread poller;
  Link link = open_under_poll([&] { return run.warm(); }, 65, poller);
  std::atomic<bool> received = false;
  std::thread reader([&] { received = link.receive(1); });
  poller.join();
  ::usleep(20'000);
  run.peer_sends(link, 1);
  note_done(reader, received, link);
}

CASE(wait, young_number_used_again, "the same with connections that have not been used, and one entry") {
  for (int round = 0; round < 2; ++round) {  // either end may have the lower port
    int port = 0;
    const int listener = listening(AF_INET, port);
    Link peer;
    const auto open = [&] {
      ::close(peer.fd);
      bool ok = false;
      Link link{.fd = connect_to(AF_INET, port, ok)};
      peer = {.fd = ::accept(listener, nullptr, nullptr)};
      return link;
    };
    std::thread poller;
    Link link = open_under_poll(open, 1, poller);
    poller.join();
    constexpr int kBytes = 40;
    std::atomic<bool> received = false;
    std::thread reader([&] { received = link.receive(kBytes); });
    ::usleep(50'000);
    int came = 0;
    for (; came < kBytes && link.send(1) && peer.receive(1); ++came) ::usleep(1000);
    note("the peer has %d", came);
    for (int i = 0; i < kBytes && peer.send(1); ++i) ::usleep(1000);
    note_done(reader, received, link);
    for (const int fd : {peer.fd, listener}) ::close(fd);
  }
}

CASE(epoll, dup2_over_itself, "dup2 of a connection over a number that it has already, which is a member") {
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, link.fd, 0));
  const int copy = ::dup(link.fd);
  call("dup2", ::dup2(copy, link.fd) == link.fd ? 0 : -1);
  call("close", ::close(copy));
  call("MOD", put(set, EPOLL_CTL_MOD, link.fd, EPOLLIN));
  run.peer_sends(link, 1);
  call("told", wait_for(set, 500));
  note("received %d", link.receive(1));
  for (const int fd : {set, link.fd}) ::close(fd);
}

CASE(wait, polled_in_turn,
     "two polls in turn, a member of the second always ready: the pipe beside it is told at once") {
  Link quiet = run.warm(), ready = run.warm();
  int pipe[2];
  if (::pipe(pipe) != 0 || ::write(pipe[1], "x", 1) != 1) note("no pipe");
  run.peer_sends(ready, 6);
  note("%s", bits_after_poll(ready.fd, POLLIN).c_str());
  int rounds = 0;
  for (bool told = false; !told && rounds < 1000; ++rounds) {
    pollfd alone{quiet.fd, POLLIN, 0};
    ::poll(&alone, 1, 0);
    std::array<pollfd, 2> entries{pollfd{ready.fd, POLLIN, 0}, pollfd{pipe[0], POLLIN, 0}};
    ::poll(entries.data(), entries.size(), 0);
    told = entries[1].revents != 0;
  }
  note("told in round %d", rounds);
  for (const int fd : {pipe[0], pipe[1], quiet.fd, ready.fd}) ::close(fd);
}

CASE(wait, limit_of_centuries, "ppoll and select with limits that are more nanoseconds than 64 bits hold") {
  Link link = run.warm();
  const auto note_wait = [&](const char* what, auto wait) {
    std::thread sender([&] {
      ::usleep(100'000);
      run.peer_sends(link, 1);
    });
    const int found = wait();
    sender.join();
    note("%s: found %d, received %d", what, found, link.receive(1));
  };
  constexpr time_t kCenturies = 18'446'744'073;  // 0.71 s less than 64 bits
  for (const time_t limit : {kCenturies, time_t{LONG_MAX}}) {
    note_wait("ppoll", [&] {
      pollfd entry{link.fd, POLLIN, 0};
      const timespec time{limit, 720'000'000};
      return ::ppoll(&entry, 1, &time, nullptr);
    });
    note_wait("select", [&] {
      fd_set readable;
      FD_ZERO(&readable);
      FD_SET(link.fd, &readable);
      timeval time{limit, 720'000};
      return ::select(link.fd + 1, &readable, nullptr, nullptr, &time);
    });
  }
  ::close(link.fd);
}

namespace {

// An end that has been reset after it had shut down itself, bytes unread on both sides.
void reset_server(const OwnPair& pair) {
  pair.warm();
  for (const int fd : {pair.server, pair.client})
    if (::send(fd, "unread", 6, 0) != 6) note("send failed");
  ::usleep(5'000);
  call("shutdown", ::shutdown(pair.server, SHUT_RDWR));
  for (int i = 0; i < 3; ++i, ::usleep(5'000))
    call("the other end sends", ::send(pair.client, "more", 4, MSG_NOSIGNAL));
}

void note_error(int fd) {
  int error = -1;
  socklen_t size = sizeof error;
  call("getsockopt", ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
  note("SO_ERROR %d", error);
}

}  // namespace

CASE(life, reset_told_once, "one reset is told by send or by SO_ERROR, and not again") {
  for (const bool by_send : {true, false}) {
    const OwnPair pair;
    reset_server(pair);
    if (!by_send) note_error(pair.server);
    for (int i = 0; i < 3; ++i) call("send", ::send(pair.server, "more", 4, MSG_NOSIGNAL));
    note_error(pair.server);
    std::array<char, 6> bytes;
    call("recv", ::recv(pair.server, bytes.data(), bytes.size(), 0));
  }
}

}  // namespace conformance
