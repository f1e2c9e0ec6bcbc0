// SO_RCVTIMEO and SO_SNDTIMEO that say what nobody expects, and time stamps.
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

CASE(options, negative_time_limits, "SO_RCVTIMEO and SO_SNDTIMEO of less than nothing: do not wait") {
  for (const bool young : {true, false}) {
    note(young ? "young" : "used");
    Link link = young ? run.open() : run.warm();
    timeval limit{-1, 0};
    call("RCVTIMEO", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    if (young) {
      const timeval none{};
      char in = 0;
      call("recv", ::recv(link.fd, &in, 1, 0));
      call("none", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
      run.warm_up(link);
      call("RCVTIMEO", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    }
    std::array<char, 64> in;
    iovec piece{in.data(), in.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    mmsghdr one{message, 0};
    call("recv", ::recv(link.fd, in.data(), 1, 0));
    call("recv PEEK", ::recv(link.fd, in.data(), 1, MSG_PEEK));
    call("recv WAITALL", ::recv(link.fd, in.data(), 10, MSG_WAITALL));
    call("recv PEEK and WAITALL", ::recv(link.fd, in.data(), 10, MSG_PEEK | MSG_WAITALL));
    call("read", ::read(link.fd, in.data(), 1));
    call("readv", ::readv(link.fd, &piece, 1));
    call("recvfrom", ::recvfrom(link.fd, in.data(), 1, 0, nullptr, nullptr));
    call("recvmsg", ::recvmsg(link.fd, &message, 0));
    call("recvmmsg", ::recvmmsg(link.fd, &one, 1, 0, nullptr));
    run.peer_sends(link, 5);
    call("recv WAITALL, 5 of 10", ::recv(link.fd, in.data(), 10, MSG_WAITALL), in.data());
    link.received += 5;
    const int copy = ::dup(link.fd);
    call("by a duplicate", ::recv(copy, in.data(), 1, 0));
    ::close(copy);
    in_child("a child", [&] { ::_exit(::recv(link.fd, in.data(), 1, 0) < 0 && errno == EAGAIN ? 0 : 1); });
    limit = {0, -5};
    call("microseconds below nothing", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    call("recv", ::recv(link.fd, in.data(), 1, 0));
    limit = {-1, 0};
    call("SNDTIMEO", ::setsockopt(link.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    const std::vector<char> much(std::size_t{64} << 20);
    const ssize_t sent = ::send(link.fd, much.data(), much.size(), MSG_NOSIGNAL);
    note("sent %s", sent > 0 && sent < static_cast<ssize_t>(much.size()) ? "a part" : "?");
    ssize_t again = 1;
    for (int i = 0; i < 1000 && again > 0; ++i) again = ::send(link.fd, much.data(), much.size(), MSG_NOSIGNAL);
    call("until it is full", again);
    limit = {};
    call("none", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    run.agent.begin(Order::send, link.number, 1);
    call("waits again", ::recv(link.fd, in.data(), 1, 0));
    run.agent.end();
    ::close(link.fd);
  }
}

namespace {

constexpr int kNewNumbers[] = {63, 64, 65};  // SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW

// Whether messages have time stamps, at the latest after some: the kernel begins to note times a little later.
void receive_stamps(Run& run, Link& link) {
  int type = -1;
  for (int i = 0; i < 200 && type < 0; ++i) {
    if (i != 0) ::usleep(1000);
    run.agent.tell(Order::send, link.number, 3);
    std::array<char, 3> in;
    iovec piece{in.data(), in.size()};
    alignas(cmsghdr) std::array<char, 256> control;
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(link.fd, &message, MSG_WAITALL) != 3 || !matches(in.data(), 3, link.received)) note("not received");
    link.received += 3;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header))
      if (header->cmsg_level == SOL_SOCKET) type = header->cmsg_type;
  }
  note("control message %d", type);
  std::array<char, 3> in;
  iovec piece{in.data(), in.size()};
  std::array<char, 4> little;
  mmsghdr one{};
  one.msg_hdr.msg_iov = &piece;
  one.msg_hdr.msg_iovlen = 1;
  one.msg_hdr.msg_control = little.data();
  one.msg_hdr.msg_controllen = little.size();
  run.agent.tell(Order::send, link.number, 3);
  call("recvmmsg", ::recvmmsg(link.fd, &one, 1, MSG_WAITALL, nullptr));
  note("right %d", matches(in.data(), 3, link.received));
  note("cut short %d", (one.msg_hdr.msg_flags & MSG_CTRUNC) != 0);
  link.received += 3;
}

}  // namespace

CASE(options, time_stamps, "SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING, also by their new numbers, at any time") {
  constexpr int kReceivedBySoftware = 1 << 3 | 1 << 4;
  for (const int option :
       {SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING, kNewNumbers[0], kNewNumbers[1], kNewNumbers[2]}) {
    note("option %d", option);
    const bool flags = option == SO_TIMESTAMPING || option == kNewNumbers[2];
    const int value = flags ? kReceivedBySoftware : 1;
    Link link = run.warm();
    run.peer_sends(link, 10);  // unread when it is asked for
    call("asked for", ::setsockopt(link.fd, SOL_SOCKET, option, &value, sizeof value));
    note("what was there %d", link.receive(10));
    receive_stamps(run, link);
    note("sent %d", link.send(10));
    run.peer_receives(link, 10);
    ::close(link.fd);
  }
  note("before it was used much, by a new number");
  Link link = run.open();
  const int on = 1;
  call("asked for", ::setsockopt(link.fd, SOL_SOCKET, kNewNumbers[0], &on, sizeof on));
  for (int i = 0; i < 40; ++i) {
    link.send(1);
    run.agent.tell(Order::receive, link.number, 1);
    run.agent.tell(Order::send, link.number, 1);
    if (!link.receive(1)) note("not received");
  }
  receive_stamps(run, link);
  ::close(link.fd);
}
