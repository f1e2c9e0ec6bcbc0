// What MSG_MORE and TCP_CORK hold back, and what lets it go.
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"

using namespace conformance;

namespace {

ssize_t send_next(Link& link, std::size_t bytes, int flags) {
  std::vector<char> data(bytes);
  fill(data.data(), bytes, link.sent);
  const ssize_t sent = ::send(link.fd, data.data(), bytes, flags | MSG_NOSIGNAL);
  if (sent > 0) link.sent += static_cast<std::uint64_t>(sent);
  return sent;
}

ssize_t set(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value);
}

// An acknowledgement lets go what is held back: those that are due are sent now.
void acknowledge_all(Run& run, const Link& link) {
  run.agent.tell(Order::option, link.number, IPPROTO_TCP, TCP_QUICKACK, 1);
  set(link.fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

// What one receive of the peer gets, that waits for it.
void peer_gets(Run& run, const char* what, const Link& link) {
  run.peer_says(what, Order::receive_once, link, 4000, 0);
}
void peer_has_nothing(Run& run, const Link& link) {
  run.peer_says("nothing there", Order::receive_once, link, 4000, MSG_DONTWAIT);
}

}  // namespace

CASE(data, header_before_body, "MSG_MORE and then the rest, to a receiver that waits: one message, not two") {
  Link link = run.warm();
  constexpr int kRounds = 300;
  int apart = 0, lost = 0;
  for (int i = 0; i < kRounds; ++i) {
    run.agent.begin(Order::receive_once, link.number, 4000);
    send_next(link, 90, MSG_MORE);
    ::usleep(100);  // the body takes its time: a header that is there is found alone
    send_next(link, static_cast<std::size_t>(10 + i % 400), 0);
    const auto got = run.agent.end().result;
    if (got == 100 + i % 400) continue;
    ++apart;
    if (got + run.agent.tell(Order::receive_once, link.number, 4000).result != 100 + i % 400) ++lost;
  }
  // The kernel lets go of it at once where an acknowledgement happens to come between the two.
  note("%s, lost %d", apart < kRounds / 20 ? "together" : "apart", lost);
}

CASE(data, held_back,
     "what MSG_MORE holds back is not there before: a send, TCP_NODELAY, the end, or time lets it go") {
  Link link = run.warm();
  acknowledge_all(run, link);
  call("MORE", send_next(link, 10, MSG_MORE));
  int unsent = -1;
  call("SIOCOUTQ", ::ioctl(link.fd, SIOCOUTQ, &unsent));
  note("%d bytes", unsent);
  peer_has_nothing(run, link);
  call("MORE of nothing", send_next(link, 0, 0));
  peer_has_nothing(run, link);
  call("MORE", send_next(link, 20, MSG_MORE | MSG_DONTWAIT));
  peer_has_nothing(run, link);
  call("the rest", send_next(link, 30, 0));
  peer_gets(run, "all of it", link);
  acknowledge_all(run, link);
  call("MORE", send_next(link, 10, MSG_MORE));
  call("NODELAY", set(link.fd, IPPROTO_TCP, TCP_NODELAY, 1));
  peer_gets(run, "by NODELAY", link);
  acknowledge_all(run, link);
  call("MORE", send_next(link, 10, MSG_MORE));
  peer_has_nothing(run, link);
  peer_gets(run, "by itself, in time", link);
  const int file = ::memfd_create("file", 0);
  std::array<char, 100> bytes;
  acknowledge_all(run, link);
  call("MORE", send_next(link, 10, MSG_MORE));
  fill(bytes.data(), bytes.size(), link.sent);
  if (::write(file, bytes.data(), bytes.size()) != 100) note("write failed");
  off_t place = 0;
  call("sendfile", ::sendfile(link.fd, file, &place, bytes.size()));
  link.sent += bytes.size();
  run.peer_receives(link, 0);
  run.peer_says("before a file", Order::receive_once, link, 4000, MSG_PEEK);
  peer_gets(run, "all", link);
  int pipe[2];
  if (::pipe(pipe) != 0 || ::write(pipe[1], bytes.data(), 50) != 50) return;
  acknowledge_all(run, link);
  call("MORE", send_next(link, 10, MSG_MORE));
  call("splice", ::splice(pipe[0], nullptr, link.fd, nullptr, 50, 0));
  run.peer_says("before what a pipe holds", Order::receive_once, link, 60, MSG_WAITALL);
  acknowledge_all(run, link);
  call("MORE", send_next(link, 10, MSG_MORE));
  call("shutdown", ::shutdown(link.fd, SHUT_WR));
  run.peer_says("at the end", Order::receive_to_end, link);
  for (const int fd : {pipe[0], pipe[1], file}) ::close(fd);
}

CASE(data, held_back_in_small_pieces, "MSG_MORE a thousand times, and the rest: every byte in order") {
  Link link = run.warm();
  run.agent.begin(Order::receive, link.number, 1000 * 37 + 5000);
  int failed = 0;
  for (int i = 0; i < 1000; ++i) failed += send_next(link, 37, MSG_MORE) != 37;
  failed += send_next(link, 5000, 0) != 5000;
  note("failed %d, peer verified %d", failed, static_cast<int>(run.agent.end().result));
  for (const std::size_t bytes : {1UL, 111UL, 112UL, 113UL, 1087UL, 1088UL, 1089UL, 5000UL, 100'000UL}) {
    run.agent.begin(Order::receive, link.number, static_cast<std::int64_t>(2 * bytes + 1));
    failed += send_next(link, bytes, MSG_MORE) != static_cast<ssize_t>(bytes);
    failed += send_next(link, 1, MSG_MORE) != 1;
    failed += send_next(link, bytes, 0) != static_cast<ssize_t>(bytes);
    note("failed %d, peer verified %d", failed, static_cast<int>(run.agent.end().result));
  }
}

CASE(options, corked, "TCP_CORK: writes are held back until it ends, whoever made them") {
  Link link = run.warm();
  acknowledge_all(run, link);
  call("CORK 1", set(link.fd, IPPROTO_TCP, TCP_CORK, 1));
  call("send", send_next(link, 10, 0));
  call("send", send_next(link, 20, 0));
  peer_has_nothing(run, link);
  std::array<char, 30> bytes;
  fill(bytes.data(), bytes.size(), link.sent);
  in_child("a child writes", [&] { ::_exit(::write(link.fd, bytes.data(), bytes.size()) == 30 ? 0 : 1); });
  link.sent += 30;
  peer_has_nothing(run, link);
  call("CORK 0", set(link.fd, IPPROTO_TCP, TCP_CORK, 0));
  peer_gets(run, "all of it", link);
  acknowledge_all(run, link);
  call("CORK 1", set(link.fd, IPPROTO_TCP, TCP_CORK, 1));
  call("send", send_next(link, 10, 0));
  peer_gets(run, "by itself, in time", link);
  call("send", send_next(link, 10, 0));
  call("close", ::close(link.fd));
  run.peer_says("at the end", Order::receive_to_end, link);
}

CASE(wait, held_back, "bytes that a peer holds back wake nobody, in recv, poll and epoll; what lets them go does") {
  Link link = run.warm();
  const int set_of_one = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {}};
  ::epoll_ctl(set_of_one, EPOLL_CTL_ADD, link.fd, &event);
  std::array<char, 64> in;
  const auto peer_sends = [&](std::size_t bytes, int flags) {
    run.agent.tell(Order::send_once, link.number, static_cast<std::int64_t>(bytes), flags);
  };
  const auto poll_for = [&](int ms) {
    pollfd entry{link.fd, POLLIN, 0};
    return ::poll(&entry, 1, ms);
  };
  constexpr int kRounds = 20;
  int early = 0, lost = 0;
  for (int i = 0; i < kRounds; ++i) {
    acknowledge_all(run, link);
    peer_sends(10, MSG_MORE);
    const bool polled = poll_for(1) != 0, waited = ::epoll_wait(set_of_one, &event, 1, 1) != 0;
    early += polled || waited || ::recv(link.fd, in.data(), in.size(), MSG_DONTWAIT | MSG_PEEK) >= 0 ? 1 : 0;
    peer_sends(20, 0);
    lost += poll_for(3000) != 1 || ::recv(link.fd, in.data(), 30, MSG_WAITALL) != 30 ? 1 : 0;
  }
  note("%s, lost %d", early < kRounds / 2 ? "held back" : "there at once", lost);
  peer_sends(10, MSG_MORE);
  call("poll, until it comes by itself", poll_for(3000));
  call("recv", ::recv(link.fd, in.data(), in.size(), 0), in.data());
  peer_sends(10, MSG_MORE);
  call("epoll_wait, until it comes", ::epoll_wait(set_of_one, &event, 1, 3000));
  call("recv", ::recv(link.fd, in.data(), in.size(), 0), in.data());
  peer_sends(10, MSG_MORE);
  call("recv, until it comes", ::recv(link.fd, in.data(), in.size(), 0), in.data());
  ::close(set_of_one);
}

CASE(life, killed_with_bytes_held_back,
     "a peer is killed, or goes, that has sent with MSG_MORE: all of it comes, and the end") {
  if (!run.agent.is_process()) return skip();
  Link link = run.warm();
  Link other = run.warm();
  std::array<char, 64> in;
  run.agent.tell(Order::send_once, link.number, 10, MSG_MORE);
  run.agent.tell(Order::send_once, other.number, 10, MSG_MORE);
  run.agent.tell(Order::close, other.number);
  call("recv", ::recv(other.fd, in.data(), in.size(), MSG_WAITALL), in.data());
  call("the end", ::recv(other.fd, in.data(), in.size(), 0));
  run.agent.kill();
  call("recv", ::recv(link.fd, in.data(), in.size(), MSG_WAITALL), in.data());
  call("the end", ::recv(link.fd, in.data(), in.size(), 0));
}

CASE(process, held_back_and_handed_back, "bytes are held back when the connection goes back to TCP, by either end") {
  Link link = run.warm();
  call("MORE", send_next(link, 10, MSG_MORE));
  start_plain_program();
  call("the rest", send_next(link, 20, 0));
  run.peer_receives(link, 30);
  note("%d", (run.peer_sends(link, 5), link.receive(5)));
  Link other = run.warm();
  call("MORE", send_next(other, 10, MSG_MORE));
  run.agent.tell(Order::start_plain_program);
  call("the rest", send_next(other, 20, 0));
  run.peer_receives(other, 30);
  Link third = run.warm();
  call("CORK 1", set(third.fd, IPPROTO_TCP, TCP_CORK, 1));
  call("send", send_next(third, 10, 0));
  call("urgent", ::send(third.fd, "!", 1, MSG_OOB));
  call("CORK 0", set(third.fd, IPPROTO_TCP, TCP_CORK, 0));
  run.peer_receives(third, 10);
}

CASE(life, closed_behind_held_back, "a peer reads what was held back and closes: the end, and no reset, also later") {
  Link link = run.warm();
  for (const bool asleep : {true, false}) {
    if (asleep) run.agent.begin(Order::receive, link.number, 100);
    send_next(link, 90, MSG_MORE);
    send_next(link, 10, 0);
    if (asleep) (void)run.agent.end();
  }
  run.agent.tell(Order::receive, link.number, 100);
  run.agent.tell(Order::close, link.number);
  const auto look = [&](const char* what, int ms) {
    pollfd entry{link.fd, POLLRDHUP, 0};
    call(what, ::poll(&entry, 1, ms));
    note("%s", poll_bits(static_cast<unsigned>(entry.revents)).c_str());
  };
  look("the end", 3000);
  pollfd reset{link.fd, 0, 0};
  call("no reset, for longer than bytes are held back", ::poll(&reset, 1, 300));
  look("the end", 0);
  char byte = 0;
  call("recv", ::recv(link.fd, &byte, 1, 0));
}
