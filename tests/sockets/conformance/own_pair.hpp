// Both ends of a connection in one process, for what an agent cannot do: use them at the same time, or in a child.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

struct OwnPair {
  OwnPair() {
    int port = 0;
    bool ok = false;
    const int listener = listening(AF_INET, port);
    client = connect_to(AF_INET, port, ok);
    server = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    if (!ok || server < 0) note("no pair");
  }
  ~OwnPair() {
    ::close(client);
    ::close(server);
  }
  OwnPair(const OwnPair&) = delete;
  OwnPair& operator=(const OwnPair&) = delete;

  // What is sent goes, and arrives, at once.
  void no_delay() const {
    const int on = 1;
    for (const int fd : {client, server}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  // Used so much that it is on the ring where the process is accelerated.
  void warm() const {
    for (int i = 0; i < 40; ++i)
      if (char byte = 'w'; ::send(client, &byte, 1, 0) != 1 || ::recv(server, &byte, 1, 0) != 1 ||
                           ::send(server, &byte, 1, 0) != 1 || ::recv(client, &byte, 1, 0) != 1)
        note("warming up failed");
  }

  int client = -1;
  int server = -1;
};

// With as much as it takes, unread.
inline void fill_up(int fd) {
  std::vector<char> much(std::size_t{1} << 20);
  for (std::size_t size = much.size(); size != 0; size /= 32)
    while (::send(fd, much.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

}  // namespace conformance
