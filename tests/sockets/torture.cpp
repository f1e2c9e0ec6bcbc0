// sockets-torture: what goes wrong on purpose, meant to run under libviaduct-sockets.so. Everything that arrives is
// verified; exit code 0 means that nothing was lost, nothing hung and nobody crashed.
//
//   sockets-torture
//   kill|mix|leave|family|stopped|torn|crowd|pool|waiters|reopen|storm|row|idle|hostile|giga|asked|late|limit|
//   unread|namespaces|nofile|no-memfd|no-memory|no-proc ROUNDS [SEED]
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "torture.hpp"

namespace {

using namespace viaduct::sockets;
using namespace viaduct::sockets::torture;

// ---- the exchange: both directions at once, in every way that programs have

class Exchange {
 public:
  Exchange(int fd, bool client, std::uint64_t out, std::uint64_t in, unsigned seed)
      : fd_(fd), own_(client ? 1 : 2), their_(client ? 2 : 1), out_(out), in_(in), random_(seed), buffer_(kMost) {}

  // 0: everything went and came. 2: the connection ended early, and all that came was right. 1: wrong.
  int run() {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd_, &event);
    while (sent_ < out_ || received_ < in_) {
      if (chance(10)) ::fcntl(fd_, F_SETFL, chance(2) ? O_NONBLOCK : 0);
      if (chance(200)) ::usleep(random_() % 3000);
      if (sent_ < out_ && chance(2)) {
        if (const int ended = send_some()) return ended;
      }
      if (received_ < in_) {
        if (const int ended = receive_some()) return ended;
      } else if (sent_ < out_) {
        wait(POLLOUT, 20);
      }
    }
    ::close(epoll_);
    return 0;
  }
  std::uint64_t received() const { return received_; }

 private:
  static constexpr std::size_t kMost = std::size_t{200} << 10;
  bool chance(unsigned one_in) { return random_() % one_in == 0; }
  std::size_t some() {
    const std::size_t shift = random_() % 18;
    return 1 + random_() % (std::size_t{1} << shift);
  }

  int send_some() {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(some(), out_ - sent_));
    for (std::size_t i = 0; i < size; ++i) buffer_[i] = byte_at(own_, sent_ + i);
    const ssize_t now = ::send(fd_, buffer_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now < 0) return errno == EAGAIN ? 0 : errno == EPIPE || errno == ECONNRESET ? 2 : complain("send");
    sent_ += static_cast<std::uint64_t>(now);
    return 0;
  }

  int receive_some() {
    const bool patient = sent_ >= out_;
    const bool ready = wait(POLLIN, patient ? 4000 : 1);
    const bool block = ready && patient && chance(3);
    const ssize_t now = ::recv(fd_, buffer_.data(), some(), block ? 0 : MSG_DONTWAIT);
    if (patient && !ready && now > 0) return errno = 0, complain("bytes came, but nobody was woken");
    if (now == 0) return 2;
    if (now < 0) return errno == EAGAIN ? 0 : errno == ECONNRESET ? 2 : complain("recv");
    for (ssize_t i = 0; i < now; ++i)
      if (buffer_[static_cast<std::size_t>(i)] != byte_at(their_, received_ + static_cast<std::uint64_t>(i))) {
        std::fprintf(stderr, "torture: wrong byte at %" PRIu64 "\n", received_ + static_cast<std::uint64_t>(i));
        return 1;
      }
    received_ += static_cast<std::uint64_t>(now);
    return 0;
  }

  bool wait(short events, int ms) {
    pollfd entry{fd_, events, 0};
    epoll_event event;
    fd_set set;
    switch (random_() % 3) {
      case 0:
        return ::poll(&entry, 1, ms) > 0;
      case 1: {
        FD_ZERO(&set);
        FD_SET(fd_, &set);
        timeval time{0, ms * 1000};
        return ::select(fd_ + 1, events == POLLIN ? &set : nullptr, events == POLLOUT ? &set : nullptr, nullptr,
                        &time) > 0;
      }
      default:
        return events == POLLIN ? ::epoll_wait(epoll_, &event, 1, ms) > 0 : ::poll(&entry, 1, ms) > 0;
    }
  }

  int fd_, epoll_ = -1;
  int own_, their_;
  std::uint64_t out_, in_, sent_ = 0, received_ = 0;
  Random random_;
  std::vector<unsigned char> buffer_;
};

int whole_exchange(int fd, bool client, std::uint64_t bytes, unsigned seed) {
  if (!warm(fd, client)) return complain("warm");
  const int result = Exchange(fd, client, bytes, bytes, seed).run();
  if (result == 2) std::fprintf(stderr, "torture: ended early\n");
  return result;
}

// ---- modes

