// Descriptors and processes: dup, fork, exec, passing on.
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "sockets/conformance/harness.hpp"
#include "sockets/pass_descriptor.hpp"

extern char** environ;

using namespace conformance;
using viaduct::sockets::pass_descriptor;
using viaduct::sockets::take_descriptor;

namespace {

void talk(Run& run, Link& link, std::size_t bytes = 100) {
  note("sent %d", link.send(bytes));
  run.peer_receives(link, bytes);
  run.peer_sends(link, bytes);
  note("received %d", link.receive(bytes));
}

void note_answer(Run& run) {
  const Answer answer = run.agent.end();
  note("peer got %d, digest %llx", static_cast<int>(answer.result), static_cast<unsigned long long>(answer.digest));
}

// The agent sends 20 bytes; the child gives them back, byte for byte.
void echo_by(Run& run, Link& link, const char* what, int child) {
  run.peer_sends(link, 20);
  run.agent.begin(Order::receive_once, link.number, 20, MSG_WAITALL);
  note_exit(what, child);
  note_answer(run);
}

std::string number(int value) {
  return std::to_string(value);
}

}  // namespace

CASE(process, dup, "dup, dup2, dup3 and F_DUPFD: all of them are the connection, until the last is closed") {
  Link link = run.warm();
  const int original = link.fd;
  const int a = ::dup(original), b = ::dup2(original, 150), c = ::dup3(original, 151, O_CLOEXEC),
            d = ::fcntl(original, F_DUPFD, 160);
  for (const int fd : {a, b, c, d}) {
    link.fd = fd;
    talk(run, link, 20);
  }
  for (const int fd : {original, a, b, c}) call("close", ::close(fd));
  link.fd = d;
  talk(run, link);
  call("dup2 to itself", ::dup2(d, d));
  call("dup3 to itself", ::dup3(d, d, 0));
  call("dup2 of closed", ::dup2(999, d));
  talk(run, link);
  call("close the last", ::close(d));
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
}

CASE(process, dup2_over, "dup2 over the last descriptor of a connection closes it and leaves the other as it is") {
  Link link = run.warm(), other = run.warm();
  run.peer_sends(other, 50);
  // The one that goes has unread bytes: it is reset. The one that stays has unread bytes too: they stay.
  run.peer_sends(link, 30);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 1000));
  const int before = link.fd;
  call("dup2", ::dup2(other.fd, link.fd) == link.fd ? 0 : -1);
  run.peer_says("peer of the first", Order::receive_once, link, 10, 0);
  ::close(other.fd);
  other.fd = before;
  note("received %d", other.receive(50));
  talk(run, other);
  Link third = run.warm(), fourth = run.warm();
  note("sent %d", third.send(100));
  call("dup2", ::dup2(fourth.fd, third.fd) == third.fd ? 0 : -1);
  run.peer_says("peer of the third", Order::receive_to_end, third);
  talk(run, fourth);
}

CASE(process, fork, "a child uses the connection, the parent goes on; either closes without ending it") {
  Link link = run.warm();
  in_child("child", [&] { note("sent by the child %d", link.send(100)); });
  link.sent += 100;
  run.peer_receives(link, 100);
  talk(run, link);
  run.peer_sends(link, 50);
  in_child("child", [&] {
    note("received by the child %d", link.receive(30));
    ::close(link.fd);
  });
  link.received += 30;
  note("received by the parent %d", link.receive(20));
  talk(run, link);
  call("close", ::close(link.fd));
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
}

