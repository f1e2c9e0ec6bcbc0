// Connecting, accepting, and how connections end.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

namespace {

// Both ends in this process, used by turns until they are where they will stay.
void ping_pong(int a, int b, int rounds) {
  char byte = 'x';
  for (int i = 0; i < rounds; ++i) {
    if (::send(a, &byte, 1, 0) != 1 || ::recv(b, &byte, 1, 0) != 1 || ::send(b, &byte, 1, 0) != 1 ||
        ::recv(a, &byte, 1, 0) != 1)
      note("ping-pong failed: %s", strerrorname_np(errno));
  }
}

void note_error(int fd) {
  int error = -1;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  note("SO_ERROR %s", error == 0 ? "none" : strerrorname_np(error));
}

void note_poll(int fd, short events = POLLIN | POLLOUT | POLLRDHUP) {
  pollfd entry{fd, events, 0};
  ::poll(&entry, 1, 1000);
  note("poll says %s", poll_bits(static_cast<unsigned>(entry.revents)).c_str());
}

volatile sig_atomic_t pipes_broken = 0;
void on_pipe(int) {
  pipes_broken = pipes_broken + 1;
}

}  // namespace

CASE(life, connect_before_accept, "one thread connects, sends, and only then accepts its own connection") {
  int port = 0;
  const int listener = listening(AF_INET, port);
  bool ok;
  const int a = connect_to(AF_INET, port, ok);
  note("connected: %d", ok);
  call("send before accept", ::send(a, "early", 5, 0));
  const int b = ::accept(listener, nullptr, nullptr);
  char in[16];
  call("recv", ::recv(b, in, sizeof in, 0), in);
  ping_pong(a, b, 50);
  const bool ring = on_ring() >= 1;
  note("as fast as it should be: %s", ring || !run.expects_ring() ? "yes" : "no");
  call("send", ::send(b, "answer", 6, 0));
  call("close", ::close(b));
  call("recv", ::recv(a, in, sizeof in, 0), in);
  call("recv the end", ::recv(a, in, sizeof in, 0));
}

CASE(life, nonblocking_connect, "connect with SOCK_NONBLOCK: EINPROGRESS, poll, SO_ERROR; and one that is refused") {
  int port = 0;
  const int listener = listening(AF_INET, port);
  const int a = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in name{AF_INET, htons(static_cast<std::uint16_t>(port)), {htonl(INADDR_LOOPBACK)}, {}};
  call("connect", ::connect(a, reinterpret_cast<sockaddr*>(&name), sizeof name));
  note_poll(a, POLLOUT);
  note_error(a);
  call("connect again", ::connect(a, reinterpret_cast<sockaddr*>(&name), sizeof name));
  call("and again", ::connect(a, reinterpret_cast<sockaddr*>(&name), sizeof name));
  const int b = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
  char in[8];
  call("recv, nothing yet", ::recv(b, in, sizeof in, 0));
  note("flags %d", ::fcntl(b, F_GETFL) & O_NONBLOCK ? 1 : 0);
  call("accept4, nobody", ::fcntl(listener, F_SETFL, O_NONBLOCK) == 0 ? ::accept4(listener, nullptr, nullptr, 0) : -2);
  ::close(listener);
  const int c = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  call("connect to nobody", ::connect(c, reinterpret_cast<sockaddr*>(&name), sizeof name));
  note_poll(c);
  note_error(c);
  call("send", ::send(c, "x", 1, MSG_NOSIGNAL));
  bool ok;
  const int d = connect_to(AF_INET, port, ok);
  note("blocking connect to nobody: %d %s", ok, strerrorname_np(errno));
  ::close(d);
  call("send, never connected", ::send(::socket(AF_INET, SOCK_STREAM, 0), "x", 1, MSG_NOSIGNAL));
  call("recv, never connected", ::recv(::socket(AF_INET, SOCK_STREAM, 0), in, 1, 0));
}

