// Connections of which a part is on TCP: bytes from before both ends were on the ring, or one direction that has left
// it.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"
#include "sockets/pass_descriptor.hpp"

namespace conformance {

namespace {

int put(int set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(set, operation, fd, &event);
}

int wait_for(int set, int ms) {
  epoll_event event{};
  return ::epoll_wait(set, &event, 1, ms);
}

// The peer sends by TCP from now on: an urgent byte made it leave the ring, and one behind the mark was received.
Link peer_off_the_ring(Run& run) {
  Link link = run.warm();
  run.peer_says("urgent", Order::send_once, link, 1, MSG_OOB);
  pollfd entry{link.fd, POLLPRI, 0};
  call("poll", ::poll(&entry, 1, 1000));
  char byte;
  call("the urgent byte", ::recv(link.fd, &byte, 1, MSG_OOB), &byte);
  ++link.received;
  run.peer_sends(link, 1);
  note("behind it %d", link.receive(1));
  return link;
}

}  // namespace

CASE(data, behind_urgent_while_young,
     "an end that has received a little; the other sends an urgent byte and more, all by TCP") {
  // Either end may be the first to have a ring.
  for (const bool to_client : {true, false}) {
    const OwnPair pair;
    const int from = to_client ? pair.server : pair.client, to = to_client ? pair.client : pair.server;
    std::array<char, 64> bytes{};
    for (int i = 0; i < 6; ++i)
      if (::send(from, "p", 1, 0) != 1) note("send failed");
    for (int i = 0; i < 6; ++i)
      if (::recv(to, bytes.data(), 1, 0) != 1) note("recv failed");
    call("urgent", ::send(from, "abc", 3, MSG_OOB));
    call("more", ::send(from, "def", 3, 0));
    ::usleep(20'000);
    call("up to the mark", ::recv(to, bytes.data(), bytes.size(), MSG_DONTWAIT), bytes.data());
    if (call("behind it", ::recv(to, bytes.data(), bytes.size(), MSG_DONTWAIT), bytes.data()) < 0) continue;
    const timeval limit{0, 50'000};
    ::setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    call("no more", ::recv(to, bytes.data(), bytes.size(), 0));
  }
}

CASE(epoll, edges_behind_unread, "EPOLLET: more comes by the ring while the first bytes are unread on TCP") {
  const OwnPair pair;
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, pair.client, EPOLLIN | EPOLLET));
  std::array<char, 4000> bytes{};
  constexpr std::size_t kPiece = 1000;
  const auto note_edge = [&] {
    call("send", ::send(pair.server, bytes.data(), kPiece, 0));
    call("told", wait_for(set, 1000));
    call("peek", ::recv(pair.client, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT));
  };
  note_edge();
  // So much the other way that this end, too, sends by the ring.
  for (int i = 0; i < 40; ++i)
    if (char byte = 'w'; ::send(pair.client, &byte, 1, 0) != 1 || ::recv(pair.server, &byte, 1, 0) != 1)
      note("warming up failed");
  for (int i = 0; i < 3; ++i) note_edge();
  call("not again", wait_for(set, 20));
  ::close(set);
}

CASE(data, many_pieces_from_tcp, "readv of 200 pieces after the peer's direction went back to TCP") {
  Link link = peer_off_the_ring(run);
  run.peer_sends(link, 1000);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 1000));
  std::array<char, 1000> bytes;
  std::array<iovec, 200> pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = {&bytes[i * 5], 5};
  call("readv", ::readv(link.fd, pieces.data(), static_cast<int>(pieces.size())), bytes.data());
  call("no more", ::recv(link.fd, bytes.data(), bytes.size(), MSG_DONTWAIT));
  ::close(link.fd);
}

CASE(data, counted_behind_the_ring,
     "how much is there, where a part came after the peer had left the ring: FIONREAD, MSG_PEEK, MSG_TRUNC") {
  for (const int flags : {0, 0 + MSG_PEEK, 0 + MSG_TRUNC, MSG_PEEK | MSG_TRUNC, MSG_PEEK | MSG_TRUNC | MSG_WAITALL}) {
    Link link = run.warm();
    std::array<char, 900> bytes{};
    run.peer_says("a send buffer too small for it all", Order::option, link, SOL_SOCKET, SO_SNDBUF, 4608);
    run.peer_sends(link, 518);
    run.peer_says("leave", Order::start_plain_program, link);
    run.peer_sends(link, 460);
    ::usleep(5'000);
    int unread = 0;
    call("FIONREAD", ::ioctl(link.fd, FIONREAD, &unread));
    note("unread %d", unread);
    call("recv", ::recv(link.fd, bytes.data(), bytes.size(), flags | MSG_DONTWAIT));
    call("recv again", ::recv(link.fd, bytes.data(), bytes.size(), MSG_DONTWAIT));
    ::close(link.fd);
  }
}

CASE(life, both_ends_elsewhere,
     "bytes are unread when the sender gives its end to a program without rings, and then the receiver does") {
  for (const std::size_t unread : {1, 57, 5000, 100'000}) {
    Link link = run.warm();
    run.peer_sends(link, unread);
    run.peer_says("the peer starts a program", Order::start_plain_program, link);
    run.peer_sends(link, 100);
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
    note("passed %d", viaduct::sockets::pass_descriptor(pair[0], link.fd));
    const int passed = viaduct::sockets::take_descriptor(pair[1]);
    ::close(link.fd);
    link.fd = passed;
    const timeval limit{3, 0};
    ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    note("received %d", link.receive(unread + 100));
    for (const int fd : {pair[0], pair[1], link.fd}) ::close(fd);
  }
}

CASE(epoll, modified_half_on_tcp,
     "MOD of an edge-triggered member that receives by TCP: bytes and room are told again") {
  for (const std::uint32_t once : {0U, static_cast<unsigned>(EPOLLONESHOT)}) {
    Link link = peer_off_the_ring(run);
    const int set = ::epoll_create1(0);
    call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLET | once));
    run.peer_sends(link, 4);
    pollfd entry{link.fd, POLLIN, 0};
    call("poll", ::poll(&entry, 1, 1000));
    for (int i = 0; i < 6; ++i) {
      call("MOD", put(set, EPOLL_CTL_MOD, link.fd, EPOLLIN | EPOLLOUT | EPOLLET | once));
      epoll_event event{};
      call("epoll_wait", ::epoll_wait(set, &event, 1, 500));
      note("%s", poll_bits(event.events).c_str());
    }
    for (const int fd : {set, link.fd}) ::close(fd);
  }
}

}  // namespace conformance
