// The side that connects, asks and measures: nanoseconds each.
#pragma once

#include <time.h>

#include <vector>

#include "bench/plain_sockets/socket.hpp"

namespace plain {

class Client {
 public:
  Client(const std::string& where, Way way) : address_(Address::parse(where)), way_(way), buffer_(1 << 20) {}

  void connect(std::size_t count, int exchanges) {
    const std::size_t first = connections_.size();
    for (std::size_t i = 0; i < count; ++i) {
      connections_.push_back(connect_one());
      prepare(connections_.back(), address_.family(), way_);
    }
    for (int exchange = 0; exchange < exchanges; ++exchange) {
      for (std::size_t i = first; i < connections_.size(); ++i) send_all(connections_[i], buffer_.data(), 8);
      for (std::size_t i = first; i < connections_.size(); ++i) receive_whole(connections_[i], buffer_.data(), 8);
    }
  }

  double round_trip(std::size_t size, long count, long before) {
    ask(size, before);
    const double began = now();
    ask(size, count);
    return (now() - began) / static_cast<double>(count);
  }

  double per_message(std::size_t size, long count) {
    const double began = now();
    for (long i = 0; i < count; ++i) send_all(connections_[0], buffer_.data(), size);
    receive_whole(connections_[0], buffer_.data(), 1);
    return (now() - began) / static_cast<double>(count);
  }

  // Connect, request, response, close.
  double visit(long count, std::size_t size) {
    const double began = now();
    for (long i = 0; i < count; ++i) {
      const int fd = connect_one();
      prepare(fd, address_.family(), way_);
      send_all(fd, buffer_.data(), size);
      receive_whole(fd, buffer_.data(), size);
      ::close(fd);
    }
    return (now() - began) / static_cast<double>(count);
  }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  }

  int connect_one() {
    const int fd = ::socket(address_.family(), SOCK_STREAM, 0);
    if (fd < 0) fail("socket");
    if (::connect(fd, address_.get(), address_.length) != 0) fail("connect");
    return fd;
  }

  void ask(std::size_t size, long count) {
    for (; count > 0; --count) {
      send_all(connections_[0], buffer_.data(), size);
      receive_whole(connections_[0], buffer_.data(), size);
    }
  }

  Address address_;
  Way way_;
  std::vector<int> connections_;
  std::vector<char> buffer_;
};

}  // namespace plain
