// A connection goes back to TCP with more unread than TCP's buffers hold; one whose ends are in different PID
// namespaces, as those of containers are; and one that is asked from outside to go back, with bytes unread, and then
// passed on. Every number comes, in order.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "sockets/pass_descriptor.hpp"
#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr std::size_t kMost = std::size_t{8} << 20;
constexpr std::uint64_t kMoreThanTcpHolds = std::uint64_t{1} << 20;  // with the largest buffer here

// What the buffers are now they stay: on other machines nobody may have larger ones.
bool keep_buffers() {
  const auto keep = [](std::uint32_t option) {
    return refuse(SYS_setsockopt, EPERM, {{.which = 1, .value = SOL_SOCKET}, {.which = 2, .value = option}});
  };
  return keep(SO_SNDBUF) && keep(SO_SNDBUFFORCE);
}

std::vector<std::uint32_t> make_numbers() {
  std::vector<std::uint32_t> numbers(kMost / sizeof(std::uint32_t));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i);
  return numbers;
}

// 0: what came is what was sent.
int compare(std::uint64_t sent, const std::vector<unsigned char>& all, std::uint64_t received) {
  std::uint64_t right = 0;
  while (right < received && all[right] == static_cast<unsigned char>((right / 4) >> (right % 4 * 8))) ++right;
  if (received == sent && right == received) return 0;
  std::fprintf(stderr, "torture: %" PRIu64 " bytes were sent, %" PRIu64 " came, the first %" PRIu64 " are right\n",
               sent, received, right);
  return 1;
}

// As much as there is room for, at least so much, which it tells; then it waits to be asked for the end.
int send_numbers(int fd, int tell, int buffer, std::uint64_t least) {
  if (!warm(fd, true)) return complain("warm");
  if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) != 0) return complain("SO_SNDBUF");
  if (!keep_buffers()) return kSkipped;
  const std::vector<std::uint32_t> numbers = make_numbers();
  const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
  std::uint64_t sent = 0;
  for (ssize_t now; sent < kMost; sent += static_cast<std::uint64_t>(now)) {
    now = ::send(fd, bytes + sent, std::min<std::size_t>(kMost - sent, 65536), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now <= 0) break;
  }
  if (sent < least) return std::fprintf(stderr, "torture: room for %" PRIu64 " bytes only\n", sent), 1;
  if (::write(tell, &sent, sizeof sent) != sizeof sent) return complain("write");
  char byte;
  if (::recv(fd, &byte, 1, 0) != 1) return complain("the request");
  if (::shutdown(fd, SHUT_WR) != 0) return complain("shutdown");
  return ::recv(fd, &byte, 1, 0) == 0 ? 0 : complain("the receiver's end");
}

int receive_numbers(int fd, int told) {
  if (!warm(fd, false)) return complain("warm");
  std::uint64_t sent = 0;
  if (::read(told, &sent, sizeof sent) != sizeof sent) return complain("read");
  ::signal(SIGIO, SIG_IGN);
  if (::fcntl(fd, F_SETFL, O_ASYNC) != 0) return complain("fcntl");  // which the kernel does, on TCP
  if (::send(fd, "!", 1, MSG_NOSIGNAL) != 1) return complain("send");
  std::vector<unsigned char> all(kMost);
  std::uint64_t received = 0;
  for (ssize_t now; received < kMost; received += static_cast<std::uint64_t>(now))
    if (now = ::recv(fd, &all[received], std::min<std::size_t>(kMost - received, 65536), 0); now <= 0) break;
  return compare(sent, all, received);
}

int outcome(const char* what, pid_t sender, pid_t receiver) {
  const int sent = wait_for(sender);
  if (sent == kSkipped) ::kill(receiver, SIGKILL);  // nobody comes
  const int received = wait_for(receiver);
  if (sent == kSkipped || received == kSkipped) return kSkipped;
  if (sent == 0 && received == 0) return 0;
  return std::fprintf(stderr, "torture: %s: sender %d, receiver %d\n", what, sent, received), 1;
}

// ---- asked

constexpr std::size_t kMore = 400;