int kill_either(int rounds, unsigned seed) {
  Random random(seed);
  for (int i = 0; i < rounds; ++i) {
    const Pair pair = make_pair();
    const unsigned mine = random();
    const auto endless = [&](bool client) {
      return start(pair, client, [client, mine](int fd) {
        if (!warm(fd, client)) return 2;
        return Exchange(fd, client, UINT64_MAX / 2, UINT64_MAX / 2, mine + client).run();
      });
    };
    const pid_t client = endless(true), server = endless(false);
    ::close(pair.client);
    ::close(pair.server);
    ::usleep(random() % 8000);
    const bool first = random() % 2 == 0;
    ::kill(first ? client : server, SIGKILL);
    const int died = wait_for(first ? client : server);
    const int lived = wait_for(first ? server : client);
    if (died != 100 + SIGKILL || lived != 2)
      return std::fprintf(stderr, "torture: round %d: killed %d, the other %d\n", i, died, lived), 1;
  }
  return 0;
}

int mix(int rounds, unsigned seed) {
  Random random(seed);
  int handed_back = 0;
  for (int i = 0; i < rounds; ++i) {
    const Pair pair = make_pair();
    const unsigned mine = random();
    const std::uint64_t bytes = 1 + random() % (std::uint64_t{1} << (10 + random() % 12));
    const auto both = [&](bool client) {
      return start(pair, client, [=](int fd) { return whole_exchange(fd, client, bytes, mine + client); });
    };
    const pid_t client = both(true), server = both(false);
    ::close(pair.client);
    ::close(pair.server);
    ::usleep(random() % 6000);
    if (const StreamOf control(client); control && random() % 4 != 0) {
      ++handed_back;
      for (End& end : control->end)
        if (random() % 3 != 0) end.request.fetch_or(kHandBack);
    }
    const int one = wait_for(client), other = wait_for(server);
    if (one != 0 || other != 0)
      return std::fprintf(stderr, "torture: round %d of seed %u, %" PRIu64 " bytes: client %d, server %d\n", i, seed,
                          bytes, one, other),
             1;
  }
  std::fprintf(stderr, "torture: %d of %d were asked to go back\n", handed_back, rounds);
  return handed_back == 0 && rounds > 20 ? 1 : 0;
}

// A byte that only the kernel sees: the library would know syscall() as well.
void send_past_the_library([[maybe_unused]] int fd, [[maybe_unused]] const char& byte) {
#if defined(__x86_64__)
  long result = SYS_sendto;
  register long flags asm("r10") = MSG_DONTWAIT | MSG_NOSIGNAL;
  register long to asm("r8") = 0;
  register long length asm("r9") = 0;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(static_cast<long>(fd)), "S"(&byte), "d"(1L), "r"(flags), "r"(to), "r"(length)
               : "rcx", "r11", "memory");
#endif
}

// The peer writes what it likes into the memory it shares with us.
int hostile(int rounds, unsigned seed) {
  Random random(seed);
  int missed = 0;  // the connection was still on TCP: our own copies of its ends were closed late
  for (int i = 0; i < rounds; ++i) {
    const Pair pair = make_pair();
    const unsigned mine = random();
    const pid_t victim = start(pair, true, [mine](int fd) {
      if (!warm(fd, true)) return 0;
      const timeval limit{2, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      Random own(mine);
      std::vector<char> buffer(std::size_t{64} << 10);
      // What comes is the peer's affair; that we come back every time is ours.
      for (int k = 0; k < 3000; ++k) {
        pollfd entry{fd, POLLIN | POLLOUT, 0};
        ::poll(&entry, 1, 1);
        if (::send(fd, buffer.data(), 1 + own() % buffer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
          break;
        if (::recv(fd, buffer.data(), 1 + own() % buffer.size(), MSG_DONTWAIT) < 0 && errno != EAGAIN) break;
      }
      ::close(fd);
      return 0;
    });
    const pid_t attacker = start(pair, false, [mine](int fd) {
      if (!warm(fd, false)) return 0;
      const StreamOf control(::getpid());
      if (!control) return 3;
      Random own(mine + 1);
      auto* const words = reinterpret_cast<std::uint32_t*>(&*control);
      const char byte = 'h';
      for (int k = 0; k < 100'000; ++k) {
        const std::size_t where = own() % 3 == 0 ? own() % (sizeof(StreamControl) / 4) : own() % (kFirstCommitted / 4);
        words[where] = own() % 4 == 0 ? own() % 300 : own();
        if (k % 50 == 0) send_past_the_library(fd, byte);
      }
      ::_exit(0);
    });
    ::close(pair.client);
    ::close(pair.server);
    const int attack = wait_for(attacker), result = wait_for(victim);
    if (attack == 3) ++missed;
    if (result != 0)
      return std::fprintf(stderr, "torture: round %d of seed %u: the victim ended with %d\n", i, seed, result), 1;
  }
  if (missed > rounds / 2) return std::fprintf(stderr, "torture: there was nothing to attack\n"), 1;
  return 0;
}

// Short connections from many processes at once, of lengths around the one at which they are taken to the ring.
int storm(int rounds, unsigned seed) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  socklen_t size = sizeof name;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(listener, 128) != 0)
    return complain("listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
  // One process for each connection, as inetd does it.
  const pid_t server = ::fork();
  if (server == 0) {
    ::signal(SIGCHLD, SIG_IGN);
    for (;;) {
      const int fd = ::accept(listener, nullptr, nullptr);
      if (::fork() == 0) {
        ::alarm(kHangSeconds);
        char byte;
        while (::recv(fd, &byte, 1, 0) == 1) ::send(fd, &byte, 1, MSG_NOSIGNAL);
        ::_exit(0);
      }
      ::close(fd);
    }
  }
  std::vector<pid_t> clients;
  for (int c = 0; c < 4; ++c) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(kHangSeconds + 100);
      Random own(seed + static_cast<unsigned>(c));
      for (int i = 0; i < rounds; ++i) {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) ::_exit(complain("connect"));
        for (unsigned k = own() % 14; k != 0; --k) {
          char byte = static_cast<char>(own()), back = 0;
          if (::send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || ::recv(fd, &back, 1, 0) != 1 || back != byte)
            ::_exit(complain("echo"));
        }
        ::close(fd);
      }
      ::_exit(0);
    }
    clients.push_back(pid);
  }
  int failed = 0;
  for (const pid_t pid : clients) failed |= wait_for(pid);
  ::kill(server, SIGKILL);
  wait_for(server);
  return failed == 0 ? 0 : 1;
}