CASE(process, fork_parent_closes, "the parent closes while the child sleeps in recv, poll: the child still wakes") {
  for (const bool polling : {false, true}) {
    Link link = run.warm();
    int ready[2], done[2];
    if (::pipe(ready) != 0 || ::pipe(done) != 0) return;
    auto body = [&] {
      if (::write(ready[1], "x", 1) != 1) return;
      for (int i = 0; i < 3; ++i) {
        pollfd entry{link.fd, POLLIN, 0};
        if (polling) call("poll in the child", ::poll(&entry, 1, 5000));
        note("received by the child %d", link.receive(5));
        note("sent by the child %d", link.send(5));
        if (::write(done[1], "x", 1) != 1) return;
      }
    };
    const int child = spawn_child([](void* argument) { (*static_cast<decltype(body)*>(argument))(); }, &body);
    char byte;
    if (::read(ready[0], &byte, 1) != 1) return;
    ::usleep(50'000);  // for the child to fall asleep: the case is about that, its result does not depend on it
    call("close", ::close(link.fd));
    for (int i = 0; i < 3; ++i) {
      ::usleep(20'000);
      run.peer_sends(link, 5);
      if (::read(done[0], &byte, 1) != 1) return;
    }
    note_exit("child", child);
    run.peer_says("peer receives to the end", Order::receive_to_end, link);
  }
}

CASE(process, fork_child_dies,
     "a child that held the connection is killed; the parent's close still resets what is unread") {
  Link link = run.warm();
  const int child = spawn_child([](void*) { ::pause(); }, nullptr);
  ::kill(child, SIGKILL);
  note_exit("child", child);
  run.peer_sends(link, 50);
  call("close", ::close(link.fd));
  run.peer_says("peer receives", Order::receive_once, link, 10, 0);
}

CASE(process, fork_before_use, "accept, fork, the parent closes: the child's connection becomes fast") {
  if (!run.agent.is_process()) return skip();  // the fork would double the other end as well
  Link link = run.open(Opening::accept);
  auto body = [&] { run.warm_up(link); };
  // The child's count of what it warmed is its own: it says itself whether it was fast.
  auto whole = [&] {
    body();
    note("as fast as it should be: %s", on_ring() >= 1 || !run.expects_ring() ? "yes" : "no");
  };
  const int child = spawn_child([](void* argument) { (*static_cast<decltype(whole)*>(argument))(); }, &whole);
  call("close", ::close(link.fd));
  note_exit("child", child);
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
}

CASE(process, exec_accelerated, "exec of a dynamic program that inherits the connection, bytes unread") {
  Link link = run.warm();
  run.peer_sends(link, 3);
  const std::string fd = number(link.fd);
  const int child = spawn_child(
      [](void* argument) {
        ::execl(own_program, own_program, "--echo", static_cast<const char*>(argument), "23", nullptr);
        ::_exit(9);
      },
      const_cast<char*>(fd.c_str()));
  run.peer_sends(link, 20);
  note_exit("child", child);
  run.peer_says("peer receives", Order::receive_once, link, 23, MSG_WAITALL);
  talk(run, link);
}

CASE(process, exec_unaccelerated, "exec without LD_PRELOAD in the environment") {
  Link link = run.warm();
  run.peer_sends(link, 23);
  run.agent.begin(Order::receive_once, link.number, 23, MSG_WAITALL);  // it waits for the answer
  const std::string fd = number(link.fd);
  const int child = spawn_child(
      [](void* argument) {
        char* const arguments[] = {const_cast<char*>(own_program), const_cast<char*>("--echo"),
                                   static_cast<char*>(argument), const_cast<char*>("23"), nullptr};
        char* const nothing[] = {nullptr};
        ::execve(own_program, arguments, nothing);
        ::_exit(9);
      },
      const_cast<char*>(fd.c_str()));
  note_exit("child", child);
  note_answer(run);
  talk(run, link);
}

namespace {

// A child that becomes the static program and gives 23 bytes back.
int exec_static_echo(const Link& link) {
  const std::string fd = number(link.fd);
  return spawn_child(
      [](void* argument) {
        ::execl(static_program, static_program, static_cast<const char*>(argument), "23", nullptr);
        ::_exit(9);
      },
      const_cast<char*>(fd.c_str()));
}

}  // namespace

CASE(process, exec_static, "exec of a static program") {
  if (static_program == nullptr) return skip();
  Link link = run.warm();
  run.peer_sends(link, 23);
  run.agent.begin(Order::receive_once, link.number, 23, MSG_WAITALL);  // it waits for the answer
  const int child = exec_static_echo(link);
  note_exit("child", child);
  note_answer(run);
  talk(run, link);
}

CASE(process, exec_static_alone, "exec of a static program, bytes unread, while the peer is busy elsewhere") {
  if (static_program == nullptr) return skip();
  Link link = run.warm();
  run.peer_sends(link, 23);
  const int child = exec_static_echo(link);
  note_exit("child", child);
  run.peer_says("peer receives", Order::receive_once, link, 23, MSG_WAITALL);
  talk(run, link);
}

CASE(process, exec_static_much, "the same with more bytes unread than the peer's send buffer now takes") {
  if (static_program == nullptr) return skip();
  constexpr std::size_t kMuch = 400'000;
  struct {
    int level, option, value;
  } const limits[] = {{SOL_SOCKET, SO_SNDBUF, 4096}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384}};
  for (const auto& limit : limits) {
    Link link = run.warm();
    run.peer_sends(link, kMuch);
    run.peer_says("limit", Order::option, link, limit.level, limit.option, limit.value);
    const int child = exec_static_echo(link);
    note_exit("child", child);
    link.received += 23;
    note("received the rest %d", link.receive(kMuch - 23));
    run.peer_says("peer receives", Order::receive_once, link, 23, MSG_WAITALL);
    run.peer_sends(link, 100);
    note("received %d", link.receive(100));
    ::close(link.fd);
  }
}

CASE(process, exec_fails, "an exec that fails leaves everything as it was") {
  Link link = run.warm();
  run.peer_sends(link, 10);
  call("execl", ::execl("/nonexistent", "x", nullptr));
  note("received %d", link.receive(10));
  talk(run, link);
}

CASE(process, spawn, "posix_spawn with file actions: the connection as the child's descriptor 7") {
  for (const char* program : {own_program, static_program}) {
    if (program == nullptr) continue;
    Link link = run.warm();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, link.fd, 7);
    char own[] = "--echo", seven[] = "7", twenty[] = "20";
    char* dynamic[] = {const_cast<char*>(program), own, seven, twenty, nullptr};
    char* fixed[] = {const_cast<char*>(program), seven, twenty, nullptr};
    pid_t child = -1;
    call("posix_spawn",
         ::posix_spawn(&child, program, &actions, nullptr, program == own_program ? dynamic : fixed, environ));
    echo_by(run, link, "child", child);
    talk(run, link);
  }
}

