// Doorbells that come when their bytes were read long ago, to whoever waits for a connection: by itself, in a set, for
// that set, or for one around it. Nobody is told of anything, and of what comes then everybody is.
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdio>
#include <iterator>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

enum class Order : char { ring, ring_soon, send };

// As a process does that was kept waiting between its message and its doorbell.
int ring_late(int fd) {
  const StreamOf stream(::getpid());
  if (!stream) return std::fprintf(stderr, "torture: the connection is on no ring\n"), 1;
  for (int side = 0; side < 2; ++side)
    if (stream->end[side].pid.load() == ::getpid()) stream->direction[side].path.rung.fetch_add(1);
  // The C library's own, which knows nothing of rings.
  void* const libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  const auto over_tcp = libc != nullptr ? reinterpret_cast<decltype(&::send)>(::dlsym(libc, "send")) : nullptr;
  return over_tcp != nullptr && over_tcp(fd, "!", 1, MSG_NOSIGNAL) == 1 ? 0 : complain("a bell");
}

int obey(int fd, int orders, int done) {
  if (!warm(fd, true)) return complain("warm");
  for (Order order; ::read(orders, &order, 1) == 1;) {
    if (order == Order::ring_soon && (::write(done, "", 1) != 1 || ::usleep(5000) != 0)) return complain("soon");
    if (order == Order::send ? ::send(fd, "x", 1, MSG_NOSIGNAL) != 1 : ring_late(fd) != 0) return complain("send");
    if (order != Order::ring_soon && ::write(done, "", 1) != 1) return complain("done");
  }
  return 0;
}

struct Watched {
  int fd, inner, outer;
};

int poll_for(int fd, int ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, ms);
}

int wait_in(int set, int ms) {
  epoll_event event{};
  return ::epoll_wait(set, &event, 1, ms);
}

int watch(int fd, int orders, int done) {
  if (!warm(fd, false)) return complain("warm");
  const Watched watched{fd, ::epoll_create1(0), ::epoll_create1(0)};
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(watched.inner, EPOLL_CTL_ADD, fd, &event) != 0 ||
      ::epoll_ctl(watched.outer, EPOLL_CTL_ADD, watched.inner, &event) != 0)
    return complain("epoll_ctl");
  const auto order = [&](Order what) {
    char byte;
    return ::write(orders, &what, 1) == 1 && ::read(done, &byte, 1) == 1;
  };
  using Way = int (*)(const Watched&, int ms);
  constexpr Way kWays[] = {[](const Watched& all, int ms) { return wait_in(all.outer, ms); },
                           [](const Watched& all, int ms) { return poll_for(all.inner, ms); },
                           [](const Watched& all, int ms) { return poll_for(all.outer, ms); },
                           [](const Watched& all, int ms) { return wait_in(all.inner, ms); },
                           [](const Watched& all, int ms) { return poll_for(all.fd, ms); }};
  for (int i = 0; i < static_cast<int>(std::size(kWays)); ++i)
    for (const Order late : {Order::ring, Order::ring_soon}) {
      if (!order(late)) return complain("order");
      if (const int told = kWays[i](watched, 20); told != 0)
        return std::fprintf(stderr, "torture: way %d told %d for a bell (%d)\n", i, told, static_cast<int>(late)), 1;
      if (!order(Order::send)) return complain("order");
      char byte = 0;
      if (kWays[i](watched, 3000) != 1) return std::fprintf(stderr, "torture: way %d told of nothing\n", i), 1;
      if (::recv(fd, &byte, 1, MSG_DONTWAIT) != 1 || byte != 'x') return complain("what was sent");
      if (const int told = kWays[i](watched, 0); told != 0)
        return std::fprintf(stderr, "torture: way %d told %d of what was read\n", i, told), 1;
    }
  return 0;
}

}  // namespace

int late(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const Pair pair = make_pair();
    int orders[2], done[2], gate[2];
    if (::pipe(orders) != 0 || ::pipe(done) != 0 || ::pipe(gate) != 0) return complain("pipe");
    char byte;
    // For as long as we hold the sockets as well, they stay on TCP.
    const pid_t sender = start(pair, true, [&](int fd) {
      ::close(orders[1]);
      return ::read(gate[0], &byte, 1) == 1 ? obey(fd, orders[0], done[1]) : complain("begin");
    });
    const pid_t receiver = start(pair, false, [&](int fd) {
      return ::read(gate[0], &byte, 1) == 1 ? watch(fd, orders[1], done[0]) : complain("begin");
    });
    for (const int fd : {pair.client, pair.server, orders[0], orders[1], done[0], done[1]}) ::close(fd);
    if (::write(gate[1], "!!", 2) != 2) return complain("begin");
    for (const int fd : {gate[0], gate[1]}) ::close(fd);
    const int watched = wait_for(receiver), sent = wait_for(sender);
    if (watched != 0 || sent != 0)
      return std::fprintf(stderr, "torture: late: sender %d, receiver %d\n", sent, watched), 1;
  }
  return 0;
}

}  // namespace viaduct::sockets::torture
