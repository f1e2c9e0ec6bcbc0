// Options, flags and ioctls.
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

namespace {

int get(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  ::getsockopt(fd, level, option, &value, &size);
  return value;
}

ssize_t set(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value);
}

using Clock = std::chrono::steady_clock;
// Whether something took about as long as it should: never sooner, and not for ever.
const char* about(Clock::time_point start, int ms) {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
  return took + 5 < ms ? "too soon" : took > ms + 3000 ? "too late" : "in time";
}

volatile sig_atomic_t io_signals = 0;
void on_io(int) {
  io_signals = io_signals + 1;
}

}  // namespace

CASE(options, tcp, "TCP_NODELAY, TCP_CORK, TCP_INFO, TCP_MAXSEG: what was set is read back, and has no bad effect") {
  Link link = run.warm();
  note("NODELAY %d CORK %d", get(link.fd, IPPROTO_TCP, TCP_NODELAY), get(link.fd, IPPROTO_TCP, TCP_CORK));
  call("NODELAY 1", set(link.fd, IPPROTO_TCP, TCP_NODELAY, 1));
  call("CORK 1", set(link.fd, IPPROTO_TCP, TCP_CORK, 1));
  note("NODELAY %d CORK %d", get(link.fd, IPPROTO_TCP, TCP_NODELAY), get(link.fd, IPPROTO_TCP, TCP_CORK));
  note("sent %d", link.send(100));
  call("CORK 0", set(link.fd, IPPROTO_TCP, TCP_CORK, 0));
  call("NODELAY 0", set(link.fd, IPPROTO_TCP, TCP_NODELAY, 0));
  run.peer_receives(link, 100);
  note("NODELAY %d CORK %d", get(link.fd, IPPROTO_TCP, TCP_NODELAY), get(link.fd, IPPROTO_TCP, TCP_CORK));
  tcp_info info{};
  socklen_t size = sizeof info;
  call("TCP_INFO", ::getsockopt(link.fd, IPPROTO_TCP, TCP_INFO, &info, &size));
  note("state %d", info.tcpi_state);
  call("option of no size", ::setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, nullptr, 0));
  const int one = 1;
  call("option too short", ::setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &one, 2));
  call("no such option", set(link.fd, IPPROTO_TCP, 9999, 1));
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  size = sizeof info;
  ::getsockopt(link.fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  note("state %d", info.tcpi_state);
}