CASE(life, reconnect, "connect with AF_UNSPEC takes a connection apart; the socket is used again") {
  Link link = run.warm();
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  call("connect AF_UNSPEC", ::connect(link.fd, &none, sizeof none));
  run.peer_says("peer receives", Order::receive_once, link, 10, 0);
  char in[8];
  call("recv", ::recv(link.fd, in, 1, MSG_DONTWAIT));
  int port = 0;
  const int listener = listening(AF_INET, port);
  sockaddr_in name{AF_INET, htons(static_cast<std::uint16_t>(port)), {htonl(INADDR_LOOPBACK)}, {}};
  call("connect elsewhere", ::connect(link.fd, reinterpret_cast<sockaddr*>(&name), sizeof name));
  const int other = ::accept(listener, nullptr, nullptr);
  ping_pong(link.fd, other, 30);
  call("send", ::send(link.fd, "hello", 5, 0));
  call("recv", ::recv(other, in, sizeof in, 0), in);
}

CASE(life, ipv6, "the same over IPv6") {
  for (const Opening opening : {Opening::connect, Opening::accept}) {
    Link link = run.warm(opening, AF_INET6);
    char in[8];
    note("sent: %d", link.send(1000));
    run.peer_receives(link, 1000);
    run.peer_sends(link, 1000);
    note("received: %d", link.receive(1000));
    run.peer_says("peer closes", Order::close, link);
    call("recv the end", ::recv(link.fd, in, 1, 0));
  }
}

CASE(life, accept_from_threads, "four threads accept from one listener and serve one connection each") {
  int port = 0;
  const int listener = listening(AF_INET, port);
  std::vector<std::thread> servers;
  for (int i = 0; i < 4; ++i)
    servers.emplace_back([listener] {
      const int fd = ::accept(listener, nullptr, nullptr);
      char byte;
      while (::recv(fd, &byte, 1, 0) == 1) ::send(fd, &byte, 1, 0);
      ::close(fd);
    });
  int good = 0;
  for (int i = 0; i < 4; ++i) {
    bool ok;
    const int fd = connect_to(AF_INET, port, ok);
    char byte = 'a';
    int rounds = 0;
    while (rounds < 60 && ::send(fd, &byte, 1, 0) == 1 && ::recv(fd, &byte, 1, 0) == 1) ++rounds;
    good += rounds == 60;
    ::close(fd);
  }
  for (auto& server : servers) server.join();
  note("good connections: %d", good);
}

CASE(life, prefork, "children forked after listen() accept; SO_REUSEPORT listeners in children as well") {
  int port = 0;
  const int listener = listening(AF_INET, port);
  std::vector<int> children;
  for (int i = 0; i < 3; ++i)
    children.push_back(spawn_child(
        [](void* argument) {
          const int fd = ::accept(*static_cast<int*>(argument), nullptr, nullptr);
          char byte;
          while (::recv(fd, &byte, 1, 0) == 1) ::send(fd, &byte, 1, 0);
        },
        const_cast<int*>(&listener)));
  int good = 0, ring = 0;
  for (int i = 0; i < 3; ++i) {
    bool ok;
    const int fd = connect_to(AF_INET, port, ok);
    char byte = 'a';
    int rounds = 0;
    while (rounds < 60 && ::send(fd, &byte, 1, 0) == 1 && ::recv(fd, &byte, 1, 0) == 1) ++rounds;
    good += rounds == 60;
    ring += on_ring();
    ::close(fd);
  }
  for (const int child : children) note_exit("child", child);
  note("good connections: %d", good);
  note("as fast as they should be: %s", ring >= 3 || !run.expects_ring() ? "yes" : "no");
}

CASE(life, inherited_listener, "a program that was started with a listener among its descriptors accepts from it") {
  int port = 0;
  const int listener = listening(AF_INET, port);
  const std::string number = std::to_string(listener);
  const int child = spawn_child(
      [](void* argument) {
        ::execl(own_program, own_program, "--accept", static_cast<const char*>(argument), "61", nullptr);
        ::_exit(9);
      },
      const_cast<char*>(number.c_str()));
  bool ok;
  const int fd = connect_to(AF_INET, port, ok);
  char byte = 'a';
  int rounds = 0;
  while (rounds < 60 && ::send(fd, &byte, 1, 0) == 1 && ::recv(fd, &byte, 1, 0) == 1) ++rounds;
  note("good rounds: %d", rounds);
  note("as fast as it should be: %s", on_ring() >= 1 || !run.expects_ring() ? "yes" : "no");
  call("send", ::send(fd, "x", 1, 0));
  note_exit("child", child);
  call("recv", ::recv(fd, &byte, 1, 0), &byte);
  call("recv the end", ::recv(fd, &byte, 1, 0));
}

