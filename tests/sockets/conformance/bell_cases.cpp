// What ends a sleep where the ends do not ring over TCP: it comes late, or for nobody; to a set that a child has too,
// to a list that is as long as may be.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"

namespace conformance {

namespace {

int put(int set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(set, operation, fd, &event);
}

int wait_for(int set, int timeout_ms) {
  epoll_event event{};
  return ::epoll_wait(set, &event, 1, timeout_ms);
}

// The peer has rung for sleeps in that set, and need not do so over TCP any more.
void sleep_often(Run& run, Link& link, int set) {
  run.ask_while_another_waits(link, [set] { return wait_for(set, 2000); });
}

void use_processor(int which) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(which, &only);
  ::sched_setaffinity(0, sizeof only, &only);
}

// This thread runs on the first processor, and only when nobody else wants that.
void come_last() {
  use_processor(0);
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_IDLE, &none);
}

std::uint64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// A process that keeps the first processor busy for as long as `meanwhile` takes it, from when a thread sleeps that
// comes last there: whatever wakes that one, it runs when all is over. Made before there is a connection, which it
// would share.
class Hog {
 public:
  template <class Meanwhile>
  explicit Hog(Meanwhile meanwhile) {
    if (::pipe2(begin_, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::alarm(8);
    pid_t thread = 0;
    if (::read(begin_[0], &thread, sizeof thread) != sizeof thread) ::_exit(1);
    wait_until_it_sleeps(::getppid(), thread);
    const pid_t busy = ::fork();
    if (busy == 0) {
      use_processor(0);
      const sched_param first{.sched_priority = 1};
      ::sched_setscheduler(0, SCHED_FIFO, &first);  // who may not do that is still before the one that comes last
      for (const std::uint64_t end = now_ms() + 700; now_ms() < end;) continue;
      ::_exit(0);
    }
    meanwhile();
    ::kill(busy, SIGKILL);
    ::waitpid(busy, nullptr, 0);
    ::_exit(0);
  }

  // What `wait` returns in a thread that comes last.
  template <class Wait>
  int result_of(Wait wait) const {
    int result = -2;
    std::thread waiter([&] {
      come_last();
      const pid_t self = ::gettid();
      if (::write(begin_[1], &self, sizeof self) == sizeof self) result = wait();
    });
    waiter.join();
    note_exit("the busy one", pid_);
    for (const int fd : begin_) ::close(fd);
    return result;
  }

 private:
  static void wait_until_it_sleeps(pid_t pid, pid_t thread) {
    const std::string path = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/syscall";
    for (int seen = 0; seen < 20; ::usleep(1000)) {
      char text[32] = {};
      const int file = ::open(path.c_str(), O_RDONLY);
      if (file < 0 || ::read(file, text, sizeof text - 1) <= 0) text[0] = 'r';
      ::close(file);
      seen = text[0] == 'r' ? 0 : seen + 1;  // running
    }
  }

  int begin_[2] = {-1, -1};
  pid_t pid_ = -1;
};

}  // namespace

CASE(wait, rung_in_time, "epoll_wait with a limit: what came within it is told, though the process runs again later") {
  if (!run.agent.is_process()) return skip();
  const Hog hog([&] {
    run.agent.tell(Order::send, 0, 1);
    ::usleep(1'200'000);  // the limit is over; what sends had a second to run
  });
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLIN));
  sleep_often(run, link, set);
  call("told", hog.result_of([set] { return wait_for(set, 1000); }));
  note("received %d", link.receive(1));
  for (const int fd : {set, link.fd}) ::close(fd);
}

CASE(epoll, late_bell_seen_from_outside,
     "a set tells of a pipe and has room for no more; the message that came too is read: it has nothing, says poll") {
  if (!run.agent.is_process()) return skip();
  int pipe[2];
  if (::pipe(pipe) != 0) return;
  const Hog hog([&] {
    if (::write(pipe[1], "p", 1) != 1) ::_exit(2);
    run.agent.tell(Order::send, 0, 1);
  });
  Link link = run.warm();
  const int set = ::epoll_create1(0), outer = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLIN));
  call("ADD", put(set, EPOLL_CTL_ADD, pipe[0], EPOLLIN));
  call("ADD", put(outer, EPOLL_CTL_ADD, set, EPOLLIN));
  sleep_often(run, link, set);
  call("told", hog.result_of([set] { return wait_for(set, 3000); }));
  char byte;
  call("the pipe", ::read(pipe[0], &byte, 1));
  note("received %d", link.receive(1));
  pollfd entry{set, POLLIN, 0};
  call("poll", ::poll(&entry, 1, 0));
  call("the set around it", wait_for(outer, 0));
  call("inside", wait_for(set, 0));
  for (const int fd : {set, outer, link.fd, pipe[0], pipe[1]}) ::close(fd);
}

CASE(wait, poll_as_many_as_there_may_be, "poll with as many entries as the process may have descriptors, asleep") {
  constexpr rlim_t kMost = 128;
  Link link = run.warm();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = kMost;
  call("setrlimit", ::setrlimit(RLIMIT_NOFILE, &limit));
  std::vector<pollfd> entries(kMost, {-1, 0, 0});
  entries[kMost / 2] = {link.fd, POLLIN, 0};
  run.agent.begin(Order::echo, link.number, 20);
  for (int i = 0; i < 20; ++i) {
    std::thread late([&] {
      ::usleep(2000);
      if (!link.send(1)) note("not sent");
    });
    if (const int found = ::poll(entries.data(), entries.size(), 2000); found != 1) call("poll", found);
    late.join();
    if (!link.receive(1)) note("not received");
  }
  note("echoed %d", static_cast<int>(run.agent.end().result));
  ::close(link.fd);
}

CASE(epoll, fork_beside_sleeper,
     "a thread sleeps in epoll_wait, another forks; the child asks the set again and again: the thread is told too") {
  if (!run.agent.is_process()) return skip();
  Link link = run.warm();
  const int set = ::epoll_create1(0);
  call("ADD", put(set, EPOLL_CTL_ADD, link.fd, EPOLLIN));
  sleep_often(run, link, set);
  std::atomic<int> told = -1;
  std::thread sleeper([&] {
    come_last();
    told = wait_for(set, 4000);
  });
  ::usleep(50'000);
  int ready[2];
  if (::pipe(ready) != 0) return;
  auto body = [&] {
    use_processor(0);
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    for (const std::uint64_t end = now_ms() + 200; now_ms() < end;) (void)wait_for(set, 0);
  };
  const int child = spawn_child([](void* argument) { (*static_cast<decltype(body)*>(argument))(); }, &body);
  char byte;
  if (::read(ready[0], &byte, 1) != 1) note("no child");
  run.agent.tell(Order::send, link.number, 1);
  note_exit("the child", child);
  for (int ms = 0; ms < 1500 && told < 0; ++ms) ::usleep(1000);
  note("told %d", told.load());
  ++link.sent;
  run.agent.tell(Order::send, link.number, 1);  // should it sleep still
  sleeper.join();
  for (const int fd : {ready[0], ready[1], set, link.fd}) ::close(fd);
}

}  // namespace conformance
