// Asking a server of the text kind again and again over many connections, with epoll: a request each, the next one when
// the whole answer has come.
#pragma once

#include <sys/epoll.h>
#include <time.h>

#include <vector>

#include "bench/plain_sockets/socket.hpp"

namespace plain {

// Requests per second, of so many milliseconds.
inline double load(const std::string& where, int connections, const std::string& request, std::size_t answer_size,
                   double milliseconds) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
  };
  struct Connection {
    int fd;
    std::size_t missing;
  };
  Address address = Address::parse(where);
  const int epoll = ::epoll_create1(0);
  std::vector<Connection> all(static_cast<std::size_t>(connections));
  for (Connection& each : all) {
    each = {::socket(address.family(), SOCK_STREAM, 0), answer_size};
    if (::connect(each.fd, address.get(), address.length) != 0) fail("connect");
    prepare(each.fd, address.family(), Way::spinning);
    epoll_event event{EPOLLIN, {.ptr = &each}};
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, each.fd, &event) != 0) fail("epoll_ctl");
    send_all(each.fd, request.data(), request.size());
  }
  std::vector<char> answer(answer_size);
  std::vector<epoll_event> events(all.size());
  double began = 0, ended = 0;
  long answers = 0;
  const long before = 20L * connections;  // not counted: connections are young, caches cold
  for (double until = now() + milliseconds; ended < until || answers <= before;) {
    const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      auto& each = *static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
      const ssize_t n = ::recv(each.fd, answer.data(), each.missing, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) fail("recv");
      if (n <= 0 || (each.missing -= static_cast<std::size_t>(n)) > 0) continue;
      each.missing = answer_size;
      send_all(each.fd, request.data(), request.size());
      if (++answers == before) until = (began = now()) + milliseconds;
    }
    ended = now();
  }
  return static_cast<double>(answers - before) / (ended - began) * 1e3;
}

}  // namespace plain
