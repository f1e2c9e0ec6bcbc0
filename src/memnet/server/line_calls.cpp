// Calls that are answered: what a program asks for once in a socket's life.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <cerrno>

#include "memnet/server/line.hpp"
#include "memnet/server/worker.hpp"

namespace viaduct::memnet {

namespace {

constexpr std::uint32_t kStreamEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

struct Option {
  int level, name;
  bool may_set;
};

// Options whose values mean the same in another process. Others hold pointers, descriptors, or reach beyond a socket.
constexpr Option kOptions[] = {
    {SOL_SOCKET, SO_REUSEADDR, true},
    {SOL_SOCKET, SO_REUSEPORT, true},
    {SOL_SOCKET, SO_KEEPALIVE, true},
    {SOL_SOCKET, SO_LINGER, true},
    {SOL_SOCKET, SO_SNDBUF, true},
    {SOL_SOCKET, SO_RCVBUF, true},
    {SOL_SOCKET, SO_DONTROUTE, true},
    {SOL_SOCKET, SO_OOBINLINE, true},
    {SOL_SOCKET, SO_PRIORITY, true},
    {SOL_SOCKET, SO_RCVTIMEO, true},
    {SOL_SOCKET, SO_SNDTIMEO, true},
    {SOL_SOCKET, SO_ERROR, false},
    {SOL_SOCKET, SO_TYPE, false},
    {SOL_SOCKET, SO_DOMAIN, false},
    {SOL_SOCKET, SO_PROTOCOL, false},
    {SOL_SOCKET, SO_ACCEPTCONN, false},
    {IPPROTO_TCP, TCP_NODELAY, true},
    {IPPROTO_TCP, TCP_CORK, true},
    {IPPROTO_TCP, TCP_KEEPIDLE, true},
    {IPPROTO_TCP, TCP_KEEPINTVL, true},
    {IPPROTO_TCP, TCP_KEEPCNT, true},
    {IPPROTO_TCP, TCP_SYNCNT, true},
    {IPPROTO_TCP, TCP_LINGER2, true},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, true},
    {IPPROTO_TCP, TCP_QUICKACK, true},
    {IPPROTO_TCP, TCP_MAXSEG, true},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, true},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, true},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP, true},
    {IPPROTO_TCP, TCP_CONGESTION, true},
    {IPPROTO_TCP, TCP_INFO, false},
    {IPPROTO_IP, IP_TOS, true},
    {IPPROTO_IP, IP_TTL, true},
    {IPPROTO_IPV6, IPV6_V6ONLY, true},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, true},
    {IPPROTO_IPV6, IPV6_TCLASS, true},
};

bool known(int level, int name, bool to_set) {
  for (const Option& one : kOptions)
    if (one.level == level && one.name == name) return one.may_set || !to_set;
  return false;
}

}  // namespace

bool Line::add_to_epoll(ServedSocket& socket, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &socket;
  return ::epoll_ctl(worker_->epoll(), EPOLL_CTL_ADD, socket.fd.get(), &event) == 0;
}

