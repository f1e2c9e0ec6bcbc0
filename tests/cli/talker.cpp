// A plain sockets program for tests to run under `viaduct run`: told on standard input what to do, it answers on
// standard output when it has done it, and ends with its input.
//
//   talker serve [ADDRESS]
//                      listens (on 127.0.0.1), prints "port N", and echoes what its connections say
//   talker swallow     the same, but swallows, and answers with one byte after each 32 MB
//   talker serve-fork  the same, each connection in a child: prints "child PID"
//   talker call PORT [ADDRESS]
//                      connects (to 127.0.0.1), prints "fd N"; then for each line: a number N makes N round trips
//                      ("ok"), "dup" goes on with a duplicate of its socket and closes the first ("fd N"), "fork" goes
//                      on in a child ("child PID"), "large" sends 32 MB by one call and waits for one byte ("ok")
//   talker idle        has no socket, prints "idle"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr const char* kLoopback = "127.0.0.1";

int fail(const char* what) {
  std::perror(what);
  return 1;
}

void say(const char* word, long number) {
  std::printf("%s %ld\n", word, number);
  std::fflush(stdout);
}

sockaddr_in name_of(const char* address, int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = ::inet_addr(address);
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  return name;
}

// False: the other side has gone.
bool echo(int fd) {
  char bytes[256];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
  return got > 0 && ::send(fd, bytes, static_cast<std::size_t>(got), 0) == got;
}

constexpr std::size_t kLarge = std::size_t{32} << 20;

// The same of what comes in large.
bool swallow(int fd) {
  static std::size_t swallowed = 0;
  static char bytes[65536];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
  if (got <= 0) return false;
  const bool enough = swallowed / kLarge != (swallowed + static_cast<std::size_t>(got)) / kLarge;
  swallowed += static_cast<std::size_t>(got);
  return !enough || ::send(fd, "k", 1, 0) == 1;
}

// One connection at a time, until the input ends.
int serve(bool (*answer)(int), bool fork_each, const char* address) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = name_of(address, 0);
  socklen_t size = sizeof name;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(listener, 8) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return fail("listen");
  say("port", ntohs(name.sin_port));
  int connection = -1;
  for (;;) {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {listener, POLLIN, 0}, {connection, POLLIN, 0}};
    if (::poll(waits, 3, -1) < 0) return fail("poll");
    if (waits[0].revents != 0) return 0;
    if (waits[2].revents != 0 && !answer(connection)) ::close(connection), connection = -1;
    if ((waits[1].revents & POLLIN) == 0) continue;
    const int accepted = ::accept(listener, nullptr, nullptr);
    if (!fork_each) {
      connection = accepted;
      continue;
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(listener);
      while (answer(accepted)) {
      }
      ::_exit(0);
    }
    ::close(accepted);
    say("child", child);
  }
}

bool round_trip(int fd, unsigned number) {
  unsigned answer = ~number;
  if (::send(fd, &number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) return false;
  return ::recv(fd, &answer, sizeof answer, MSG_WAITALL) == static_cast<ssize_t>(sizeof answer) && answer == number;
}

int call(int port, const char* address) {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in name = name_of(address, port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) return fail("connect");
  say("fd", fd);
  unsigned number = 0;
  for (char line[64]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    if (std::strcmp(line, "dup\n") == 0) {
      const int copy = ::dup(fd);
      ::close(fd);
      say("fd", fd = copy);
      continue;
    }
    if (std::strcmp(line, "fork\n") == 0) {
      const pid_t child = ::fork();
      if (child == 0) continue;
      say("child", child);
      int status = 0;
      return ::waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : fail("fork");
    }
    if (std::strcmp(line, "large\n") == 0) {
      static char bytes[kLarge];
      char answer = 0;
      if (::send(fd, bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes) || ::recv(fd, &answer, 1, 0) != 1)
        return fail("large");
    }
    for (int left = std::atoi(line); left > 0; --left)
      if (!round_trip(fd, number++)) return fail("round trip");
    std::puts("ok");
    std::fflush(stdout);
  }
  return 0;
}

int idle() {
  std::puts("idle");
  std::fflush(stdout);
  char byte;
  return ::read(STDIN_FILENO, &byte, 1) < 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (std::strcmp(what, "serve") == 0) return serve(echo, false, argc > 2 ? argv[2] : kLoopback);
  if (std::strcmp(what, "swallow") == 0) return serve(swallow, false, kLoopback);
  if (std::strcmp(what, "serve-fork") == 0) return serve(echo, true, kLoopback);
  if (std::strcmp(what, "call") == 0 && argc > 2) return call(std::atoi(argv[2]), argc > 3 ? argv[3] : kLoopback);
  if (std::strcmp(what, "idle") == 0) return idle();
  return std::fprintf(stderr, "usage: talker serve [ADDRESS] | swallow | serve-fork | call PORT [ADDRESS] | idle\n"), 2;
}