CASE(options, before, "options set before the connection is used much hold afterwards") {
  Link link = run.open();
  set(link.fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(link.fd, SOL_SOCKET, SO_RCVLOWAT, 4);
  set(link.fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(link.fd, SOL_SOCKET, SO_RCVLOWAT, 1);
  run.warm_up(link);
  note("NODELAY %d LOWAT %d KEEPALIVE %d", get(link.fd, IPPROTO_TCP, TCP_NODELAY),
       get(link.fd, SOL_SOCKET, SO_RCVLOWAT), get(link.fd, SOL_SOCKET, SO_KEEPALIVE));
  set(link.fd, IPPROTO_TCP, TCP_NODELAY, 0);
  note("NODELAY %d", get(link.fd, IPPROTO_TCP, TCP_NODELAY));
}

CASE(options, time_limits, "SO_RCVTIMEO and SO_SNDTIMEO end waits with EAGAIN, and partial results with a count") {
  Link link = run.warm();
  const timeval limit{0, 150'000};
  char in[64];
  call("RCVTIMEO", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
  auto start = Clock::now();
  call("recv", ::recv(link.fd, in, 1, 0));
  note("%s", about(start, 150));
  run.peer_sends(link, 20);
  start = Clock::now();
  call("recv WAITALL", ::recv(link.fd, in, 40, MSG_WAITALL), in);
  note("%s", about(start, 150));
  call("SNDTIMEO", ::setsockopt(link.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
  start = Clock::now();
  std::vector<char> much(std::size_t{64} << 20);
  const ssize_t sent = ::send(link.fd, much.data(), much.size(), MSG_NOSIGNAL);
  note("send of too much: %s, %s", sent > 0 && sent < static_cast<ssize_t>(much.size()) ? "a part" : "?",
       about(start, 150));
  timeval read{};
  socklen_t size = sizeof read;
  ::getsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &read, &size);
  note("RCVTIMEO is about %ld", (static_cast<long>(read.tv_sec) * 1000 + read.tv_usec / 1000) / 50);
}

CASE(options, one_limit_for_all,
     "SO_SNDTIMEO on a new connection counts for a call that sends a lot to a slow reader, not for its parts") {
  Link link = run.open();
  const timeval limit{0, 150'000};
  call("SNDTIMEO", ::setsockopt(link.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
  constexpr int kPauseUs = 1000;
  run.agent.begin(Order::receive_slowly, link.number, kPauseUs);
  std::vector<char> much(std::size_t{48} << 20);
  const ssize_t sent = ::send(link.fd, much.data(), much.size(), MSG_NOSIGNAL);
  note("%s", sent > 0 && sent < static_cast<ssize_t>(much.size()) ? "a part" : "?");
  ::close(link.fd);
  (void)run.agent.end();
}

CASE(data, several_messages_limit,
     "recvmmsg with a time limit: looked at after each message; what is left; a bad one") {
  Link link = run.warm();
  char in[2][5];  // a message each
  iovec pieces[2] = {{in[0], sizeof in[0]}, {in[1], sizeof in[1]}};
  mmsghdr some[2] = {};
  for (int i = 0; i < 2; ++i) some[i].msg_hdr.msg_iov = &pieces[i], some[i].msg_hdr.msg_iovlen = 1;
  const auto receive = [&](const char* what, timespec limit, int first_ms, int second_ms) {
    std::thread sender([&] {
      for (const int after_ms : {first_ms, second_ms}) {
        ::usleep(static_cast<useconds_t>(after_ms) * 1000);
        run.agent.tell(Order::send, link.number, 5);
      }
    });
    const time_t whole = limit.tv_sec;
    const int got = ::recvmmsg(link.fd, some, 2, 0, &limit);
    call(what, got);
    link.received += got > 0 ? 5 * static_cast<std::uint64_t>(got) : 0;
    const bool none = limit.tv_sec == 0 && limit.tv_nsec == 0;
    note("left %s", none ? "nothing" : limit.tv_sec < whole ? "a part" : "?");
    sender.join();
    note("the rest %d", link.receive(got == 2 ? 0 : 5));
  };
  receive("the first message is late", {0, 50'000'000}, 150, 300);
  receive("both are early", {5, 0}, 30, 30);
  timespec bad{0, 2'000'000'000};
  call("a bad limit", ::recvmmsg(link.fd, some, 2, MSG_DONTWAIT, &bad));
  bad = {-1, 0};
  call("a negative one", ::recvmmsg(link.fd, some, 2, MSG_DONTWAIT, &bad));
  timespec none{};
  call("no time, nothing there", ::recvmmsg(link.fd, some, 2, MSG_DONTWAIT, &none));
}

CASE(options, buffers, "SO_RCVBUF and SO_SNDBUF are kept; transfers go on") {
  Link link = run.warm();
  call("RCVBUF", set(link.fd, SOL_SOCKET, SO_RCVBUF, 20'000));
  call("SNDBUF", set(link.fd, SOL_SOCKET, SO_SNDBUF, 20'000));
  note("RCVBUF %d SNDBUF %d", get(link.fd, SOL_SOCKET, SO_RCVBUF), get(link.fd, SOL_SOCKET, SO_SNDBUF));
  run.agent.begin(Order::receive, link.number, 1 << 20);
  note("sent %d", link.send(1 << 20));
  note("peer verified %d", static_cast<int>(run.agent.end().result));
}

CASE(options, low_water, "SO_RCVLOWAT: receiving and polling wait for so much, the end overrules it") {
  Link link = run.warm();
  char in[64];
  call("LOWAT 10", set(link.fd, SOL_SOCKET, SO_RCVLOWAT, 10));
  note("LOWAT %d", get(link.fd, SOL_SOCKET, SO_RCVLOWAT));
  run.peer_sends(link, 5);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll, 5 of 10 there", ::poll(&entry, 1, 50));
  run.peer_sends(link, 5);
  call("poll, 10 of 10 there", ::poll(&entry, 1, 1000));
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  run.agent.begin(Order::send, link.number, 10);
  call("recv of 10, waiting", ::recv(link.fd, in, sizeof in, 0), in);
  run.agent.end();
  run.peer_sends(link, 3);
  call("recv DONTWAIT, 3 of 10 there", ::recv(link.fd, in, sizeof in, MSG_DONTWAIT), in);
  run.peer_sends(link, 3);
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  call("poll, the end there", ::poll(&entry, 1, 1000));
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  call("LOWAT 0", set(link.fd, SOL_SOCKET, SO_RCVLOWAT, 0));
  note("LOWAT %d", get(link.fd, SOL_SOCKET, SO_RCVLOWAT));
  call("LOWAT -1", set(link.fd, SOL_SOCKET, SO_RCVLOWAT, -1));
}

CASE(options, low_water_much, "SO_RCVLOWAT of more than a ring holds") {
  constexpr int kMuch = 3'000'000;
  Link link = run.warm();
  set(link.fd, SOL_SOCKET, SO_RCVLOWAT, kMuch);
  run.agent.begin(Order::send, link.number, kMuch);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 5000));
  const int set_of_one = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {}};
  ::epoll_ctl(set_of_one, EPOLL_CTL_ADD, link.fd, &event);
  call("epoll_wait", ::epoll_wait(set_of_one, &event, 1, 5000));
  note("received %d", link.receive(kMuch));
  note("peer sent %d", static_cast<int>(run.agent.end().result));
  ::close(set_of_one);
}

CASE(options, low_water_of_listener, "SO_RCVLOWAT of a listener is its connections' too") {
  Link link = run.open_at([](int listener) { set(listener, SOL_SOCKET, SO_RCVLOWAT, 10); });
  char in[64];
  for (int i = 0; i < 40; ++i) {
    link.send(10);
    run.peer_receives(link, 10);
    run.agent.tell(Order::send, link.number, 10);
    if (!link.receive(10)) note("receiving failed");
  }
  note("LOWAT %d", get(link.fd, SOL_SOCKET, SO_RCVLOWAT));
  run.peer_sends(link, 5);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll, 5 of 10 there", ::poll(&entry, 1, 50));
  std::thread sender([&] {
    ::usleep(20'000);
    run.agent.tell(Order::send, link.number, 5);
  });
  call("poll, 10 of 10 there", ::poll(&entry, 1, 1000));
  sender.join();
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  run.agent.begin(Order::send, link.number, 10);
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  run.agent.end();
}

CASE(options, queues, "FIONREAD and SIOCOUTQ: what is unread, and that what was sent is delivered without being read") {
  Link link = run.warm();
  int bytes = -1;
  call("FIONREAD", ::ioctl(link.fd, FIONREAD, &bytes));
  note("%d bytes", bytes);
  run.peer_sends(link, 100);
  run.peer_sends(link, 70'000);
  call("FIONREAD", ::ioctl(link.fd, FIONREAD, &bytes));
  note("%d bytes", bytes);
  note("received %d", link.receive(50'000));
  call("FIONREAD", ::ioctl(link.fd, FIONREAD, &bytes));
  note("%d bytes", bytes);
  note("sent %d", link.send(5000));
  for (int i = 0; i < 1000 && ::ioctl(link.fd, SIOCOUTQ, &bytes) == 0 && bytes != 0; ++i) ::usleep(1000);
  note("SIOCOUTQ comes to %d", bytes);
  call("no such request", ::ioctl(link.fd, 0x12345, &bytes));
}

CASE(options, nonblocking, "O_NONBLOCK on and off by fcntl, ioctl and accept4, at any time") {
  Link link = run.warm();
  char in[64];
  int on = 1, off = 0;
  call("F_SETFL", ::fcntl(link.fd, F_SETFL, O_NONBLOCK));
  call("recv", ::recv(link.fd, in, 1, 0));
  call("F_SETFL", ::fcntl(link.fd, F_SETFL, 0));
  run.agent.begin(Order::send, link.number, 10);
  call("recv", ::recv(link.fd, in, 10, MSG_WAITALL), in);
  run.agent.end();
  call("FIONBIO", ::ioctl(link.fd, FIONBIO, &on));
  call("recv", ::recv(link.fd, in, 1, 0));
  note("O_NONBLOCK %d", (::fcntl(link.fd, F_GETFL) & O_NONBLOCK) != 0);
  std::vector<char> much(std::size_t{1} << 20);
  ssize_t sent;
  std::size_t total = 0;
  while ((sent = ::send(link.fd, much.data(), much.size(), 0)) > 0) total += static_cast<std::size_t>(sent);
  call("send until it is full", sent);
  note("something was taken: %d", total > 0);
  call("FIONBIO", ::ioctl(link.fd, FIONBIO, &off));
  note("O_NONBLOCK %d", (::fcntl(link.fd, F_GETFL) & O_NONBLOCK) != 0);
  const int copy = ::dup(link.fd);
  ::fcntl(copy, F_SETFL, O_NONBLOCK);
  call("recv, set by a duplicate", ::recv(link.fd, in, 1, 0));
}

CASE(options, signal_driven, "O_ASYNC: SIGIO for every arrival") {
  struct sigaction action {};
  action.sa_handler = on_io;
  ::sigaction(SIGIO, &action, nullptr);
  Link link = run.warm();
  ::fcntl(link.fd, F_SETOWN, ::getpid());
  call("O_ASYNC", ::fcntl(link.fd, F_SETFL, O_ASYNC | O_NONBLOCK));
  char in[64];
  for (int i = 0; i < 3; ++i) {
    const int before = io_signals;
    run.peer_sends(link, 10);
    for (int wait = 0; wait < 1000 && io_signals == before; ++wait) ::usleep(1000);
    note("a signal came: %d", io_signals > before);
    ssize_t got;
    while ((got = ::recv(link.fd, in, 10, 0)) < 0 && errno == EINTR) {
    }
    call("recv", got, in);
  }
}

CASE(options, zerocopy, "SO_ZEROCOPY: completions come on the error queue") {
  Link link = run.warm();
  if (set(link.fd, SOL_SOCKET, SO_ZEROCOPY, 1) != 0) return note("no SO_ZEROCOPY here");
  std::vector<char> much(40'000);
  fill(much.data(), much.size(), link.sent);
  call("send ZEROCOPY", ::send(link.fd, much.data(), much.size(), MSG_ZEROCOPY));
  run.peer_receives(link, 40'000);
  pollfd entry{link.fd, 0, 0};
  call("poll for the completion", ::poll(&entry, 1, 1000));
  char control[128];
  msghdr message{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  call("recvmsg ERRQUEUE", ::recvmsg(link.fd, &message, MSG_ERRQUEUE));
  note("it has a control message: %d", message.msg_controllen > 0);
}