void Line::make(std::uint32_t number, const MakeWords& words) {
  if ((number & kAcceptedBit) != 0 || number > own_.size() || (number < own_.size() && own_[number] != nullptr))
    return break_off("make: that number is not free");
  if (number == own_.size()) own_.emplace_back();
  if (words.family != AF_INET && words.family != AF_INET6) return reply(words.request, EAFNOSUPPORT);
  if ((words.type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM) return reply(words.request, ESOCKTNOSUPPORT);
  if (words.protocol != 0 && words.protocol != IPPROTO_TCP) return reply(words.request, EPROTONOSUPPORT);
  if (worker_->stopping() || !worker_->has_room_for_socket()) return reply(words.request, EMFILE);
  Fd fd(::socket(words.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return reply(words.request, errno);
  own_[number] = std::make_unique<ServedSocket>(*this, number, std::move(fd));
  own_[number]->family = words.family;
  ++count_;
  worker_->count_socket(1);
  reply(words.request, 0);
}

void Line::bind(ServedSocket& socket, const AddressWords& words) {
  if (!words.address.sane()) return break_off("bind: the address is too long");
  const sockaddr_storage address = words.address.storage();
  const bool ours = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  if (ours && !worker_->policy().allows(Policy::What::bind, address)) return reply(words.request, EACCES);
  const int result = ::bind(socket.fd.get(), reinterpret_cast<const sockaddr*>(&address), words.address.length);
  reply(words.request, result == 0 ? 0 : errno);
}

void Line::listen(ServedSocket& socket, const ListenWords& words) {
  if (::listen(socket.fd.get(), words.backlog) != 0) return reply(words.request, errno);
  if (!socket.listening && !add_to_epoll(socket, EPOLLIN | EPOLLET)) return reply(words.request, errno);
  socket.listening = true;
  reply(words.request, 0);
}

void Line::connect(ServedSocket& socket, const AddressWords& words) {
  if (!words.address.sane()) return break_off("connect: the address is too long");
  if (socket.connecting) return reply(words.request, EALREADY);
  const sockaddr_storage address = words.address.storage();
  const bool ours = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  if (ours && !worker_->policy().allows(Policy::What::connect, address)) return reply(words.request, EACCES);
  const auto attempt = [&] {
    return ::connect(socket.fd.get(), reinterpret_cast<const sockaddr*>(&address), words.address.length);
  };
  int result = attempt();
  // The first call after a failure that was told otherwise only clears that away.
  if (result != 0 && errno == ECONNABORTED && std::exchange(socket.failed_to_connect, false)) result = attempt();
  if (result != 0 && errno != EINPROGRESS) return reply(words.request, errno);
  socket.connecting = true;
  socket.connect_request = words.request;
  socket.writable = socket.readable = socket.hung_up = false;
  // A second attempt finds it there already; a change makes the kernel say what it knows.
  epoll_event event{};
  event.events = kStreamEvents;
  event.data.ptr = &socket;
  if (!add_to_epoll(socket, kStreamEvents)) (void)::epoll_ctl(worker_->epoll(), EPOLL_CTL_MOD, socket.fd.get(), &event);
}

void Line::connected(ServedSocket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  socket.connecting = false;
  if (error == 0) {
    worker_->counts().connected.add();
    socket.readable = true;
  } else {
    socket.readable = socket.hung_up = false;
    socket.failed_to_connect = true;
  }
  reply(socket.connect_request, error);
  if (error != 0) return;
  if (!socket.sends.empty()) pump_sends(*worker_, socket);
  pump_receives(socket);
}

void Line::shut_down(ServedSocket& socket, const ShutdownWords& words) {
  const bool waits = (words.how == SHUT_WR || words.how == SHUT_RDWR) && !socket.sends.empty();
  if (!waits) {
    const int result = ::shutdown(socket.fd.get(), words.how);
    reply(words.request, result == 0 ? 0 : errno);
  } else {
    socket.shut_after_sends = true;
    const int result = words.how == SHUT_RDWR ? ::shutdown(socket.fd.get(), SHUT_RD) : 0;
    reply(words.request, result == 0 ? 0 : errno);
  }
  if (words.how == SHUT_WR || socket.listening) return;
  socket.readable = socket.hung_up = true;
  pump_receives(socket);
}

void Line::get_option(ServedSocket& socket, const OptionWords& words) {
  std::byte value[kMostOption];
  auto length = static_cast<socklen_t>(std::min<std::size_t>(words.length, sizeof value));
  if (!known(words.level, words.name, false)) return reply(words.request, ENOPROTOOPT);
  if (::getsockopt(socket.fd.get(), words.level, words.name, value, &length) != 0) return reply(words.request, errno);
  reply(words.request, 0, {value, length});
}

void Line::set_option(ServedSocket& socket, const OptionWords& words, std::span<const std::byte> value) {
  std::byte copy[kMostOption];
  if (words.length > value.size() || words.length > sizeof copy) return break_off("set_option: the value is too long");
  if (!known(words.level, words.name, true)) return reply(words.request, ENOPROTOOPT);
  std::memcpy(copy, value.data(), words.length);
  const int result = ::setsockopt(socket.fd.get(), words.level, words.name, copy, words.length);
  reply(words.request, result == 0 ? 0 : errno);
}

void Line::name(ServedSocket& socket, const NameWords& words) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  const int result =
      words.peer != 0 ? ::getpeername(socket.fd.get(), to, &length) : ::getsockname(socket.fd.get(), to, &length);
  if (result != 0) return reply(words.request, errno);
  const WireAddress wire = WireAddress::of(to, length);
  reply(words.request, 0, std::as_bytes(std::span(&wire, 1)));
}

}  // namespace viaduct::memnet
