// Addresses that are used again.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

namespace {

// Connects twice from one port: `rounds` round trips, then a reset; and a longer time, every byte looked at.
int caller_with_one_port(int port, int own_port, int rounds) {
  for (const bool again : {false, true}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const int one = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(static_cast<std::uint16_t>(own_port));
    if (::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) return 2;
    name.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) return 3;
    for (int i = 0; i < (again ? 80 : rounds); ++i) {
      char byte = static_cast<char>(i), back = 0;
      if (::send(fd, &byte, 1, MSG_NOSIGNAL) != 1) return 4;
      if (::recv(fd, &back, 1, 0) != 1 || back != byte) return 5;
      if (again) ::usleep(1000);
    }
    const linger reset{1, 0};
    if (!again) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    ::close(fd);
  }
  return 0;
}

}  // namespace

CASE(life, addresses_again,
     "a connection was reset, one with the same addresses is there, the old descriptor still held") {
  for (int rounds = 2; rounds < 7; ++rounds) {
    int port = 0, own_port = 0;
    const int listener = listening(AF_INET, port);
    while (own_port < port) ::close(listening(AF_INET, own_port));
    const pid_t caller = ::fork();
    if (caller == 0) ::_exit(caller_with_one_port(port, own_port, rounds));
    const auto echo = [](int fd) {
      char byte;
      return ::recv(fd, &byte, 1, 0) == 1 && ::send(fd, &byte, 1, MSG_NOSIGNAL) == 1;
    };
    const int old = ::accept(listener, nullptr, nullptr);
    for (int i = 0; i < rounds; ++i)
      if (!echo(old)) note("the first did not last");
    const int now = ::accept(listener, nullptr, nullptr);
    std::thread server([&] {
      while (echo(now)) {
      }
      ::close(now);
    });
    for (int i = 0; i < 3; ++i) {
      ::usleep(20'000);
      call("send on the old one", ::send(old, "?", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    note_exit("caller", caller);
    server.join();
    ::close(old);
    ::close(listener);
  }
}

CASE(life, socket_again_in_sets, "connect with AF_UNSPEC, and to somebody else: the socket stays in its epoll sets") {
  Link link = run.warm();
  const int level = ::epoll_create1(0), once = ::epoll_create1(0);
  for (const auto& [set, events] : {std::pair{level, 0U}, {once, static_cast<unsigned>(EPOLLONESHOT)}}) {
    epoll_event event{.events = EPOLLIN | events, .data = {.u64 = 7}};
    call("add", ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event));
  }
  const auto wait = [](const char* what, int set, int limit) {
    epoll_event event{};
    const int told = ::epoll_wait(set, &event, 1, limit);
    if (told != 1) return note("%s: %d", what, told);
    note("%s: %d, events %x, data %d", what, told, event.events, static_cast<int>(event.data.u64));
  };
  run.peer_sends(link, 1);
  wait("level", level, 1000);
  wait("once", once, 1000);
  note("received: %d", link.receive(1));
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  call("connect AF_UNSPEC", ::connect(link.fd, &none, sizeof none));
  wait("level, of nothing", level, 0);
  wait("once, of nothing", once, 0);
  int port = 0;
  const int listener = listening(AF_INET, port);
  sockaddr_in name{AF_INET, htons(static_cast<std::uint16_t>(port)), {htonl(INADDR_LOOPBACK)}, {}};
  call("connect elsewhere", ::connect(link.fd, reinterpret_cast<sockaddr*>(&name), sizeof name));
  const int other = ::accept(listener, nullptr, nullptr);
  wait("level, before", level, 20);
  char in[4];
  for (int i = 0; i < 20; ++i) {
    if (::send(other, "x", 1, 0) != 1) note("send failed");
    wait("level", level, 1000);
    if (::recv(link.fd, in, sizeof in, 0) != 1) note("recv failed");
    if (::send(link.fd, "y", 1, 0) != 1 || ::recv(other, in, sizeof in, 0) != 1) note("answer failed");
  }
  wait("once, fired before", once, 20);
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 8}};
  call("mod", ::epoll_ctl(once, EPOLL_CTL_MOD, link.fd, &event));
  call("send", ::send(other, "x", 1, 0));
  wait("once again", once, 1000);
  call("delete", ::epoll_ctl(level, EPOLL_CTL_DEL, link.fd, nullptr));
  wait("level, deleted", level, 20);
  for (const int fd : {level, once, other, listener, link.fd}) ::close(fd);
}
