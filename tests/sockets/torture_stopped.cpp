// A sender that is stopped at any point of a send while the other side gives the connection away: every number it has
// sent arrives, in order, once it goes on.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>

#include "pass_descriptor.hpp"
#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

int send_numbers(int fd) {
  if (!warm(fd, true)) return 0;
  for (std::uint64_t number = 0;; ++number)
    if (::send(fd, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) return 0;
}

// To nobody in particular: what goes through a UNIX socket goes back to TCP first.
bool give_away(int fd) {
  int ways[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ways) != 0) return false;
  const bool sent = pass_descriptor(ways[0], fd);
  ::close(ways[0]);
  ::close(ways[1]);
  return sent;
}

bool take_numbers(int fd, std::uint64_t& next, std::uint64_t count) {
  for (; count > 0; --count, ++next) {
    std::uint64_t number = 0;
    if (::recv(fd, &number, sizeof number, MSG_WAITALL) != sizeof number || number != next) {
      std::fprintf(stderr, "torture: %ju came instead of %ju\n", static_cast<std::uintmax_t>(number),
                   static_cast<std::uintmax_t>(next));
      return false;
    }
  }
  return true;
}

}  // namespace

int stopped(int rounds, unsigned seed) {
  Random random(seed);
  ::alarm(10 * kHangSeconds);
  for (int round = 0; round < rounds; ++round) {
    const Pair pair = make_pair();
    const pid_t sender = start(pair, true, send_numbers);
    ::close(pair.client);
    std::uint64_t next = 0;
    bool fine = warm(pair.server, false) && take_numbers(pair.server, next, 5'000 + random() % 5'000);
    ::kill(sender, SIGSTOP);
    int status = 0;
    ::waitpid(sender, &status, WUNTRACED);
    fine = fine && give_away(pair.server);
    ::kill(sender, SIGCONT);
    fine = fine && take_numbers(pair.server, next, 5'000);
    ::kill(sender, SIGKILL);
    ::close(pair.server);
    ::waitpid(sender, &status, 0);
    if (!fine) return std::fprintf(stderr, "torture: seed %u, round %d\n", seed, round), 1;
  }
  return 0;
}

}  // namespace viaduct::sockets::torture
