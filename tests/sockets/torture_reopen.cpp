// Threads in send() while another closes their socket and opens a new one, which has the same number.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <thread>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr unsigned kPatience = 300;  // seconds, on a machine that is busy
constexpr std::size_t kMost = 60'000;

// Single bytes, with which a connection is warmed up, come back; the rest is thrown away.
void swallow(int fd) {
  std::vector<char> bytes(kMost);
  for (ssize_t got; (got = ::recv(fd, bytes.data(), bytes.size(), 0)) > 0;)
    if (got == 1) ::send(fd, bytes.data(), 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  ::close(fd);
}

[[noreturn]] void serve(int listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) std::thread(swallow, ::accept(listener, nullptr, nullptr)).detach();
}

// Until there is no connection of that number.
void send_on(int fd, unsigned seed) {
  Random random(seed);
  const std::vector<char> bytes(kMost);
  while (::send(fd, bytes.data(), kMost / 3 + random() % (kMost * 2 / 3), MSG_NOSIGNAL) > 0) {
  }
}

int close_and_open(const sockaddr_in& name, Random& random) {
  const int fd = connect_to(name);
  if (fd < 0 || !warm(fd, true)) return complain("connect");
  std::array<std::thread, 3> senders;
  for (std::thread& sender : senders) sender = std::thread(send_on, fd, random());
  ::usleep(random() % 2000);
  ::shutdown(fd, SHUT_RDWR);
  ::usleep(random() % 100);
  ::close(fd);
  const int next = connect_to(name);
  ::usleep(random() % 500);
  ::shutdown(next, SHUT_RDWR);
  for (std::thread& sender : senders) sender.join();
  ::close(next);
  return next < 0 ? complain("connect again") : 0;
}

}  // namespace

int reopen(int rounds, unsigned seed) {
  sockaddr_in name;
  const int listener = listen_somewhere(name);
  if (listener < 0) return complain("listen");
  const pid_t server = ::fork();
  if (server == 0) serve(listener);
  const pid_t client = ::fork();
  if (client == 0) {
    ::alarm(kPatience);
    Random random(seed);
    for (int i = 0; i < rounds; ++i)
      if (close_and_open(name, random) != 0) ::_exit(1);
    ::_exit(0);
  }
  const int ended = wait_for(client);
  ::kill(server, SIGKILL);
  const int served = wait_for(server);
  if (ended == 0 && served == 100 + SIGKILL) return 0;
  std::fprintf(stderr, "torture: the one that closes ended with %d, its server with %d\n", ended, served);
  return 1;
}

}  // namespace viaduct::sockets::torture
