// Leaving the ring at awkward moments: after the peer has ended, under a call, with bytes on the way.
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

namespace {

// A program that cannot be accelerated: what it might inherit goes back to TCP before.
void run_something_else() {
  pid_t pid = 0;
  char name[] = "true";
  char* const words[] = {name, nullptr};
  char* const nothing[] = {nullptr};
  if (::posix_spawn(&pid, "/bin/true", nullptr, nullptr, words, nothing) == 0) ::waitpid(pid, nullptr, 0);
}

}  // namespace

CASE(life, spawn_after_the_end, "the peer sends and ends; unread bytes survive that another program is started") {
  for (const Order end : {Order::shutdown, Order::close}) {
    Link link = run.warm();
    run.peer_sends(link, 100'000);
    run.peer_says("the peer ends", end, link, SHUT_WR);
    note("some %d", link.receive(1000));
    run_something_else();
    note("the rest %d", link.receive(99'000));
    char byte;
    call("the end", ::recv(link.fd, &byte, 1, 0));
    ::close(link.fd);
  }
}

CASE(life, closed_under_a_send,
     "a send that waits for room, its socket closed by another thread, the number used again") {
  Link link = run.warm();
  std::vector<char> much(std::size_t{16} << 20);
  std::thread sender([&] { ::send(link.fd, much.data(), much.size(), MSG_NOSIGNAL); });
  ::usleep(100'000);
  ::close(link.fd);
  Link next = run.warm();
  ::usleep(300'000);
  int unread = 0;
  note("sent %d", next.send(5));
  run.peer_receives(next, 5);
  ::ioctl(next.fd, FIONREAD, &unread);
  note("nothing else: %d", unread);
  run.agent.tell(Order::abort, link.number);
  sender.join();
  ::close(next.fd);
}

CASE(data, many_pieces_on_tcp, "writev of 200 pieces after the connection went back to TCP") {
  Link link = run.warm();
  int pipe[2];
  if (::pipe(pipe) != 0 || ::write(pipe[1], "x", 1) != 1) return;
  call("splice", ::splice(pipe[0], nullptr, link.fd, nullptr, 1, 0));
  std::array<char, 2000> bytes;
  bytes.fill('y');
  std::array<iovec, 200> pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = {&bytes[i * 10], 10};
  call("writev", ::writev(link.fd, pieces.data(), static_cast<int>(pieces.size())));
  for (const int fd : {pipe[0], pipe[1], link.fd}) ::close(fd);
}

}  // namespace conformance
