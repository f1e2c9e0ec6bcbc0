// Addresses that are used again.
#include <arpa/inet.h>
#include <netinet/in.h>
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
