// poll, ppoll, select, pselect; signals.
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "sockets/conformance/harness.hpp"

using namespace conformance;

extern "C" {
int __poll_chk(pollfd*, nfds_t, int, size_t);
int __ppoll_chk(pollfd*, nfds_t, const timespec*, const sigset_t*, size_t);
}

namespace {

constexpr short kAll = POLLIN | POLLOUT | POLLRDHUP | POLLPRI;

void note_poll(const char* what, int fd, short events, int timeout = 1000) {
  pollfd entry{fd, events, 0};
  const int found = ::poll(&entry, 1, timeout);
  note("%s: poll = %d, %s", what, found, poll_bits(static_cast<unsigned>(entry.revents)).c_str());
}

volatile sig_atomic_t alarms = 0;
void on_alarm(int) {
  alarms = alarms + 1;
}
sigjmp_buf jump;
void on_alarm_jump(int) {
  siglongjmp(jump, 1);
}

void handle_alarm(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(SIGALRM, &action, nullptr);
}

void alarm_in(int ms) {
  const itimerval timer{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

void fill_up(int fd) {
  std::vector<char> much(std::size_t{1} << 20);
  for (std::size_t size = much.size(); size != 0; size /= 32)
    while (::send(fd, much.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

}  // namespace

CASE(wait, poll_states, "poll in every state of a connection") {
  Link link = run.warm();
  note_poll("idle", link.fd, kAll);
  note_poll("idle, reading only", link.fd, POLLIN, 0);
  run.peer_sends(link, 10);
  note_poll("data", link.fd, kAll);
  note_poll("data, normal", link.fd, POLLRDNORM | POLLWRNORM);
  note_poll("data, nothing asked", link.fd, 0, 0);
  note("received %d", link.receive(10));
  note_poll("read", link.fd, POLLIN, 0);
  run.peer_sends(link, 10);
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  note_poll("data and the end", link.fd, kAll);
  note_poll("data and the end, nothing asked", link.fd, 0, 0);
  note("received %d", link.receive(10));
  note_poll("the end", link.fd, kAll);
  note_poll("the end, reading only", link.fd, POLLIN);
  ::shutdown(link.fd, SHUT_WR);
  note_poll("both halves closed", link.fd, kAll);
  note_poll("both halves closed, nothing asked", link.fd, 0);
  Link other = run.warm();
  run.peer_says("peer resets", Order::abort, other);
  note_poll("reset", other.fd, kAll);
  note_poll("reset, nothing asked", other.fd, 0);
  ::close(other.fd);
  note_poll("closed", other.fd, kAll);
}

CASE(wait, poll_room, "poll for room: none, then some once the peer reads; the same with one that sends no more") {
  for (const bool ended : {false, true}) {
    Link link = run.warm();
    if (ended) run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
    fill_up(link.fd);
    note_poll("full", link.fd, POLLOUT, 30);
    fd_set writers;
    FD_ZERO(&writers);
    FD_SET(link.fd, &writers);
    timeval limit{0, 30'000};
    call("full, select", ::select(link.fd + 1, nullptr, &writers, nullptr, &limit));
    if (ended) note_poll("full, and the end", link.fd, POLLOUT | POLLRDHUP, 30);
    run.agent.begin(Order::receive_slowly, link.number, 100);
    note_poll("the peer reads", link.fd, POLLOUT, 5000);
    ::shutdown(link.fd, SHUT_WR);
    note("peer got much: %d", run.agent.end().result > 10'000);
    ::close(link.fd);
  }
}

CASE(wait, poll_mixed,
     "poll over a connection, a pipe, an eventfd, a listener and a closed number, in all orders of readiness") {
  Link link = run.warm(), second = run.warm();
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  const int event = ::eventfd(0, EFD_NONBLOCK);
  int port = 0;
  const int listener = listening(AF_INET, port);
  const auto look = [&](const char* what, int timeout) {
    pollfd entries[7] = {{link.fd, POLLIN, 0},  {pipe[0], POLLIN, 0}, {-1, POLLIN, 0},       {event, POLLIN, 0},
                         {listener, POLLIN, 0}, {88, POLLIN, 0},      {second.fd, POLLIN, 0}};
    ::usleep(500);  // readiness of other descriptors may be told a little later than that of connections
    const int found = ::poll(entries, 7, timeout);
    std::string text;
    for (const pollfd& entry : entries) text += " " + poll_bits(static_cast<unsigned>(entry.revents));
    note("%s = %d:%s", what, found, text.c_str());
  };
  look("nothing", 0);
  run.peer_sends(link, 3);
  look("first", 1000);
  if (::write(pipe[1], "x", 1) != 1) return;
  look("first and pipe", 1000);
  run.peer_sends(second, 3);
  const std::uint64_t one = 1;
  if (::write(event, &one, sizeof one) != sizeof one) return;
  look("first, pipe, event, second", 1000);
  note("received %d", link.receive(3));
  bool ok;
  const int client = connect_to(AF_INET, port, ok);
  look("pipe, event, listener, second", 1000);
  note("received %d", second.receive(3));
  ::close(client);
  look("the kernel's only", 1000);
}

CASE(wait, poll_wakes, "a sleeping poll, ppoll, select or pselect wakes for data and for the end") {
  Link link = run.warm();
  for (int how = 0; how < 6; ++how) {
    std::thread later([&] {
      ::usleep(30'000);
      run.agent.tell(Order::send, link.number, 5);
    });
    pollfd entry{link.fd, POLLIN, 0};
    const timespec time{3, 0};
    timeval shorter{3, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(link.fd, &set);
    int found = -1;
    switch (how) {
      case 0:
        found = ::poll(&entry, 1, 3000);
        break;
      case 1:
        found = ::ppoll(&entry, 1, &time, nullptr);
        break;
      case 2:
        found = ::select(link.fd + 1, &set, nullptr, nullptr, &shorter);
        break;
      case 3:
        found = ::pselect(link.fd + 1, &set, nullptr, nullptr, &time, nullptr);
        break;
      case 4:
        found = __poll_chk(&entry, 1, -1, sizeof entry);
        break;
      case 5:
        found = __ppoll_chk(&entry, 1, nullptr, nullptr, sizeof entry);
        break;
    }
    later.join();
    note("way %d = %d", how, found);
    if (how == 2) note("time left: %d", shorter.tv_sec <= 2 && shorter.tv_usec != 0);
    note("received %d", link.receive(5));
  }
  std::thread later([&] {
    ::usleep(30'000);
    run.agent.tell(Order::close, link.number);
  });
  note_poll("closed while asleep", link.fd, POLLIN | POLLRDHUP, -1);
  later.join();
}

CASE(wait, poll_while_young, "a thread sleeps in poll since before the connection was used much") {
  Link link = run.open();
  std::vector<std::string> seen;
  std::thread sleeper([&] {
    for (int i = 0; i < 1; ++i) {
      pollfd entry{link.fd, POLLRDHUP | POLLPRI, 0};
      const int found = ::poll(&entry, 1, 8000);
      seen.push_back(std::to_string(found) + " " + poll_bits(static_cast<unsigned>(entry.revents)));
    }
  });
  ::usleep(20'000);
  run.warm_up(link);
  run.peer_sends(link, 10);
  note("received %d", link.receive(10));
  run.peer_says("peer shuts down", Order::shutdown, link, SHUT_WR);
  sleeper.join();
  for (const std::string& text : seen) note("poll %s", text.c_str());
}

CASE(wait, poll_other_thread_sends, "one thread polls for answers, another sends the requests") {
  Link link = run.open();
  run.ask_while_another_waits(link, [&] {
    pollfd entry{link.fd, POLLIN, 0};
    return ::poll(&entry, 1, 3000);
  });
}

CASE(wait, select_sets, "select with reading, writing and exceptional sets, timeouts and bad descriptors") {
  Link link = run.warm(), idle = run.warm();
  run.peer_sends(link, 10);
  fd_set in, out, except;
  const auto fill_sets = [&] {
    for (fd_set* set : {&in, &out, &except}) {
      FD_ZERO(set);
      FD_SET(link.fd, set);
      FD_SET(idle.fd, set);
    }
  };
  const int most = std::max(link.fd, idle.fd) + 1;
  const auto say = [&](const char* what, int found) {
    call(what, found);
    note("in %d%d out %d%d except %d%d", FD_ISSET(link.fd, &in) != 0, FD_ISSET(idle.fd, &in) != 0,
         FD_ISSET(link.fd, &out) != 0, FD_ISSET(idle.fd, &out) != 0, FD_ISSET(link.fd, &except) != 0,
         FD_ISSET(idle.fd, &except) != 0);
  };
  fill_sets();
  timeval none{0, 0};
  say("select", ::select(most, &in, &out, &except, &none));
  fill_sets();
  say("select for reading", ::select(most, &in, nullptr, nullptr, nullptr));
  note("received %d", link.receive(10));
  fill_sets();
  timeval some{0, 30'000};
  FD_ZERO(&out);
  say("select, nothing", ::select(most, &in, &out, &except, &some));
  note("time left %ld", static_cast<long>(some.tv_sec * 1'000'000 + some.tv_usec));
  fill_sets();
  FD_SET(90, &in);
  say("select with a closed one", ::select(91, &in, nullptr, nullptr, &none));
  timeval bad{-1, 0};
  fill_sets();
  call("select with bad time", ::select(most, &in, nullptr, nullptr, &bad));
  const timespec wrong{0, 2'000'000'000};
  call("pselect with bad time", ::pselect(most, &in, nullptr, nullptr, &wrong, nullptr));
  pollfd entry{link.fd, POLLIN, 0};
  call("ppoll with bad time", ::ppoll(&entry, 1, &wrong, nullptr));
  run.peer_says("peer resets", Order::abort, link);
  fill_sets();
  say("select after a reset", ::select(most, &in, &out, &except, &none));
}

CASE(wait, one_half_on_tcp, "poll and epoll tell of both halves where one of them has gone back to TCP") {
  Link link = run.warm();
  call("urgent", ::send(link.fd, "x", 1, MSG_OOB));
  run.peer_sends(link, 10);
  ::usleep(1000);
  const int set = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.u64 = 1}};
  ::epoll_ctl(set, EPOLL_CTL_ADD, link.fd, &event);
  for (int i = 0; i < 3; ++i) {
    pollfd entry{link.fd, POLLIN | POLLOUT, 0};
    call("poll", ::poll(&entry, 1, 1000));
    call("epoll_wait", ::epoll_wait(set, &event, 1, 1000));
    note("%s, %s", poll_bits(static_cast<unsigned>(entry.revents)).c_str(), poll_bits(event.events).c_str());
  }
  for (const int fd : {set, link.fd}) ::close(fd);
}

CASE(signals, interrupted, "a handler without SA_RESTART ends recv, send, poll, select with EINTR") {
  Link link = run.warm();
  handle_alarm(on_alarm, 0);
  char in[16];
  alarm_in(40);
  call("recv", ::recv(link.fd, in, 1, 0));
  alarm_in(40);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 3000));
  alarm_in(40);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(link.fd, &set);
  call("select", ::select(link.fd + 1, &set, nullptr, nullptr, nullptr));
  run.peer_sends(link, 6);
  alarm_in(40);
  call("recv WAITALL with a part there", ::recv(link.fd, in, 16, MSG_WAITALL), in);
  note("alarms %d", static_cast<int>(alarms));
  fill_up(link.fd);
  const itimerval again{{0, 40'000}, {0, 40'000}};
  ::setitimer(ITIMER_REAL, &again, nullptr);
  call("send, full", ::send(link.fd, in, 1, 0));
  alarm_in(0);
}

CASE(signals, restarted,
     "with SA_RESTART recv and send go on, poll and select do not; a time limit makes recv give up") {
  Link link = run.warm();
  handle_alarm(on_alarm, SA_RESTART);
  char in[16];
  const auto later = [&](Order order, int a) {
    return std::thread([&run, &link, order, a] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      ::usleep(120'000);
      run.agent.tell(order, link.number, a);
    });
  };
  alarm_in(40);
  std::thread sender = later(Order::send, 5);
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  sender.join();
  alarm_in(40);
  pollfd entry{link.fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 3000));
  const timeval limit{2, 0};
  ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  alarm_in(40);
  call("recv with a time limit", ::recv(link.fd, in, 1, 0));
  const timeval none{};
  ::setsockopt(link.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
  run.peer_sends(link, 6);
  alarm_in(40);
  call("recv WAITALL with a part there", ::recv(link.fd, in, 16, MSG_WAITALL), in);
  note("alarms %d", static_cast<int>(alarms));
}

CASE(signals, mixed_handlers, "a handler with SA_RESTART beside one without: each as it was set up") {
  Link link = run.warm();
  handle_alarm(on_alarm, SA_RESTART);
  struct sigaction other {};
  other.sa_handler = on_alarm;
  ::sigaction(SIGUSR2, &other, nullptr);
  char in[16];
  const auto later = [&](Order order) {
    return std::thread([&run, &link, order] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      ::usleep(120'000);
      run.agent.begin(order, link.number, 5);
    });
  };
  alarm_in(40);
  std::thread sender = later(Order::send);
  call("recv", ::recv(link.fd, in, sizeof in, 0), in);
  sender.join();
  (void)run.agent.end();
  fill_up(link.fd);
  alarm_in(40);
  std::thread reader = later(Order::receive_to_end);
  call("send, full", ::send(link.fd, in, 1, 0));
  reader.join();
  ::shutdown(link.fd, SHUT_WR);
  (void)run.agent.end();
}

CASE(signals, longjmp, "a handler jumps out of recv, poll and send; the connection goes on") {
  Link link = run.warm();
  handle_alarm(on_alarm_jump, 0);
  char in[16];
  static volatile int i;  // kept across the jumps
  i = 0;
  while (i < 3) {
    if (sigsetjmp(jump, 1) == 0) {
      alarm_in(40);
      pollfd entry{link.fd, POLLIN, 0};
      if (i == 0) ::recv(link.fd, in, 1, 0);
      if (i == 1) ::poll(&entry, 1, -1);
      if (i == 2) {
        std::vector<char> much(std::size_t{64} << 20);
        ::send(link.fd, much.data(), much.size(), 0);
      }
      note("came back by itself");
    } else {
      note("jumped out of %d", static_cast<int>(i));
    }
    if (i != 2) {
      note("sent %d", link.send(100));
      run.peer_receives(link, 100);
      run.peer_sends(link, 100);
      note("received %d", link.receive(100));
    }
    i = i + 1;
  }
  run.peer_sends(link, 100);
  note("received %d", link.receive(100));
}

CASE(signals, masks, "ppoll and pselect let a blocked signal in for as long as they wait") {
  Link link = run.warm();
  handle_alarm(on_alarm, 0);
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGALRM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  ::raise(SIGALRM);
  note("alarms %d", static_cast<int>(alarms));
  pollfd entry{link.fd, POLLIN, 0};
  call("ppoll", ::ppoll(&entry, 1, nullptr, &before));
  note("alarms %d", static_cast<int>(alarms));
  ::raise(SIGALRM);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(link.fd, &set);
  call("pselect", ::pselect(link.fd + 1, &set, nullptr, nullptr, nullptr, &before));
  note("alarms %d", static_cast<int>(alarms));
}
