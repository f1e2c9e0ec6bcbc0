// Kernel sockets: epoll, edge-triggered, one thread.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "server.hpp"

namespace memnet_web {

namespace {

struct Connection {
  std::string in;
  std::deque<Answer> out;
  std::size_t sent = 0;  // of the first
  bool over = false;     // nothing more is read
};

class Server {
 public:
  Server(const Site& site, int epoll) : site_(site), epoll_(epoll) {}

  void add(int fd) {
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return (void)::close(fd);
    connections_[fd];
  }
  void happened(int fd) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    if (read(fd, found->second) && write(fd, found->second)) return;
    connections_.erase(found);
    ::close(fd);
  }

 private:
  bool read(int fd, Connection& connection) {
    char bytes[16384];
    while (!connection.over) {
      const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
      if (got < 0 && errno == EAGAIN) break;
      if (got < 0) return false;
      if (got == 0) connection.over = true;
      connection.in.append(bytes, static_cast<std::size_t>(got));
      take_requests(connection);
      if (static_cast<std::size_t>(got) < sizeof bytes && got > 0) break;
    }
    return true;
  }
  void take_requests(Connection& connection) {
    std::size_t at = 0;
    for (bool more = true; more;) {
      std::size_t used = 0;
      Answer answer;
      switch (answer_first(std::string_view(connection.in).substr(at), site_, used, answer)) {
        case Parsed::more:
          more = false;
          break;
        case Parsed::nonsense:
          used = connection.in.size() - at;
          [[fallthrough]];
        case Parsed::answer:
          at += used;
          more = !answer.close;
          connection.over = connection.over || answer.close;
          connection.out.push_back(std::move(answer));
      }
    }
    connection.in.erase(0, at);
  }
  // False: the connection is over.
  static bool write(int fd, Connection& connection) {
    while (!connection.out.empty()) {
      Answer& first = connection.out.front();
      iovec pieces[2];
      int count = 0;
      const std::size_t in_head = std::min(connection.sent, first.head.size());
      const std::size_t in_body = connection.sent - in_head;
      if (in_head < first.head.size()) pieces[count++] = {first.head.data() + in_head, first.head.size() - in_head};
      if (in_body < first.length) pieces[count++] = {const_cast<char*>(first.body) + in_body, first.length - in_body};
      msghdr message{};
      message.msg_iov = pieces;
      message.msg_iovlen = static_cast<std::size_t>(count);
      const bool more = connection.out.size() > 1;
      const ssize_t put = count == 0 ? 0 : ::sendmsg(fd, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
      if (put < 0) return errno == EAGAIN;
      connection.sent += static_cast<std::size_t>(put);
      if (connection.sent < first.head.size() + first.length) continue;
      if (first.close) return false;
      connection.out.pop_front();
      connection.sent = 0;
    }
    return !connection.over;
  }

  const Site& site_;
  const int epoll_;
  std::unordered_map<int, Connection> connections_;
};

}  // namespace

std::string serve_kernel(const Options& options, const Site& site, const bool& stopped,
                         const std::function<void(std::uint16_t)>& ready) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (::inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1) return "the address is no IPv4 address";
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  (void)::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, name, length) != 0 || ::listen(listener, 1024) != 0 ||
      ::getsockname(listener, name, &length) != 0)
    return std::strerror(errno);
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0) return std::strerror(errno);
  ready(ntohs(address.sin_port));
  Server server(site, epoll);
  while (!stopped) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll, events, 64, 1000);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd != listener) {
        server.happened(events[i].data.fd);
        continue;
      }
      for (int fd; (fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) server.add(fd);
    }
  }
  ::close(epoll);
  ::close(listener);
  return "";
}

}  // namespace memnet_web