CASE(life, reuseport, "two SO_REUSEPORT listeners in two children") {
  const int first = ::socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  ::setsockopt(first, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
  sockaddr_in name{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  ::bind(first, reinterpret_cast<sockaddr*>(&name), sizeof name);
  socklen_t size = sizeof name;
  ::getsockname(first, reinterpret_cast<sockaddr*>(&name), &size);
  int ready[2];
  if (::pipe(ready) != 0) return;
  struct Arguments {
    sockaddr_in name;
    int ready;
  } arguments{name, ready[1]};
  std::vector<int> children;
  for (int i = 0; i < 2; ++i)
    children.push_back(spawn_child(
        [](void* given) {
          const auto& [where, told] = *static_cast<Arguments*>(given);
          const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
          const int yes = 1;
          ::setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
          if (::bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 || ::listen(fd, 16) != 0)
            ::_exit(1);
          if (::write(told, "x", 1) != 1) ::_exit(2);
          for (;;) {
            const int accepted = ::accept(fd, nullptr, nullptr);
            char byte;
            while (::recv(accepted, &byte, 1, 0) == 1) ::send(accepted, &byte, 1, 0);
            ::close(accepted);
          }
        },
        &arguments));
  char bytes[2];
  for (int got = 0; got < 2;) got += static_cast<int>(::read(ready[0], bytes, 1));
  int good = 0;
  for (int i = 0; i < 8; ++i) {
    bool ok;
    const int fd = connect_to(AF_INET, ntohs(name.sin_port), ok);
    char byte = 'a';
    int rounds = 0;
    while (rounds < 30 && ::send(fd, &byte, 1, 0) == 1 && ::recv(fd, &byte, 1, 0) == 1) ++rounds;
    good += rounds == 30;
    ::close(fd);
  }
  note("good connections: %d", good);
  for (const int child : children) ::kill(child, SIGKILL), note_exit("child", child);
}

CASE(life, close_on_first_bytes, "close with unread bytes, the first that the peer has ever sent: a reset") {
  Link link = run.open();
  for (int i = 0; i < 40; ++i) {
    link.send(10);
    run.peer_receives(link, 10);
  }
  run.agent.tell(Order::send, link.number, 100);
  ::close(link.fd);
  ::usleep(20'000);
  run.peer_says("peer sends", Order::send_once, link, 10, MSG_NOSIGNAL);
  run.peer_says("peer sends again", Order::send_once, link, 10, MSG_NOSIGNAL);
}

CASE(life, shutdown_write, "shutdown of the sending half: the peer reads all and the end, and goes on sending") {
  Link link = run.warm();
  note("sent: %d", link.send(5000));
  call("shutdown", ::shutdown(link.fd, SHUT_WR));
  call("send after it", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
  note_poll(link.fd);
  run.peer_sends(link, 100'000);
  note("received: %d", link.receive(100'000));
  run.peer_says("peer closes", Order::close, link);
  char in[4];
  call("recv the end", ::recv(link.fd, in, 1, 0));
  note_poll(link.fd);
  call("shutdown again", ::shutdown(link.fd, SHUT_WR));
}

CASE(life, half_closed_answer, "a request, shutdown, and an answer of 4 MB from a peer that does not block") {
  Link link = run.warm();
  note("request: %d", link.send(100));
  call("shutdown", ::shutdown(link.fd, SHUT_WR));
  run.peer_says("peer reads the request", Order::receive_to_end, link);
  run.agent.begin(Order::send, link.number, 4 << 20);
  note("answer: %d", link.receive(4 << 20));
  run.agent.end();
}

CASE(life, half_closed_request,
     "the peer has shut down its sending: 4 MB to it without blocking, by epoll and by poll") {
  for (const bool by_poll : {false, true}) {
    Link link = run.warm();
    ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
    run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
    const int set = ::epoll_create1(0);
    epoll_event event{};
    event.events = EPOLLOUT;
    ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
    constexpr std::size_t kBytes = std::size_t{4} << 20;
    run.agent.begin(Order::receive, link.number, kBytes);
    std::vector<char> buffer(70'000);
    std::size_t sent = 0;
    while (sent < kBytes) {
      const std::size_t size = std::min(buffer.size(), kBytes - sent);
      fill(buffer.data(), size, link.sent);
      const ssize_t now = ::send(link.fd, buffer.data(), size, MSG_NOSIGNAL);
      if (now > 0) {
        sent += static_cast<std::size_t>(now);
        link.sent += static_cast<std::uint64_t>(now);
        continue;
      }
      pollfd entry{link.fd, POLLOUT, 0};
      if (errno != EAGAIN || (by_poll ? ::poll(&entry, 1, 3000) : ::epoll_wait(set, &event, 1, 3000)) != 1) break;
    }
    note("sent %zu, peer verified %d", sent, static_cast<int>(run.agent.end().result));
    ::close(set);
  }
}

CASE(life, shutdown_read, "shutdown of the receiving half, with and without bytes unread, and bytes of ours underway") {
  Link link = run.warm();
  char in[64];
  note("sent, not read by the peer: %d", link.send(50));
  run.peer_sends(link, 30);
  call("shutdown", ::shutdown(link.fd, SHUT_RD));
  call("recv what was there", ::recv(link.fd, in, sizeof in, 0), in);
  call("recv", ::recv(link.fd, in, sizeof in, 0));
  note_poll(link.fd, POLLIN | POLLRDHUP);
  call("send", ::send(link.fd, "x", 1, 0));
  run.peer_says("peer receives", Order::receive_once, link, 100, 0);
}

CASE(life, shutdown_both, "shutdown of both halves, then close") {
  Link link = run.warm();
  char in[8];
  note("sent: %d", link.send(10));
  call("shutdown", ::shutdown(link.fd, SHUT_RDWR));
  call("recv", ::recv(link.fd, in, 1, 0));
  call("send", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  note_poll(link.fd);
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
  run.peer_says("peer sends", Order::send_once, link, 5);
  run.peer_says("peer sends again", Order::send_once, link, 5);
}

CASE(life, peer_closes, "the peer sends and closes: bytes, the end, then EPIPE at the second send") {
  Link link = run.warm();
  char in[64];
  run.peer_sends(link, 40);
  run.peer_says("peer closes", Order::close, link);
  note_poll(link.fd);
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  call("recv the end", ::recv(link.fd, in, sizeof in, 0));
  call("recv the end again", ::recv(link.fd, in, sizeof in, 0));
  call("send", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  call("send again", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  note_poll(link.fd);
  note_error(link.fd);
}

CASE(life, sigpipe, "SIGPIPE where MSG_NOSIGNAL does not forbid it, for every sending call") {
  struct sigaction action {};
  action.sa_handler = on_pipe;
  ::sigaction(SIGPIPE, &action, nullptr);
  Link link = run.warm();
  run.peer_says("peer closes", Order::close, link);
  call("send", ::send(link.fd, "x", 1, 0));
  const iovec piece{const_cast<char*>("x"), 1};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(&piece);
  message.msg_iovlen = 1;
  call("send", ::send(link.fd, "x", 1, 0));
  note("signals %d", static_cast<int>(pipes_broken));
  call("write", ::write(link.fd, "x", 1));
  note("signals %d", static_cast<int>(pipes_broken));
  call("writev", ::writev(link.fd, &piece, 1));
  note("signals %d", static_cast<int>(pipes_broken));
  call("sendmsg", ::sendmsg(link.fd, &message, 0));
  note("signals %d", static_cast<int>(pipes_broken));
  call("sendmsg NOSIGNAL", ::sendmsg(link.fd, &message, MSG_NOSIGNAL));
  note("signals %d", static_cast<int>(pipes_broken));
  Link other = run.warm();
  ::shutdown(other.fd, SHUT_WR);
  call("write after our own shutdown", ::write(other.fd, "x", 1));
  note("signals %d", static_cast<int>(pipes_broken));
}

CASE(life, reset_by_unread, "close with unread bytes resets: the peer reads what came, then ECONNRESET, then EPIPE") {
  Link link = run.warm();
  note("sent, not read: %d", link.send(100));
  run.peer_sends(link, 30);
  run.peer_says("peer closes", Order::close, link);
  note_poll(link.fd);
  char in[64];
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  call("recv", ::recv(link.fd, in, sizeof in, 0));
  call("recv", ::recv(link.fd, in, sizeof in, 0));
  call("send", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  note_error(link.fd);
  Link other = run.warm();
  note("sent, not read: %d", other.send(100));
  run.peer_says("peer closes", Order::close, other);
  call("send", ::send(other.fd, "x", 1, MSG_NOSIGNAL));
  call("send", ::send(other.fd, "x", 1, MSG_NOSIGNAL));
  Link third = run.warm();
  run.peer_sends(third, 10);
  call("close with unread bytes", ::close(third.fd));
  run.peer_says("peer receives", Order::receive_once, third, 10, 0);
  run.peer_says("peer sends", Order::send_once, third, 10, 0);
}

CASE(life, linger_zero, "SO_LINGER of no time resets; SO_ERROR tells it") {
  Link link = run.warm();
  run.peer_sends(link, 30);
  run.peer_says("peer resets", Order::abort, link);
  char in[64];
  note_poll(link.fd);
  note_error(link.fd);
  note_error(link.fd);
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  call("recv", ::recv(link.fd, in, sizeof in, 0));
  call("send", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  Link other = run.warm();
  const linger some{1, 2};
  call("setsockopt", ::setsockopt(other.fd, SOL_SOCKET, SO_LINGER, &some, sizeof some));
  note("sent: %d", other.send(3000));
  call("close", ::close(other.fd));
  run.peer_says("peer receives to the end", Order::receive_to_end, other);
}

CASE(life, close_then_peer_reads, "close right after sending: everything arrives, then the end") {
  Link link = run.warm();
  note("sent: %d", link.send(200'000));
  call("close", ::close(link.fd));
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
  Link quick = run.open();
  note("sent: %d", quick.send(10));
  call("close", ::close(quick.fd));
  run.peer_says("peer receives to the end", Order::receive_to_end, quick);
}

CASE(life, peer_killed, "a peer that is killed: the end, or a reset where it had bytes unread") {
  if (!run.agent.is_process()) return skip();
  Link quiet = run.warm(), unread = run.warm(), asleep = run.warm(), watched = run.warm(), asked = run.warm();
  for (Link* link : {&unread, &watched, &asked})
    if (!link->send(100)) note("send failed");
  const int set = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  ::epoll_ctl(set, EPOLL_CTL_ADD, watched.fd, &event);
  char in[8];
  ssize_t woken = -2;
  std::thread sleeper([&] { woken = ::recv(asleep.fd, in, 1, 0); });
  run.agent.kill();
  sleeper.join();
  note("read the end: %zd", ::recv(quiet.fd, in, 1, 0));
  call("send behind the end", ::send(quiet.fd, "x", 1, MSG_NOSIGNAL));
  ::usleep(20'000);
  call("send again", ::send(quiet.fd, "x", 1, MSG_NOSIGNAL));
  const ssize_t got = ::recv(unread.fd, in, 1, 0);
  note("reset: %s", got < 0 ? strerrorname_np(errno) : "no");
  note("woken: %zd", woken);
  const auto sees = [&](const char* what, int fd) {
    pollfd entry{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    ::poll(&entry, 1, 0);
    note("%s: poll says %s", what, poll_bits(static_cast<unsigned>(entry.revents)).c_str());
  };
  sees("reset and told", unread.fd);
  call("send after that", ::send(unread.fd, "x", 1, MSG_NOSIGNAL));
  call("epoll_wait", ::epoll_wait(set, &event, 1, 1000));
  note("%s", poll_bits(event.events).c_str());
  call("recv", ::recv(watched.fd, in, 1, 0));
  call("recv again", ::recv(watched.fd, in, 1, 0));
  sees("reset", asked.fd);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(asked.fd, SOL_SOCKET, SO_ERROR, &error, &size);
  note("SO_ERROR %s", strerrorname_np(error));
  sees("reset and asked", asked.fd);
  call("send", ::send(asked.fd, "x", 1, MSG_NOSIGNAL));
  call("recv", ::recv(asked.fd, in, 1, 0));
  ::close(set);
}
