// Calls that signals come into, handlers that call, and threads that are to be cancelled.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "sockets/conformance/harness.hpp"
#include "sockets/conformance/own_pair.hpp"

extern char** environ;

using namespace conformance;

CASE(signals, sendfile_ended, "a blocking sendfile, ended by a signal without SA_RESTART, returns what was sent") {
  Link link = run.warm();
  constexpr std::size_t kSize = std::size_t{100} << 20;
  const int file = ::memfd_create("file", 0);
  if (::ftruncate(file, kSize) != 0) note("ftruncate failed");
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval soon{{0, 0}, {0, 800'000}};  // what nobody reads goes over TCP by then
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  off_t offset = 0;
  const ssize_t sent = ::sendfile(link.fd, file, &offset, kSize);
  note("some %d, all %d, the offset tells as much %d", sent > 0, sent == static_cast<ssize_t>(kSize), offset == sent);
  run.agent.tell(Order::abort, link.number);
  for (const int fd : {file, link.fd}) ::close(fd);
}

CASE(signals, poll_on_small_stack, "poll in a handler that runs on a stack of 8192 bytes") {
  static Link link;
  static int found;
  link = run.warm();
  // With a page before it that nobody may touch.
  constexpr std::size_t kPage = 4096;
  const auto size = std::max<std::size_t>(8192, static_cast<std::size_t>(::sysconf(_SC_MINSIGSTKSZ)));
  void* const memory = ::mmap(nullptr, kPage + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::mprotect(memory, kPage, PROT_NONE);
  const stack_t stack{.ss_sp = static_cast<char*>(memory) + kPage, .ss_flags = 0, .ss_size = size};
  call("sigaltstack", ::sigaltstack(&stack, nullptr));
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = [](int) {
    pollfd entry{link.fd, POLLIN, 0};
    found = ::poll(&entry, 1, 20);
  };
  ::sigaction(SIGUSR1, &action, nullptr);
  ::raise(SIGUSR1);
  note("found %d", found);
  run.peer_sends(link, 1);
  ::raise(SIGUSR1);
  note("found %d", found);
  ::close(link.fd);
}

namespace {

// Connections whose ends meet with the next send.
constexpr int kAboutToMeet = 150;
int about_to_meet[kAboutToMeet];
volatile sig_atomic_t handled = 0;

// The end with the lower port waits for the other one.
int connection_about_to_meet() {
  int port = 0;
  bool ok = false;
  const int listener = listening(AF_INET, port);
  const int client = connect_to(AF_INET, port, ok);
  const int server = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  ::getsockname(client, reinterpret_cast<sockaddr*>(&own), &size);
  const bool client_waits = ntohs(own.sin_port) < port;
  const int waits = client_waits ? client : server, calls = client_waits ? server : client;
  std::array<char, 6> bytes{};
  for (const char& byte : bytes) ::send(waits, &byte, 1, 0);
  if (::recv(calls, bytes.data(), bytes.size(), MSG_WAITALL) != 6) note("recv failed");
  for (int i = 0; i < 3; ++i) ::send(calls, "y", 1, 0);
  return calls;
}

void send_in_handlers() {
  for (int& fd : about_to_meet) fd = connection_about_to_meet();
  std::thread([] {  // malloc locks from now on
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::pause();
  })
      .detach();
  struct sigaction action {};
  action.sa_flags = SA_RESTART;
  action.sa_handler = [](int) {
    if (handled < kAboutToMeet && ::send(about_to_meet[handled], "q", 1, 0) == 1) handled = handled + 1;
  };
  ::sigaction(SIGUSR1, &action, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  ::timer_create(CLOCK_MONOTONIC, &event, &timer);
  const itimerspec often{{0, 2'000'000}, {0, 2'000'000}};
  ::alarm(3);
  ::timer_settime(timer, 0, &often, nullptr);
  static std::array<void*, 4096> pieces;
  while (handled < kAboutToMeet) {
    for (void*& piece : pieces) piece = std::malloc(56);
    for (std::size_t i = 0; i < pieces.size(); ++i) std::free(pieces[i * 37 % pieces.size()]);
  }
  ::_exit(0);
}

}  // namespace

CASE(signals, meet_in_malloc, "a handler that interrupts malloc sends, and the ends of the connection meet") {
  in_child("the child", send_in_handlers);
  note("done");
}

namespace {

// Calls `body` in a thread that has been cancelled and has not noticed yet. It does not note: that would be noticing.
template <class Body>
void note_whether_cancelled(const char* what, Body body) {
  const auto cancelled_thread = [](void* argument) -> void* {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    ::pthread_cancel(::pthread_self());
    ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    (*static_cast<Body*>(argument))();
    return nullptr;
  };
  pthread_t thread{};
  void* result = nullptr;
  ::pthread_create(&thread, nullptr, cancelled_thread, &body);
  ::pthread_join(thread, &result);
  note("%s: %s", what, result == PTHREAD_CANCELED ? "cancelled" : "returned");
}

}  // namespace

CASE(process, cancel_pending, "socket, dup2, posix_spawn and _exit are no cancellation points") {
  in_child("the first socket", [] {
    int fd = -1;
    note_whether_cancelled("socket", [&] { fd = ::socket(AF_INET, SOCK_STREAM, 0); });
    note("a socket %d", fd >= 0);
  });
  in_child("dup2", [] {
    const OwnPair pair;
    pair.warm();
    int result = -1;
    note_whether_cancelled("dup2", [&] { result = ::dup2(1, pair.client); });
    note("the number %d", result == pair.client);
  });
  in_child("posix_spawn", [] {
    const OwnPair pair;
    pair.warm();
    pid_t child = -1;
    char name[] = "true";
    char* const words[] = {name, nullptr};
    int result = -1;
    note_whether_cancelled("posix_spawn",
                           [&] { result = ::posix_spawn(&child, "/bin/true", nullptr, nullptr, words, environ); });
    note("result %d", result);
    if (result == 0) note_exit("true", child);
  });
  in_child("_exit", [] {
    const OwnPair pair;
    pair.warm();
    // Somebody was woken, and nobody has read what woke him.
    std::thread sleeper([&] {
      pollfd entry{pair.server, POLLIN, 0};
      ::poll(&entry, 1, 3000);
    });
    ::usleep(50'000);
    ::send(pair.client, "x", 1, 0);
    sleeper.join();
    note_whether_cancelled("_exit", [] { ::_exit(7); });
  });
}

namespace {

// A handler that gives up a connection and takes its time to open another, which gets the same number.
int reopened_fd = -1;
int reopened_port = 0;
volatile sig_atomic_t reopenings = 0;

void reopen(int) {
  const int kept = errno;
  ::close(reopened_fd);
  ::usleep(130'000);
  bool ok = false;
  reopened_fd = connect_to(AF_INET, reopened_port, ok);
  const std::uint64_t word = 0;
  ::send(reopened_fd, &word, sizeof word, MSG_NOSIGNAL);  // so that whoever goes on there is answered
  reopenings = reopenings + 1;
  errno = kept;
}

// Each connection in a process of its own, words come back a little later.
[[noreturn]] void echo_words(int listener) {
  for (;;) {
    const int fd = ::accept(listener, nullptr, nullptr);
    if (fd >= 0 && ::fork() == 0)
      for (std::uint64_t word; ::recv(fd, &word, sizeof word, MSG_WAITALL) == sizeof word;) {
        timespec begin{}, now{};
        ::clock_gettime(CLOCK_MONOTONIC, &begin);
        do ::clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - begin.tv_sec) * 1'000'000'000 + now.tv_nsec - begin.tv_nsec < 20'000);
        if (::send(fd, &word, sizeof word, MSG_NOSIGNAL) != sizeof word) break;
      }
    else
      ::close(fd);
    if (fd < 0) ::_exit(0);
  }
}

// Whatever was asked before, the words that come are whole and the last one is the last that was asked.
bool answers_in_words(int fd, std::uint64_t last) {
  const timeval limit{2, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::send(fd, &last, sizeof last, MSG_NOSIGNAL) != sizeof last) return false;
  for (std::uint64_t word = 0; word != last;)
    if (::recv(fd, &word, sizeof word, MSG_WAITALL) != sizeof word || word > last) return false;
  const timeval none{0, 0};
  return ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0;
}

}  // namespace

CASE(signals, reopened_by_handler,
     "a handler closes the connection that recv waits on, and opens another in its place") {
  if (!run.agent.is_process()) return skip();
  for (const int flags : {0, SA_RESTART})
    in_child("asker", [flags] {
      const int listener = listening(AF_INET, reopened_port);
      ::signal(SIGCHLD, SIG_IGN);
      const pid_t echo = ::fork();
      if (echo == 0) ::setpgid(0, 0), echo_words(listener);
      ::close(listener);
      struct sigaction action {};
      action.sa_handler = reopen;
      action.sa_flags = flags;
      ::sigaction(SIGALRM, &action, nullptr);
      bool ok = false;
      reopened_fd = connect_to(AF_INET, reopened_port, ok);
      std::uint64_t asked = 0;
      int good = 0;
      for (int round = 0; round < 4; ++round) {
        const itimerval soon{{0, 0}, {0, 4000}};
        ::setitimer(ITIMER_REAL, &soon, nullptr);
        for (const int before = reopenings; reopenings == before;) {
          const std::uint64_t word = ++asked;
          ::send(reopened_fd, &word, sizeof word, MSG_NOSIGNAL);
          std::uint64_t answer;
          if (reopenings == before) (void)!::recv(reopened_fd, &answer, sizeof answer, 0);
        }
        if (answers_in_words(reopened_fd, ++asked)) ++good;
      }
      note("good %d", good);
      ::kill(-echo, SIGKILL);
    });
}
