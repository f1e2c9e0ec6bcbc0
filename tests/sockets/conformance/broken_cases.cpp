// Sends to a peer that has gone: how much of the first one is taken, and who is told what, with or without SIGPIPE.
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"
#include "sockets/conformance/splice_into.hpp"

namespace conformance {

namespace {

volatile sig_atomic_t broken = 0;

void count_broken() {
  ::signal(SIGPIPE, [](int) { broken = broken + 1; });
}

void call_and_count(const char* what, ssize_t result) {
  call(what, result);
  note("SIGPIPE %d", static_cast<int>(broken));
  broken = 0;
}

void arrive() {
  ::usleep(5'000);
}

}  // namespace

CASE(data, sendfile_to_nobody, "sendfile to a peer that has closed, or shut down both halves: the first sends all") {
  count_broken();
  constexpr std::size_t kMost = 60'000;
  const int file = ::memfd_create("file", 0);
  if (::ftruncate(file, kMost) != 0) note("no file");
  for (const Order order : {Order::close, Order::shutdown})
    for (const std::size_t size : {std::size_t{20'000}, std::size_t{36'010}, kMost}) {
      const Link link = run.warm();
      run.peer_says("the peer", order, link, SHUT_RDWR);
      arrive();
      off_t at = 0;
      call_and_count("sendfile", ::sendfile(link.fd, file, &at, size));
      note("at %d", static_cast<int>(at));
      arrive();
      call_and_count("send", ::send(link.fd, "x", 1, 0));
      ::close(link.fd);
    }
  ::close(file);
}

CASE(life, shutdown_behind_full,
     "one fills a connection and shuts down both halves; the other, which has read nothing, sends") {
  count_broken();
  const OwnPair pair;
  pair.warm();
  fill_up(pair.client);
  call("shutdown", ::shutdown(pair.client, SHUT_RDWR));
  arrive();
  const std::vector<char> bytes(1000);
  call_and_count("send", ::send(pair.server, bytes.data(), bytes.size(), 0));
}

CASE(data, splice_after_reset, "splice into a connection tells of a reset that nobody was told of, without SIGPIPE") {
  count_broken();
  const auto note_sends = [](int fd) {
    arrive();
    call_and_count("splice", splice_into(fd, "abcdef", SPLICE_F_NONBLOCK));
    call_and_count("splice", splice_into(fd, "abcdef"));
    call_and_count("send", ::send(fd, "x", 1, 0));
  };
  for (const bool read_first : {false, true}) {
    Link link = run.warm();
    run.peer_sends(link, 6);
    arrive();
    call("shutdown", ::shutdown(link.fd, SHUT_RDWR));
    run.peer_says("the peer sends behind it", Order::send_once, link, 4);
    arrive();
    char bytes[64];
    if (read_first) call("recv", ::recv(link.fd, bytes, sizeof bytes, 0), bytes);
    note_sends(link.fd);
    ::close(link.fd);
  }
  const Link aborted = run.warm();
  run.peer_says("the peer resets", Order::abort, aborted);
  note_sends(aborted.fd);
  Link unread = run.warm();
  run.peer_sends(unread, 5);
  note("sent %d", unread.send(1));
  arrive();
  run.peer_says("the peer closes", Order::close, unread);
  note_sends(unread.fd);
  for (const int fd : {aborted.fd, unread.fd}) ::close(fd);
}

}  // namespace conformance
