// The other end of a case's connections.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

namespace {

constexpr int kMostLinks = 512;

struct End {
  int listener = -1;
  Link link;
};

class Obedient {
 public:
  explicit Obedient(int control) : control_(control), ends_(kMostLinks) {}

  void serve() {
    for (Command command; ::read(control_, &command, sizeof command) == static_cast<ssize_t>(sizeof command);) {
      if (command.order == Order::quit) break;
      errno = 0;
      digest_ = 0;
      Answer answer{};
      answer.result = obey(command, ends_[static_cast<std::size_t>(command.link % kMostLinks)]);
      answer.error = errno;
      answer.digest = digest_;
      if (::write(control_, &answer, sizeof answer) != static_cast<ssize_t>(sizeof answer)) break;
    }
    for (const End& end : ends_)
      if (end.link.fd >= 0) ::close(end.link.fd);
  }

 private:
  std::int64_t obey(const Command& command, End& end) {
    const int fd = end.link.fd;
    switch (command.order) {
      case Order::listen: {
        int port = -1;
        end.listener = listening(static_cast<int>(command.a), port);
        return port;
      }
      case Order::accept:
        end.link.fd = ::accept(end.listener, nullptr, nullptr);
        ::close(end.listener);
        return at_once(end.link.fd);
      case Order::connect: {
        bool ok;
        end.link.fd = connect_to(static_cast<int>(command.a), static_cast<int>(command.b), ok);
        return ok ? at_once(end.link.fd) : -1;
      }
      case Order::send:
        return end.link.send(static_cast<std::size_t>(command.a)) ? command.a : -1;
      case Order::receive:
        return end.link.receive(static_cast<std::size_t>(command.a)) ? command.a : -1;
      case Order::receive_once:
        return receive_once(end, command);
      case Order::send_once:
        return send_once(end, command);
      case Order::receive_to_end:
        return receive_to_end(end, 0);
      case Order::receive_slowly:
        return receive_to_end(end, static_cast<unsigned>(command.a));
      case Order::echo:
        return echo(end, command.a);
      case Order::shutdown:
        return ::shutdown(fd, static_cast<int>(command.a));
      case Order::close: {
        const int closed = ::close(fd);
        end.link = {};
        return closed;
      }
      case Order::abort: {
        const linger reset{1, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        const int closed = ::close(fd);
        end.link = {};
        return closed;
      }
      case Order::option: {
        const int value = static_cast<int>(command.c);
        return ::setsockopt(fd, static_cast<int>(command.a), static_cast<int>(command.b), &value, sizeof value);
      }
      case Order::start_plain_program:
        start_plain_program();
        return 0;
      case Order::nonblocking:
        return ::fcntl(fd, F_SETFL, command.a != 0 ? O_NONBLOCK : 0);
      case Order::quit:
        break;
    }
    return -1;
  }

  // What the agent sent has arrived when it says so.
  static std::int64_t at_once(int fd) {
    const int one = 1;
    return ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  std::int64_t receive_once(End& end, const Command& command) {
    std::vector<char> data(static_cast<std::size_t>(command.a));
    const ssize_t got = ::recv(end.link.fd, data.data(), data.size(), static_cast<int>(command.b));
    if (got > 0)
      digest_ = digest(data.data(), static_cast<std::size_t>(got)),
      end.link.received += static_cast<std::uint64_t>(got);
    return got;
  }

  std::int64_t send_once(End& end, const Command& command) {
    std::vector<char> data(static_cast<std::size_t>(command.a));
    fill(data.data(), data.size(), end.link.sent);
    const ssize_t sent = ::send(end.link.fd, data.data(), data.size(), static_cast<int>(command.b) | MSG_NOSIGNAL);
    if (sent > 0) end.link.sent += static_cast<std::uint64_t>(sent);
    return sent;
  }

  std::int64_t receive_to_end(End& end, unsigned pause_us) {
    std::vector<char> data(std::size_t{64} << 10);
    std::int64_t total = 0;
    digest_ = digest(nullptr, 0);
    for (;;) {
      if (pause_us != 0) ::usleep(pause_us);
      const ssize_t got = ::recv(end.link.fd, data.data(), data.size(), 0);
      if (got < 0) return -1;
      if (got == 0) return total;
      digest_ = digest(data.data(), static_cast<std::size_t>(got), digest_);
      total += got;
      end.link.received += static_cast<std::uint64_t>(got);
    }
  }

  std::int64_t echo(End& end, std::int64_t rounds) {
    for (std::int64_t i = 0; i < rounds; ++i)
      if (!end.link.receive(1) || !end.link.send(1)) return -1;
    return rounds;
  }

  int control_;
  std::vector<End> ends_;
  std::uint64_t digest_ = 0;
};

}  // namespace

void serve(int control) {
  Obedient(control).serve();
}

Agent::Agent(AgentKind kind, const char* preload) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) std::abort();
  // Out of the way of what cases do with low numbers; children that exec do not get it.
  control_ = ::fcntl(pair[0], F_DUPFD_CLOEXEC, 200);
  ::close(pair[0]);
  if (kind == AgentKind::thread) {
    const int theirs = ::fcntl(pair[1], F_DUPFD_CLOEXEC, 200);
    ::close(pair[1]);
    thread_ = std::thread([theirs] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      serve(theirs);
      ::close(theirs);
    });
    return;
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    if (preload != nullptr)
      ::setenv("LD_PRELOAD", preload, 1);
    else
      ::unsetenv("LD_PRELOAD");
    char number[16];
    std::snprintf(number, sizeof number, "%d", pair[1]);
    ::alarm(30);
    ::execl(own_program, own_program, "--agent", number, nullptr);
    ::_exit(127);
  }
  ::close(pair[1]);
}

void Agent::begin(Order order, int link, std::int64_t a, std::int64_t b, std::int64_t c) {
  const Command command{order, link, a, b, c};
  if (::write(control_, &command, sizeof command) < 0) note("the agent is not there");
}

Answer Agent::end() {
  Answer answer{-1, EPIPE, 0};
  ssize_t got;
  while ((got = ::read(control_, &answer, sizeof answer)) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(sizeof answer)) note("the agent does not answer");
  return answer;
}

Answer Agent::tell(Order order, int link, std::int64_t a, std::int64_t b, std::int64_t c) {
  begin(order, link, a, b, c);
  return end();
}

void Agent::kill() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

Agent::~Agent() {
  if (pid_ != 0) {
    const Command quit{Order::quit, 0, 0, 0, 0};
    [[maybe_unused]] const ssize_t written = ::write(control_, &quit, sizeof quit);
  }
  ::close(control_);
  if (thread_.joinable()) thread_.join();
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

}  // namespace conformance
