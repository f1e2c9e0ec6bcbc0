// Leaving the ring at awkward moments: after the peer has ended, under a call, with bytes on the way.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/pass_descriptor.hpp"

extern char** environ;

namespace conformance {

namespace {

// A send buffer that has no room for what is in the ring, which therefore stays there when the sender leaves it.
constexpr int kTooSmall = 4608;

template <class Body>
int start_child(Body body) {
  return spawn_child([](void* argument) { (*static_cast<Body*>(argument))(); }, &body);
}

}  // namespace

CASE(life, spawn_after_the_end, "the peer sends and ends; unread bytes survive that another program is started") {
  for (const Order end : {Order::shutdown, Order::close}) {
    Link link = run.warm();
    run.peer_sends(link, 100'000);
    run.peer_says("the peer ends", end, link, SHUT_WR);
    note("some %d", link.receive(1000));
    start_plain_program();
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
  call("urgent", ::send(link.fd, "x", 1, MSG_OOB));
  std::array<char, 2000> bytes;
  bytes.fill('y');
  std::array<iovec, 200> pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = {&bytes[i * 10], 10};
  call("writev", ::writev(link.fd, pieces.data(), static_cast<int>(pieces.size())));
  ::close(link.fd);
}

CASE(data, across_the_border, "one call receives what is in the ring and what is behind it on TCP, into many buffers") {
  for (const bool behind : {true, false}) {
    Link link = run.warm();
    ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
    const int set = ::epoll_create1(0);
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 1}};
    ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
    run.peer_sends(link, 57);
    if (!behind) note("what was in the ring %d", link.receive(57));
    run.peer_says("urgent", Order::send_once, link, 1, MSG_OOB);
    char urgent;
    ::usleep(1000);
    call("the urgent byte", ::recv(link.fd, &urgent, 1, MSG_OOB));
    // Past the mark, which nobody receives across.
    std::array<char, 4000> bytes;
    if (behind) call("up to the mark", ::recv(link.fd, bytes.data(), bytes.size(), 0));
    run.peer_sends(link, 2000);
    ::usleep(1000);
    call("told", ::epoll_wait(set, &event, 1, 1000));
    int unread = 0;
    ::ioctl(link.fd, FIONREAD, &unread);
    note("unread %d", unread);
    const iovec pieces[3] = {{bytes.data(), 100}, {&bytes[100], 0}, {&bytes[100], 3900}};
    call("all at once", ::readv(link.fd, pieces, 3));
    call("and no more", ::epoll_wait(set, &event, 1, 0));
    ::close(set);
    ::close(link.fd);
  }
}

CASE(data, behind_the_ring, "what the peer sent after it had left the ring comes with what it left there") {
  for (const int buffer : {0, kTooSmall}) {
    Link link = run.warm();
    const int at_once = 1;
    ::setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    if (buffer != 0) ::setsockopt(link.fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    note("sent %d", link.send(57));
    start_plain_program();
    note("sent %d", link.send(10));
    ::usleep(1000);
    run.peer_says("the peer receives", Order::receive_once, link, 4000);
    ::close(link.fd);
  }
}

CASE(data, nothing_at_all, "messages of no bytes, while nothing is there and after the peer has gone") {
  Link link = run.warm();
  ::fcntl(link.fd, F_SETFL, O_NONBLOCK);
  msghdr empty{};
  char byte = 0;
  iovec none{&byte, 0};
  call("recv", ::recv(link.fd, &byte, 0, 0));
  call("recvmsg without buffers", ::recvmsg(link.fd, &empty, 0));
  call("readv", ::readv(link.fd, &none, 1));
  call("writev", ::writev(link.fd, &none, 1));
  run.peer_says("the peer goes", Order::close, link);
  ::usleep(1000);
  call("sent in vain", ::send(link.fd, "x", 1, MSG_NOSIGNAL));
  ::usleep(1000);
  call("writev", ::writev(link.fd, &none, 1));
  call("recvmsg without buffers", ::recvmsg(link.fd, &empty, 0));
  ::close(link.fd);
}

CASE(data, end_again, "the end of a stream is told as often as it is asked for, and a reset once") {
  char byte;
  Link own = run.warm();
  ::fcntl(own.fd, F_SETFL, O_NONBLOCK);
  call("shutdown", ::shutdown(own.fd, SHUT_RD));
  for (int i = 0; i < 3; ++i) call("after our own", ::recv(own.fd, &byte, 1, 0));
  ::close(own.fd);
  Link closed = run.warm();
  ::fcntl(closed.fd, F_SETFL, O_NONBLOCK);
  run.peer_says("close", Order::close, closed);
  ::usleep(1000);
  for (int i = 0; i < 3; ++i) call("after the peer's", ::recv(closed.fd, &byte, 1, 0));
  ::close(closed.fd);
  Link reset = run.warm();
  run.peer_sends(reset, 1);
  run.peer_says("abort", Order::abort, reset);
  ::usleep(1000);
  std::array<char, 10> bytes;
  for (int i = 0; i < 3; ++i) call("all of ten", ::recv(reset.fd, bytes.data(), bytes.size(), MSG_WAITALL));
  ::close(reset.fd);
}

CASE(process, passed_flags, "O_NONBLOCK set by a process that got the socket through SCM_RIGHTS holds for both") {
  using namespace viaduct::sockets;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
  auto body = [&] {
    const int fd = take_descriptor(pair[1]);
    if (::fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && ::write(pair[1], "x", 1) == 1) ::pause();
  };
  const int child = spawn_child([](void* argument) { (*static_cast<decltype(body)*>(argument))(); }, &body);
  Link link = run.warm();
  note("passed %d", pass_descriptor(pair[0], link.fd));
  char byte;
  call("set", ::read(pair[0], &byte, 1));
  struct sigaction action {};  // so that a call which blocks ends
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval soon{{0, 0}, {1, 0}};
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  call("recv", ::recv(link.fd, &byte, 1, 0));
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  note("O_NONBLOCK %d", (::fcntl(link.fd, F_GETFL) & O_NONBLOCK) != 0);
  ::kill(child, SIGKILL);
  note_exit("child", child);
  for (const int fd : {pair[0], pair[1], link.fd}) ::close(fd);
}

namespace {

// A program that goes on with the connection: it gives 23 bytes back, of which three are there already.
template <class Start>
void note_successor(Run& run, Start start) {
  Link link = run.warm();
  run.peer_sends(link, 3);
  const int child = start(std::to_string(link.fd));
  run.peer_sends(link, 20);
  run.agent.begin(Order::receive_once, link.number, 23, MSG_WAITALL);  // it waits for the answer
  note_exit("the program", child);
  const Answer answer = run.agent.end();
  note("%d came back, digest %llx", static_cast<int>(answer.result), static_cast<unsigned long long>(answer.digest));
  ::close(link.fd);
}

}  // namespace

CASE(process, execveat, "execveat of a program that goes on with the connection, bytes unread") {
  note_successor(run, [](std::string fd) {
    return start_child([&] {
      char echo[] = "--echo", count[] = "23";
      char* const words[] = {const_cast<char*>(own_program), echo, fd.data(), count, nullptr};
      ::execveat(AT_FDCWD, own_program, words, environ, 0);
      ::_exit(9);
    });
  });
}

CASE(process, spawn_elsewhere, "the same by posix_spawn in another folder, with a name that is relative to it") {
  note_successor(run, [](std::string fd) {
    const std::string path = own_program;
    const std::size_t slash = path.rfind('/');
    std::string name = "." + path.substr(slash);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, path.substr(0, slash).c_str());
    char echo[] = "--echo", count[] = "23";
    char* const words[] = {name.data(), echo, fd.data(), count, nullptr};
    if (::chdir("/") != 0) note("chdir failed");
    pid_t child = -1;
    note("spawn %d", ::posix_spawn(&child, name.c_str(), &actions, nullptr, words, environ));
    ::posix_spawn_file_actions_destroy(&actions);
    return child;
  });
}

CASE(process, exec_switched_off, "the same by exec with VIADUCT_SOCKETS=off in the environment") {
  note_successor(run, [](const std::string& fd) {
    return start_child([&] {
      ::setenv("VIADUCT_SOCKETS", "off", 1);
      ::execl(own_program, own_program, "--echo", fd.c_str(), "23", nullptr);
      ::_exit(9);
    });
  });
}

}  // namespace conformance