// Whatever is missing, connections work; two processes, as ever.
int without(int rounds, unsigned seed, bool (*take_away)()) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!take_away()) ::_exit(kSkipped);
    for (int i = 0; i < rounds; ++i) {
      const Pair pair = make_pair();
      if (pair.server < 0) ::_exit(complain("connect"));
      const auto both = [&](bool client) {
        return start(pair, client, [=](int fd) { return whole_exchange(fd, client, 300'000, seed + client); });
      };
      const pid_t client = both(true), server = both(false);
      ::close(pair.client);
      ::close(pair.server);
      if (wait_for(client) != 0 || wait_for(server) != 0) ::_exit(1);
    }
    ::_exit(0);
  }
  return wait_for(pid);
}

bool few_descriptors() {
  // As many as the exchange itself needs, and not one for the library.
  const int next = ::dup(0);
  ::close(next);
  const rlimit limit{static_cast<rlim_t>(next) + 4, static_cast<rlim_t>(next) + 4};
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool no_memfd() {
  return refuse(SYS_memfd_create, EPERM);
}

// None that is shared: the program's own stays as it is.
bool no_memory() {
  return refuse(SYS_mmap, ENOMEM, {{.which = 3, .value = MAP_SHARED, .among_others = true}});
}

bool no_proc() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWNS) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 2 ? arguments[1] : "";
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 0;
  const auto seed = static_cast<unsigned>(count > 3 ? std::atoi(arguments[3]) : 1);
  if (mode == "kill") return kill_either(rounds, seed);
  if (mode == "mix") return mix(rounds, seed);
  if (mode == "crowd") return crowd(rounds, seed);
  if (mode == "leave") return leave(rounds, seed);
  if (mode == "family") return family(rounds, seed);
  if (const bool passed = mode == "passed"; (passed || mode == "member") && count == 5)
    return family_member(rounds, static_cast<int>(seed), std::atoi(arguments[4]), passed);
  if (mode == "pool") return pool(rounds, seed);
  if (mode == "waiters") return waiters(rounds, seed);
  if (mode == "reopen") return reopen(rounds, seed);
  if (mode == "stopped") return stopped(rounds, seed);
  if (mode == "torn") return torn(rounds, seed);
  if (mode == "asked") return asked(rounds);
  if (mode == "late") return late(rounds);
  if (mode == "limit") return limit(rounds);  // hundreds of sockets
  if (mode == "unread") return unread(rounds);
  if (mode == "namespaces") return namespaces(rounds);
  if (mode == "giga") return hand_back_a_gigabyte(rounds, seed);
  if (mode == "hostile") return hostile(rounds, seed);
  if (mode == "storm") return storm(rounds, seed);
  if (mode == "row") return row(rounds);    // thousands of connections
  if (mode == "idle") return idle(rounds);  // hundreds
  if (mode == "nofile") return without(rounds, seed, few_descriptors);
  if (mode == "no-memfd") return without(rounds, seed, no_memfd);
  if (mode == "no-memory") return without(rounds, seed, no_memory);
  if (mode == "no-proc") return without(rounds, seed, no_proc);
  std::fprintf(
      stderr,
      "usage: %s kill|mix|leave|family|stopped|torn|crowd|pool|waiters|reopen|storm|row|idle|hostile|giga|asked|late|"
      "limit|unread|namespaces|nofile|no-memfd|no-memory|no-proc ROUNDS [SEED]\n",
      arguments[0]);
  return 2;
}