CASE(process, vfork, "vfork, dup2 and exec in the child: the parent's descriptors stay") {
  Link link = run.warm();
  const std::string fd = number(link.fd);
  const pid_t child = ::vfork();
  if (child == 0) {
    ::dup2(link.fd, 7);
    ::close(link.fd);
    ::execl(own_program, own_program, "--echo", "7", "20", nullptr);
    ::_exit(9);
  }
  echo_by(run, link, "child", child);
  talk(run, link);
}

CASE(process, system, "system() starts a shell that uses the connection") {
  Link link = run.warm();
  if (link.fd > 9) ::dup2(link.fd, 9), link.fd = 9;  // shells know digits only
  note("sent %d", link.send(10));
  run.peer_receives(link, 10);
  const std::string order = "printf 'from the shell' >&" + number(link.fd);
  call("system", std::system(order.c_str()));
  run.peer_says("peer receives", Order::receive_once, link, 14, MSG_WAITALL);
  call("send", ::send(link.fd, "x", 1, 0));
  run.peer_says("peer receives", Order::receive_once, link, 1, MSG_WAITALL);
  run.peer_sends(link, 10);
  note("received %d", link.receive(10));
}

CASE(process, passed, "SCM_RIGHTS to a child, and to a program that is not accelerated; bytes unread") {
  for (const bool plain : {false, true}) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
    Link link = run.warm();
    run.peer_sends(link, 23);
    run.agent.begin(Order::receive_once, link.number, 23, MSG_WAITALL);
    int go[2];
    if (::pipe2(go, O_CLOEXEC) != 0) return;
    auto body = [&] {
      ::close(link.fd);
      const int fd = take_descriptor(pair[1]);
      char byte;
      if (::read(go[0], &byte, 1) != 1) return;
      const std::string text = number(fd);
      if (plain) {
        ::unsetenv("LD_PRELOAD");
        ::execl(own_program, own_program, "--echo", text.c_str(), "23", nullptr);
        ::_exit(9);
      }
      Link mine = link;
      mine.fd = fd;
      note("received by the child %d", mine.receive(23));
      note("sent by the child %d", mine.send(23));
    };
    const int child = spawn_child([](void* argument) { (*static_cast<decltype(body)*>(argument))(); }, &body);
    note("passed %d", pass_descriptor(pair[0], link.fd));
    call("close", ::close(link.fd));
    if (::write(go[1], "x", 1) != 1) return;
    note_exit("child", child);
    note_answer(run);
    run.peer_says("peer receives to the end", Order::receive_to_end, link);
    ::close(pair[0]);
    ::close(pair[1]);
  }
}