struct Asked {
  std::size_t size;    // of what is unread when it is asked
  bool fills = false;  // then as much is sent as there is room for, and the other direction has gone back before
};

bool wait_at(int pipe) {
  char byte;
  return ::read(pipe, &byte, 1) == 1;
}
bool let_go_on(int pipe) {
  return ::write(pipe, "!", 1) == 1;
}

// Nobody says that there is, and who waits for it sleeps.
bool has_no_room(int fd) {
  constexpr int kMs = 20;
  const auto used_ms = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
  };
  const double before = used_ms();
  pollfd room{fd, POLLOUT, 0};
  return ::poll(&room, 1, kMs) == 0 && used_ms() - before < kMs / 2;
}

int send_twice(int fd, const Asked& asked, int tell, int told) {
  constexpr int kSmall = 16'384;
  if (!warm(fd, true)) return complain("warm");
  if (asked.size > kMoreThanTcpHolds) {
    if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSmall, sizeof kSmall) != 0) return complain("SO_SNDBUF");
    if (!keep_buffers()) return kSkipped;
  }
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // who gives its end away while we sleep helps himself
  const std::vector<std::uint32_t> numbers = make_numbers();
  const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
  std::uint64_t sent = 0;
  const auto send = [&](std::size_t most, int flags) {
    const ssize_t now = ::send(fd, bytes + sent, std::min(most, kMost - sent), MSG_NOSIGNAL | flags);
    if (now > 0) sent += static_cast<std::uint64_t>(now);
    return now > 0;
  };
  if (!send(asked.size, 0) || sent != asked.size || !let_go_on(tell)) return complain("send");
  if (!wait_at(told)) return complain("the request");
  if (asked.size > kMoreThanTcpHolds && !has_no_room(fd)) return complain("no room for who is to leave the ring");
  if (!asked.fills && !send(kMore, 0)) return complain("send again");
  while (asked.fills && send(60'000, MSG_DONTWAIT)) {
  }
  if (asked.fills && errno != EAGAIN) return complain("send until it is full");
  if (asked.fills && !has_no_room(fd)) return complain("there is room, and there is none");
  if (::write(tell, &sent, sizeof sent) != sizeof sent) return complain("write");
  char byte = 0;
  ssize_t got;
  while ((got = ::recv(fd, &byte, 1, 0)) == 1) {
  }
  return got == 0 ? 0 : complain("the receiver's end");
}

int ask_and_pass_on(int fd, const Asked& asked, int tell, int told) {
  if (!warm(fd, false) || !wait_at(told)) return complain("warm");
  {
    const StreamOf stream(::getpid());
    if (!stream) return std::fprintf(stderr, "torture: the connection is on no ring\n"), 1;
    for (End& end : stream->end) end.request.fetch_or(kHandBack);
  }
  if (asked.fills && ::send(fd, "!", 1, MSG_NOSIGNAL) != 1) return complain("send");
  std::uint64_t sent = 0;
  if (!let_go_on(tell) || ::read(told, &sent, sizeof sent) != sizeof sent) return complain("the sender");
  int over[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, over) != 0 || !pass_descriptor(over[0], fd)) return complain("pass");
  const int passed = take_descriptor(over[1]);
  ::close(fd);
  const timeval limit{3, 0};
  if (::setsockopt(passed, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) return complain("setsockopt");
  std::vector<unsigned char> all(sent);
  std::uint64_t received = 0;
  for (ssize_t now; received < all.size(); received += static_cast<std::uint64_t>(now))
    if (now = ::recv(passed, &all[received], all.size() - received, 0); now <= 0) break;
  return compare(sent, all, received);
}

// ---- namespaces

