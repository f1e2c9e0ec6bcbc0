// What a program must not miss that always finds something at once, and so never sleeps in its calls.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"

namespace conformance {

namespace {

volatile sig_atomic_t alarms = 0;
void count_alarm(int) {
  alarms = alarms + 1;
}

double seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Questions and answers for a while, each answer waited for by `wait(fd, mask)`. The signal is let in there only.
template <class Wait>
void note_alarms(const char* what, Wait wait) {
  in_child(what, [&] {
    const OwnPair pair;
    pair.no_delay();
    pair.warm();
    if (const pid_t echo = ::fork(); echo == 0) {
      ::close(pair.client);
      for (char byte; ::recv(pair.server, &byte, 1, 0) == 1;) ::send(pair.server, &byte, 1, MSG_NOSIGNAL);
      ::_exit(0);
    }
    sigset_t alarm_only, before;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    ::sigprocmask(SIG_BLOCK, &alarm_only, &before);
    struct sigaction action {};
    action.sa_handler = count_alarm;
    ::sigaction(SIGALRM, &action, nullptr);
    constexpr int kEveryUs = 5000;
    const itimerval timer{{0, kEveryUs}, {0, kEveryUs}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
    bool good = true;
    for (const double end = seconds_now() + 0.3; seconds_now() < end && good;) {
      char byte = 'q';
      good = ::send(pair.client, &byte, 1, MSG_NOSIGNAL) == 1;
      int ready = 0;
      while ((ready = wait(pair.client, &before)) < 0 && errno == EINTR) continue;
      good = good && ready == 1 && ::recv(pair.client, &byte, 1, 0) == 1;
    }
    note("good %d, told of the alarm again and again %d", good, alarms >= 20);
    ::shutdown(pair.client, SHUT_RDWR);
  });
}

// A thread that does nothing else is cancelled, and ends.
template <class Call>
void note_cancelled(const char* what, Call call) {
  const auto body = [](void* argument) -> void* {
    for (;;) (*static_cast<Call*>(argument))();
  };
  pthread_t thread{};
  ::pthread_create(&thread, nullptr, body, &call);
  ::usleep(20'000);
  ::pthread_cancel(thread);
  timespec limit{};
  ::clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 2;
  note("%s: ended %d", what, ::pthread_timedjoin_np(thread, nullptr, &limit) == 0);
}

// Records of two processes come in whatever order, but whole, and each one's in its own.
constexpr int kRecords = 20'000;
struct Record {
  int who, number;
  char rest[32];
};

void send_records(int fd, int who) {
  for (int i = 0; i < kRecords; ++i) {
    Record record{who, i, {}};
    std::memset(record.rest, who * 31 + i % 7, sizeof record.rest);
    if (::send(fd, &record, sizeof record, MSG_NOSIGNAL) != sizeof record) ::_exit(1);
  }
}

bool all_records_come(int fd) {
  int next[2] = {};
  for (Record record; ::recv(fd, &record, sizeof record, MSG_WAITALL) == sizeof record;) {
    if (record.who < 0 || record.who > 1 || record.number != next[record.who]++) return false;
    for (const char byte : record.rest)
      if (byte != static_cast<char>(record.who * 31 + record.number % 7)) return false;
  }
  return next[0] == kRecords && next[1] == kRecords;
}

template <class Fork>
void note_records(const char* what, Fork fork_this) {
  const OwnPair pair;
  pair.warm();
  const pid_t reader = ::fork();
  if (reader == 0) {
    ::close(pair.client);
    ::_exit(all_records_come(pair.server) ? 0 : 1);
  }
  const pid_t sender = ::fork();
  if (sender == 0) {
    ::close(pair.server);
    const pid_t child = fork_this();
    send_records(pair.client, child == 0 ? 0 : 1);
    if (child != 0) ::waitpid(child, nullptr, 0);
    ::_exit(0);
  }
  ::close(pair.client);
  ::close(pair.server);
  note_exit(what, sender);
  int status = 0;
  ::waitpid(reader, &status, 0);
  note("%s: all came, in order %d", what, status == 0);
}

}  // namespace

CASE(signals, masked_while_busy, "epoll_pwait, ppoll and pselect let a signal in though every answer comes at once") {
  if (!run.agent.is_process()) return skip();
  note_alarms("epoll_pwait", [set = -1](int fd, const sigset_t* mask) mutable {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
    if (set < 0) set = ::epoll_create1(EPOLL_CLOEXEC), ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    return ::epoll_pwait(set, &event, 1, 2000, mask);
  });
  note_alarms("ppoll", [](int fd, const sigset_t* mask) {
    pollfd entry{fd, POLLIN, 0};
    const timespec limit{2, 0};
    return ::ppoll(&entry, 1, &limit, mask);
  });
  note_alarms("pselect", [](int fd, const sigset_t* mask) {
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    const timespec limit{2, 0};
    return ::pselect(fd + 1, &in, nullptr, nullptr, &limit, mask);
  });
}

CASE(signals, cancelled_while_busy, "pthread_cancel of threads whose calls never sleep") {
  Link link = run.warm();
  const int fd = link.fd, set = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  run.peer_sends(link, 3);
  pollfd entry{fd, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 2000));
  note_cancelled("poll", [fd] {
    pollfd one{fd, POLLIN, 0};
    ::poll(&one, 1, -1);
  });
  note_cancelled("epoll_wait", [set] {
    epoll_event one;
    ::epoll_wait(set, &one, 1, -1);
  });
  note_cancelled("recv", [fd] {
    char byte;
    ::recv(fd, &byte, 1, MSG_PEEK);
  });
  note_cancelled("send", [fd] {
    char byte = 0;
    ::send(fd, &byte, 0, MSG_NOSIGNAL);
  });
  note("received %d", link.receive(3));
  ::close(set);
  ::close(fd);
}

CASE(process, copied, "_Fork, and fork and clone by number: both processes send on one connection") {
  if (!run.agent.is_process()) return skip();
  note_records("_Fork", [] { return ::_Fork(); });
  note_records("fork by number", [] { return static_cast<pid_t>(::syscall(SYS_fork)); });
  note_records("clone by number", [] { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); });
}

CASE(data, reset_in_large_send, "a large send ends early by a reset, which the next one tells") {
  for (const int buffer : {8000, 16'000, 40'000, 200'000}) {
    in_child("sender", [buffer] {
      const OwnPair pair;
      ::setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
      const pid_t peer = ::fork();
      if (peer == 0) {
        ::close(pair.client);
        ::usleep(50'000);
        const linger at_once{1, 0};
        ::setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        ::close(pair.server);
        ::_exit(0);
      }
      ::close(pair.server);
      ::signal(SIGPIPE, SIG_DFL);
      const std::vector<char> much(std::size_t{8} << 20);
      const ssize_t sent = ::send(pair.client, much.data(), much.size(), 0);
      note("some %d", sent > 0 && sent < static_cast<ssize_t>(much.size()));
      call("the next", ::send(pair.client, much.data(), 1, 0));
      call("and the next", ::send(pair.client, much.data(), 1, MSG_NOSIGNAL));
      ::waitpid(peer, nullptr, 0);
    });
  }
}

}  // namespace conformance