CASE(process, close_range, "close_range and closefrom close connections, and nothing that is needed for the others") {
  Link kept = run.warm();
  Link link = run.warm(), other = run.warm();
  ::dup2(link.fd, 120);
  ::close(link.fd);
  ::dup2(other.fd, 125);
  ::close(other.fd);
  call("close_range", ::close_range(120, 122, 0));
  run.peer_says("peer receives to the end", Order::receive_to_end, link);
  talk(run, kept);
  call("close_range cloexec", ::close_range(124, 126, CLOSE_RANGE_CLOEXEC));
  note("still there %d", ::fcntl(125, F_GETFD) == FD_CLOEXEC);
  in_child("child", [&] {
    ::closefrom(20);
    note("closed %d", ::fcntl(125, F_GETFD) == -1);
    note("sent by the child %d", kept.send(10));
  });
  kept.sent += 10;
  run.peer_receives(kept, 10);
  talk(run, kept);
  // Other threads would keep the descriptors that are unshared: the agent must not be one.
  call("close_range unshare", ::close_range(124, 126, run.agent.is_process() ? CLOSE_RANGE_UNSHARE : 0));
  run.peer_says("peer receives to the end", Order::receive_to_end, other);
  talk(run, kept);
  call("close_range backwards", ::close_range(9, 5, 0));
}

CASE(process, daemon, "what daemons do: closing every number in a loop, then going on with the connection") {
  Link link = run.warm();
  for (int fd = 300; fd < 5000; ++fd) ::close(fd);
  talk(run, link);
}

CASE(process, many_descriptors, "half of RLIMIT_NOFILE and more: connections never cost the program its descriptors") {
  if (!run.agent.is_process()) return skip();  // twice the descriptors
  const rlimit limit{300, 300};
  Link first = run.warm();
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return note("no setrlimit");
  std::vector<Link> links;
  for (int i = 0; i < 60; ++i) links.push_back(run.warm());
  int opened = 0;
  std::vector<int> files;
  for (int fd; opened < 150 && (fd = ::open("/dev/null", O_RDONLY)) >= 0; ++opened) files.push_back(fd);
  note("opened %d", opened);
  for (Link& link : links)
    if (!link.send(10) || run.agent.tell(Order::receive, link.number, 10).result != 10) note("a connection failed");
  for (const int fd : files) ::close(fd);
  talk(run, first);
  int sockets = 0;
  for (int fd; (fd = ::socket(AF_INET, SOCK_STREAM, 0)) >= 0; ++sockets) files.push_back(fd);
  note("as many sockets as natively: %d", sockets + 60 + opened);
  talk(run, first);
  for (Link& link : links)
    if (!link.send(10) || run.agent.tell(Order::receive, link.number, 10).result != 10) note("a connection failed");
}