// Root may; anybody else with a user namespace around it, in which he is who he was.
bool enter_processes_of_our_own() {
  if (::unshare(CLONE_NEWPID) == 0) return true;
  const std::string user = std::to_string(::getuid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return false;
  return static_cast<bool>(std::ofstream("/proc/self/uid_map") << user << " " << user << " 1" << std::flush);
}

// A number that no process of this namespace has: who looks for it here finds nobody.
pid_t unused_number() {
  pid_t number = 20;
  while (::kill(number, 0) == 0 || errno != ESRCH) ++number;
  return number;
}

template <class Body>
int run_as_number(pid_t number, Body body) {
  const pid_t first = ::fork();
  if (first != 0) return wait_for(first);
  for (;;) {
    const pid_t next = ::fork();
    if (next == 0) {
      ::alarm(kHangSeconds);
      ::_exit(::getpid() == number ? body() : 0);
    }
    const int code = wait_for(next);
    if (next >= number) ::_exit(next == number ? code : kSkipped);
  }
}

int connect_and_send(const sockaddr_in& name, int tell) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) return complain("connect");
  return send_numbers(fd, tell, 16'384, 0);
}

}  // namespace

int asked(int rounds) {
  for (int i = 0; i < rounds; ++i)
    for (const Asked& asked :
         {Asked{4}, Asked{60}, Asked{5000}, Asked{100'000}, Asked{1'500'000}, Asked{1'500'000, true}}) {
      const Pair pair = make_pair();
      int there[2], back[2], gate[2];
      if (::pipe(there) != 0 || ::pipe(back) != 0 || ::pipe(gate) != 0) return complain("pipe");
      // For as long as we hold the sockets as well, they stay on TCP.
      const pid_t sender = start(pair, true, [&](int fd) {
        return wait_at(gate[0]) ? send_twice(fd, asked, there[1], back[0]) : complain("begin");
      });
      const pid_t receiver = start(pair, false, [&](int fd) {
        return wait_at(gate[0]) ? ask_and_pass_on(fd, asked, back[1], there[0]) : complain("begin");
      });
      for (const int fd : {pair.client, pair.server}) ::close(fd);
      if (!let_go_on(gate[1]) || !let_go_on(gate[1])) return complain("begin");
      for (const int* const pipe : {there, back, gate})
        for (const int end : {0, 1}) ::close(pipe[end]);
      if (const int code = outcome("asked", sender, receiver); code != 0) return code;
    }
  return 0;
}

int unread(int rounds) {
  for (int i = 0; i < rounds; ++i)
    for (const int buffer : {16'384, 212'992}) {
      const Pair pair = make_pair();
      int pipe[2], gate[2];
      if (::pipe(pipe) != 0 || ::pipe(gate) != 0) return complain("pipe");
      // For as long as we hold the sockets as well, they stay on TCP.
      const pid_t sender = start(pair, true, [&](int fd) {
        return wait_at(gate[0]) ? send_numbers(fd, pipe[1], buffer, kMoreThanTcpHolds) : complain("begin");
      });
      const pid_t receiver = start(
          pair, false, [&](int fd) { return wait_at(gate[0]) ? receive_numbers(fd, pipe[0]) : complain("begin"); });
      for (const int fd : {pair.client, pair.server}) ::close(fd);
      if (!let_go_on(gate[1]) || !let_go_on(gate[1])) return complain("begin");
      for (const int fd : {pipe[0], pipe[1], gate[0], gate[1]}) ::close(fd);
      if (const int code = outcome("unread", sender, receiver); code != 0) return code;
    }
  return 0;
}

int namespaces(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
    socklen_t size = sizeof name;
    int pipe[2];
    if (::bind(listener, reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size) != 0 || ::pipe(pipe) != 0)
      return complain("listen");
    const pid_t number = unused_number();
    const pid_t sender = start({}, true, [&](int) {
      if (!enter_processes_of_our_own()) return complain("no PID namespace of our own"), kSkipped;
      return run_as_number(number, [&] { return connect_and_send(name, pipe[1]); });
    });
    const pid_t receiver =
        start({}, false, [&](int) { return receive_numbers(::accept(listener, nullptr, nullptr), pipe[0]); });
    for (const int fd : {listener, pipe[0], pipe[1]}) ::close(fd);
    if (const int code = outcome("in another PID namespace", sender, receiver); code != 0) return code;
  }
  return 0;
}

}  // namespace viaduct::sockets::torture
