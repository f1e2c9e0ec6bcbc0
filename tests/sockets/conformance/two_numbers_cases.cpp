// A connection that has two descriptors in its process: a dup, or one that it has passed to itself.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"
#include "sockets/conformance/splice_into.hpp"
#include "sockets/pass_descriptor.hpp"

namespace conformance {

namespace {

int passed_to_oneself(int fd) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return -1;
  const bool passed = viaduct::sockets::pass_descriptor(pair[0], fd);
  const int taken = passed ? viaduct::sockets::take_descriptor(pair[1]) : -1;
  for (const int end : pair) ::close(end);
  if (taken < 0) note("not passed");
  return taken;
}

void note_unread(int fd) {
  pollfd entry{fd, POLLIN | POLLOUT, 0};
  ::poll(&entry, 1, 0);
  note("poll says %s", poll_bits(static_cast<unsigned>(entry.revents)).c_str());
  int unread = -1;
  call("FIONREAD", ::ioctl(fd, FIONREAD, &unread));
  note("unread %d", unread);
}

}  // namespace

CASE(life, disconnected_dup,
     "connect with AF_UNSPEC on one of two descriptors, bytes unread: what the other says, and the peer") {
  for (const bool by_dup : {false, true}) {
    Link link = run.warm();
    const int dup = ::dup(link.fd);
    const auto [taken_apart, other] = by_dup ? std::pair{dup, link.fd} : std::pair{link.fd, dup};
    run.peer_sends(link, 936);
    ::usleep(5'000);
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    call("connect AF_UNSPEC", ::connect(taken_apart, &none, sizeof none));
    note_unread(other);
    std::array<char, 1000> bytes;
    for (int i = 0; i < 2; ++i) call("recv", ::recv(other, bytes.data(), bytes.size(), MSG_DONTWAIT));
    call("send", ::send(other, "x", 1, MSG_NOSIGNAL));
    run.peer_says("the peer receives", Order::receive_once, link, 1, MSG_DONTWAIT);
    for (const int fd : {dup, link.fd}) ::close(fd);
  }
}

CASE(process, passed_after_shutdown,
     "shutdown(SHUT_RD), then SCM_RIGHTS to oneself: what comes later is the new descriptor's") {
  for (const int flags : {0, 0 + MSG_PEEK}) {
    Link link = run.warm();
    call("shutdown", ::shutdown(link.fd, SHUT_RD));
    const int passed = passed_to_oneself(link.fd);
    run.peer_sends(link, 16'000);
    ::usleep(5'000);
    std::vector<char> bytes(100'000);
    call("recv", ::recv(passed, bytes.data(), bytes.size(), MSG_DONTWAIT | flags), bytes.data());
    call("recv again", ::recv(passed, bytes.data(), bytes.size(), MSG_DONTWAIT), bytes.data());
    call("recv on the old one", ::recv(link.fd, bytes.data(), bytes.size(), MSG_DONTWAIT));
    for (const int fd : {passed, link.fd}) ::close(fd);
  }
}

CASE(process, shutdown_after_passed,
     "SCM_RIGHTS to oneself, then shutdown, bytes unread or none: the end is told on both descriptors") {
  for (const unsigned size : {0u, 12u}) {
    for (const int how : {SHUT_RD, SHUT_RDWR}) {
      Link link = run.warm();
      if (size != 0) run.peer_sends(link, size);
      const int passed = passed_to_oneself(link.fd);
      call("shutdown", ::shutdown(link.fd, how));
      ::usleep(5'000);
      std::array<char, 100> bytes;
      for (const int fd : {link.fd, passed, link.fd})
        call("recv", ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT));
      for (const int fd : {passed, link.fd}) ::close(fd);
    }
  }
}

CASE(process, passed_behind_splice,
     "one sends and splices, the other passes its descriptor to itself, one sends more: every byte comes") {
  for (const bool kept : {false, true}) {
    OwnPair pair;
    pair.no_delay();
    pair.warm();
    std::vector<char> bytes(40'562);
    fill(bytes.data(), bytes.size(), 0);
    call("send", ::send(pair.client, bytes.data(), bytes.size(), 0));
    call("splice", splice_into(pair.client, "spliced bytes"));
    ::usleep(5'000);
    const int passed = passed_to_oneself(pair.server);
    if (!kept) ::close(std::exchange(pair.server, -1));
    call("send", ::send(pair.client, "last", 4, 0));
    ::usleep(5'000);
    std::uint64_t seen = digest(nullptr, 0);
    int received = 0;
    for (ssize_t got; (got = ::recv(passed, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;
         received += static_cast<int>(got))
      seen = digest(bytes.data(), static_cast<std::size_t>(got), seen);
    note("received %d, digest %llx", received, static_cast<unsigned long long>(seen));
    ::close(passed);
  }
}

}  // namespace conformance
