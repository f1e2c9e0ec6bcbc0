// The side that listens: echoes, swallows streams, and answers short visits.
#pragma once

#include <sys/epoll.h>

#include <vector>

#include "bench/plain_sockets/socket.hpp"

namespace plain {

class Server {
 public:
  Server(const std::string& where, Way way) : way_(way), buffer_(1 << 20) {
    Address address = Address::parse(where);
    family_ = address.family();
    listener_ = ::socket(family_, SOCK_STREAM, 0);
    const int on = 1;
    if (family_ == AF_INET) (void)::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener_ < 0 || ::bind(listener_, address.get(), address.length) != 0 || ::listen(listener_, 1024) != 0)
      fail("listen");
    if (::getsockname(listener_, address.get(), &address.length) != 0) fail("getsockname");
    if (way_ == Way::epoll && (epoll_ = ::epoll_create1(0)) < 0) fail("epoll_create1");
    std::printf("%d\n", family_ == AF_INET ? address.port() : 0);
    std::fflush(stdout);
  }

  // So many more connections, each of which then carries a message there and back so many times.
  void accept(std::size_t count, int exchanges) {
    const std::size_t first = connections_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const int fd = accept_one();
      prepare(fd, family_, way_);
      connections_.push_back(fd);
      epoll_event event{EPOLLIN, {.fd = fd}};
      if (way_ == Way::epoll && ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
    }
    for (int exchange = 0; exchange < exchanges; ++exchange)
      for (std::size_t i = first; i < connections_.size(); ++i) {
        receive_whole(connections_[i], buffer_.data(), 8);
        send_all(connections_[i], buffer_.data(), 8);
      }
  }

  void echo(std::size_t size, long count) {
    if (way_ == Way::epoll) return echo_where_ready(size, count);
    for (; count > 0; --count) {
      receive_whole(connections_[0], buffer_.data(), size);
      send_all(connections_[0], buffer_.data(), size);
    }
  }

  // Reads `at_once` bytes per call until all have come, and says so with one byte.
  void swallow(unsigned long bytes, std::size_t at_once) {
    while (bytes > 0) {
      const std::size_t part = at_once < bytes ? at_once : bytes;
      const ssize_t n = ::recv(connections_[0], buffer_.data(), part, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) fail("recv");
      if (n > 0) bytes -= static_cast<unsigned long>(n);
    }
    send_all(connections_[0], "k", 1);
  }

  void answer_visits(long count, std::size_t size) {
    for (; count > 0; --count) {
      const int fd = accept_one();
      prepare(fd, family_, way_);
      receive_whole(fd, buffer_.data(), size);
      send_all(fd, buffer_.data(), size);
      if (receive_all(fd, buffer_.data(), 1)) fail("more than a request came");
      ::close(fd);
    }
  }

 private:
  int accept_one() {
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0) fail("accept");
    return fd;
  }

  void echo_where_ready(std::size_t size, long count) {
    epoll_event events[64];
    while (count > 0) {
      const int ready = ::epoll_wait(epoll_, events, 64, -1);
      if (ready < 0 && errno != EINTR) fail("epoll_wait");
      for (int i = 0; i < ready; ++i, --count) {
        receive_whole(events[i].data.fd, buffer_.data(), size);
        send_all(events[i].data.fd, buffer_.data(), size);
      }
    }
  }

  Way way_;
  int family_ = 0;
  int listener_ = -1;
  int epoll_ = -1;
  std::vector<int> connections_;
  std::vector<char> buffer_;
};

}  // namespace plain
