#include "bench/web_load.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace viaduct::bench {

namespace {

constexpr int kBursts = 2, kPerBurst = 3;

class Load {
 public:
  Load(int port, const WebLoad& load) : load_(load), connections_(static_cast<std::size_t>(load.connections)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_.sin_port = htons(static_cast<std::uint16_t>(port));
    request_ = load.http11 ? fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", load.path)
                           : fmt::format("GET {} HTTP/1.0\r\n\r\n", load.path);
    if (load.http11) request_ = request_ + request_ + request_;
    epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  }

  Result<std::uint64_t> run(std::uint64_t for_ns) {
    const std::uint64_t end = Clock::steady().now_ns() + for_ns;
    for (std::size_t i = 0; i < connections_.size(); ++i) connect(i);
    while (fault_ == 0 && Clock::steady().now_ns() < end) {
      epoll_event events[64];
      const int count = ::epoll_wait(epoll_.get(), events, 64, 100);
      for (int i = 0; i < count; ++i) happened(events[i].data.u32);
    }
    if (fault_ != 0) return Error::from_code(fault_, "a web server that is measured");
    return answered_;
  }

 private:
  struct Connection {
    Fd fd;
    std::string in;
    int answers = 0;  // on this connection
  };

  void connect(std::size_t index) {
    Connection& connection = connections_[index];
    connection.fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connection.in.clear();
    connection.answers = 0;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(index);
    const int fd = connection.fd.get();
    const auto* const to = reinterpret_cast<const sockaddr*>(&address_);
    if (::connect(fd, to, sizeof address_) != 0 || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return void(fault_ = errno);
    ask(connection);
  }
  void ask(const Connection& connection) {
    if (::send(connection.fd.get(), request_.data(), request_.size(), MSG_NOSIGNAL) < 0) fault_ = errno;
  }
  // Takes whole answers off the front.
  static int take_answers(std::string& in) {
    int count = 0;
    for (;;) {
      const std::size_t head = in.find("\r\n\r\n");
      const std::size_t length = in.find("Content-Length: ");
      if (head == std::string::npos || length == std::string::npos || length > head) return count;
      const std::size_t whole = head + 4 + std::strtoul(in.c_str() + length + 16, nullptr, 10);
      if (in.size() < whole) return count;
      in.erase(0, whole);
      ++count;
    }
  }
  void happened(std::size_t index) {
    Connection& connection = connections_[index];
    const ssize_t got = ::recv(connection.fd.get(), bytes_, sizeof bytes_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return void(fault_ = errno);
    if (got == 0) {
      if (connection.answers == 0) return void(fault_ = ECONNRESET);
      return connect(index);
    }
    connection.in.append(bytes_, static_cast<std::size_t>(got));
    const int more = take_answers(connection.in);
    connection.answers += more;
    answered_ += static_cast<std::uint64_t>(more);
    if (!load_.http11 || more == 0) return;
    if (connection.answers == kBursts * kPerBurst) return connect(index);
    if (connection.answers % kPerBurst == 0) ask(connection);
  }

  const WebLoad load_;
  std::vector<Connection> connections_;
  sockaddr_in address_{};
  std::string request_;
  Fd epoll_;
  std::uint64_t answered_ = 0;
  int fault_ = 0;
  char bytes_[65536];
};

}  // namespace

Result<std::uint64_t> run_web_load(int port, const WebLoad& load, std::uint64_t for_ns) {
  return Load(port, load).run(for_ns);
}

}  // namespace viaduct::bench
