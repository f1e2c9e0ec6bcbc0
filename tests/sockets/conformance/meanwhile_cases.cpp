// What goes on beside a call: other threads that start programs, close or cancel, handlers, a peer that just ends.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "sockets/conformance/harness.hpp"

extern char** environ;

namespace conformance {

namespace {

// One end is a child's that runs `body` with it; the other is returned.
template <class Body>
int with_child(Body body, pid_t& child) {
  int port = 0;
  const int listener = listening(AF_INET, port);
  child = ::fork();
  if (child == 0) {
    bool ok = false;
    const int fd = connect_to(AF_INET, port, ok);
    ::close(listener);
    char byte;
    for (int i = 0; ok && i < 60; ++i) ok = ::recv(fd, &byte, 1, 0) == 1 && ::send(fd, &byte, 1, 0) == 1;
    if (ok) body(fd);
    ::_exit(3);
  }
  const int fd = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  char byte = 'w';
  for (int i = 0; i < 60; ++i)
    if (::send(fd, &byte, 1, 0) != 1 || ::recv(fd, &byte, 1, 0) != 1) note("the child does not answer");
  return fd;
}

}  // namespace

CASE(life, closed_by_number, "a socket is closed by syscall(); its number is then a file's") {
  Link link = run.warm();
  const int number = link.fd;
  call("syscall(SYS_close)", ::syscall(SYS_close, number));
  int file;
  do {  // numbers before it may be free too
    char name[] = "/tmp/conformance-XXXXXX";
    file = ::mkstemp(name);
    ::unlink(name);
  } while (file >= 0 && file < number);
  note("the same number %d", file == number);
  call("write", ::write(file, "four", 4));
  struct stat info {};
  ::fstat(file, &info);
  note("size %d", static_cast<int>(info.st_size));
  ::close(file);
  run.peer_says("the peer receives", Order::receive_once, link, 10, 0);
}

CASE(life, peer_exits,
     "a peer that has read everything ends by exit(), without close(): what is sent then, and the end") {
  pid_t child = 0;
  const int fd = with_child([](int) { std::exit(0); }, child);
  note_exit("the peer", child);
  ::usleep(20'000);
  char byte = 'x';
  call("send", ::send(fd, &byte, 1, MSG_NOSIGNAL));
  ::usleep(20'000);
  call("send", ::send(fd, &byte, 1, MSG_NOSIGNAL));
  call("recv", ::recv(fd, &byte, 1, 0));
  call("recv", ::recv(fd, &byte, 1, 0));
  ::close(fd);
}

CASE(wait, end_beside_room, "poll and select for data and room tell of a peer that was killed") {
  for (const bool by_select : {false, true}) {
    pid_t child = 0;
    const int fd = with_child([](int) { ::pause(); }, child);
    pollfd entry{fd, POLLIN | POLLOUT, 0};
    call("poll", ::poll(&entry, 1, 0));
    note("before %s", poll_bits(static_cast<unsigned>(entry.revents)).c_str());
    ::kill(child, SIGKILL);
    note_exit("the peer", child);
    bool told = false;
    for (int i = 0; !told && i < 500; ++i) {
      ::usleep(1000);
      fd_set in, out;
      FD_ZERO(&in);
      FD_ZERO(&out);
      FD_SET(fd, &in);
      FD_SET(fd, &out);
      timeval none{};
      if (by_select)
        told = ::select(fd + 1, &in, &out, nullptr, &none) > 0 && FD_ISSET(fd, &in);
      else
        told = ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
    }
    note("told %d", told);
    ::close(fd);
  }
}

CASE(options, unread_beside, "TCP_INQ: each message says how much is left") {
  Link link = run.open();
  const int on = 1;
  call("TCP_INQ", ::setsockopt(link.fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
  run.warm_up(link);
  run.peer_sends(link, 10);
  ::usleep(20'000);
  const auto receive = [&](std::size_t size) {
    std::array<char, 32> in;
    alignas(cmsghdr) std::array<char, 64> control{};
    iovec piece{in.data(), size};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (call("recvmsg", ::recvmsg(link.fd, &message, MSG_DONTWAIT)) < 0) return;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    int left = -1;
    if (header != nullptr && header->cmsg_type == TCP_CM_INQ) std::memcpy(&left, CMSG_DATA(header), sizeof left);
    note("left %d, control %d", left, static_cast<int>(message.msg_controllen));
  };
  for (const std::size_t size : {3, 3, 10, 1}) receive(size);
  run.peer_says("the peer sends", Order::send_once, link, 2, 0);
  run.peer_says("the peer ends", Order::shutdown, link, SHUT_WR);
  ::usleep(20'000);
  for (int i = 0; i < 3; ++i) receive(1);
  ::close(link.fd);
}

CASE(process, options_across_exec, "options of a connection in the program that exec started") {
  Link link = run.warm();
  const int low = 10;
  call("SO_RCVLOWAT", ::setsockopt(link.fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
  const std::string fd = std::to_string(link.fd);
  const int child = spawn_child(
      [](void* argument) {
        ::execl(own_program, own_program, "--options", static_cast<const char*>(argument), nullptr);
        ::_exit(9);
      },
      const_cast<char*>(fd.c_str()));
  note_exit("child", child);
  ::close(link.fd);
}

namespace {

pid_t start_by_vfork(char* const* words) {
  const pid_t child = ::vfork();
  if (child == 0) {
    ::execv(words[0], words);
    ::_exit(9);
  }
  return child;
}

pid_t start_by_spawn(char* const* words) {
  pid_t child = -1;
  note("posix_spawn %d", ::posix_spawn(&child, words[0], nullptr, nullptr, words, environ));
  return child;
}

}  // namespace

CASE(process, spawn_parent_closes,
     "posix_spawn and vfork pass a connection on, bytes unread, and the parent closes at once") {
  for (const bool by_vfork : {false, true}) {
    Link link = run.warm();
    run.peer_sends(link, 50'000);
    const std::string fd = std::to_string(link.fd);
    char* const words[] = {const_cast<char*>(own_program), const_cast<char*>("--echo"), const_cast<char*>(fd.c_str()),
                           const_cast<char*>("50000"), nullptr};
    const pid_t child = by_vfork ? start_by_vfork(words) : start_by_spawn(words);
    call("close", ::close(link.fd));
    run.peer_says("the peer receives", Order::receive_once, link, 50'000, MSG_WAITALL);
    run.peer_says("and the end", Order::receive_once, link, 1, 0);
    note_exit("child", child);
  }
}

CASE(process, programs_at_once, "threads start programs by posix_spawn, system and popen, all at once") {
  Link link = run.warm();
  ::setenv("CONFORMANCE", "1", 1);
  std::atomic<int> wrong{0};
  const auto several = [&](auto&& start) {
    return std::thread([&wrong, start] {
      for (int i = 0; i < 15; ++i) wrong += start() && std::getenv("CONFORMANCE") != nullptr ? 0 : 1;
    });
  };
  const auto by_system = [] { return ::system("exit 3") == 3 << 8; };
  const auto by_popen = [] {
    FILE* const output = ::popen("echo $CONFORMANCE", "r");
    char line[8] = {};
    const bool read = output != nullptr && std::fgets(line, sizeof line, output) != nullptr;
    return read && ::pclose(output) == 0 && line[0] == '1';
  };
  const auto by_spawn = [] {
    char name[] = "true";
    char* const words[] = {name, nullptr};
    pid_t pid = 0;
    int status = -1;
    return ::posix_spawn(&pid, "/bin/true", nullptr, nullptr, words, environ) == 0 &&
           ::waitpid(pid, &status, 0) == pid && status == 0;
  };
  std::vector<std::thread> threads;
  threads.push_back(several(by_system));
  threads.push_back(several(by_system));
  threads.push_back(several(by_popen));
  threads.push_back(several(by_popen));
  threads.push_back(several(by_spawn));
  for (std::thread& thread : threads) thread.join();
  note("wrong %d", wrong.load());
  note("sent %d", link.send(1000));
  run.peer_receives(link, 1000);
  ::close(link.fd);
}

CASE(epoll, closed_meanwhile, "one thread waits, another closes members: no event has data that nobody put there") {
  const int set = ::epoll_create1(0);
  constexpr std::uint64_t kOurs = 0xabcdef;
  std::atomic<bool> over{false};
  std::atomic<int> foreign{0};
  std::thread waiter([&] {
    std::array<epoll_event, 64> events;
    while (!over) {
      const int found = ::epoll_wait(set, events.data(), static_cast<int>(events.size()), 10);
      for (int i = 0; i < found; ++i) foreign += events[static_cast<std::size_t>(i)].data.u64 >> 16 != kOurs ? 1 : 0;
    }
  });
  int port = 0;
  const int listener = listening(AF_INET, port);
  for (int i = 0; i < 2000; ++i) {
    bool ok = false;
    const int one = connect_to(AF_INET, port, ok);
    const int other = ::accept(listener, nullptr, nullptr);
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = kOurs << 16 | static_cast<unsigned>(other)}};
    ::epoll_ctl(set, EPOLL_CTL_ADD, other, &event);
    ok = ok && ::send(one, "hello", 5, 0) == 5;
    for (volatile int wait = i % 50 * 40; wait > 0;) wait = wait - 1;
    ::close(other);
    ::close(one);
  }
  over = true;
  waiter.join();
  note("foreign %d", foreign.load());
  ::close(listener);
  ::close(set);
}

CASE(signals, cancelled,
     "pthread_cancel of threads that sleep in recv, poll, select and epoll_wait; the connection goes on") {
  Link link = run.warm();
  static int fd, set;
  fd = link.fd;
  set = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  using Body = void* (*)(void*);
  const Body bodies[] = {
      [](void*) -> void* {
        char byte;
        for (;;) ::recv(fd, &byte, 1, 0);
      },
      [](void*) -> void* {
        pollfd entry{fd, POLLIN, 0};
        for (;;) ::poll(&entry, 1, -1);
      },
      [](void*) -> void* {
        for (;;) {
          fd_set in;
          FD_ZERO(&in);
          FD_SET(fd, &in);
          ::select(fd + 1, &in, nullptr, nullptr, nullptr);
        }
      },
      [](void*) -> void* {
        epoll_event found;
        for (;;) ::epoll_wait(set, &found, 1, -1);
      },
      [](void*) -> void* {
        char byte;
        for (;;) ::recv(fd, &byte, 1, MSG_DONTWAIT);
      },
  };
  for (const Body body : bodies)
    for (const int delay : {0, 20'000}) {
      pthread_t thread;
      ::pthread_create(&thread, nullptr, body, nullptr);
      ::usleep(static_cast<useconds_t>(delay));
      ::pthread_cancel(thread);
      void* result = nullptr;
      ::pthread_join(thread, &result);
      note("cancelled %d", result == PTHREAD_CANCELED);
      run.peer_sends(link, 5);
      epoll_event found;
      call("epoll_wait", ::epoll_wait(set, &found, 1, 1000));
      note("received %d", link.receive(5));
    }
  ::close(set);
  ::close(fd);
}

namespace {

int handler_fd = -1;
volatile sig_atomic_t handler_sent = 0;

void send_from_handler(int) {
  const int kept = errno;
  const unsigned char mark = 0xff;
  if (::send(handler_fd, &mark, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) handler_sent = handler_sent + 1;
  errno = kept;
}

// Of what the two sent, in whatever order: exits with 0 where it was all, and whole.
void receive_both(int fd) {
  std::vector<unsigned char> in(65536);
  std::uint64_t of_program = 0, of_handler = 0;
  for (ssize_t got; (got = ::recv(fd, in.data(), in.size(), 0)) > 0;)
    for (ssize_t i = 0; i < got; ++i) {
      const unsigned char byte = in[static_cast<std::size_t>(i)];
      if (byte == 0xff)
        ++of_handler;
      else if (byte != of_program++ % 251)
        ::_exit(1);
    }
  std::uint64_t sent[2] = {of_program, of_handler};
  ::send(fd, sent, sizeof sent, 0);
  ::_exit(0);
}

}  // namespace

CASE(signals, handler_sends, "a handler sends on the connection that the program is sending on") {
  pid_t child = 0;
  handler_fd = with_child(receive_both, child);
  handler_sent = 0;
  struct sigaction action {};
  action.sa_handler = send_from_handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  itimerval often{{0, 150}, {0, 150}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  std::vector<unsigned char> out(60'000);
  std::uint64_t sent = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t size = i % 8 == 0 ? out.size() : 1 + static_cast<std::size_t>(i) % 100;
    for (std::size_t k = 0; k < size; ++k) out[k] = static_cast<unsigned char>((sent + k) % 251);
    for (std::size_t done = 0; done < size;) {
      const ssize_t part = ::send(handler_fd, out.data() + done, size - done, MSG_NOSIGNAL);
      if (part < 0 && errno != EINTR) return note("send failed: %d", errno);
      done += part > 0 ? static_cast<std::size_t>(part) : 0;
    }
    sent += size;
  }
  often = {};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  ::signal(SIGALRM, SIG_DFL);
  ::shutdown(handler_fd, SHUT_WR);
  std::uint64_t got[2] = {};
  call("the count", ::recv(handler_fd, got, sizeof got, MSG_WAITALL));
  note("the program's %d, the handler's %d", got[0] == sent, got[1] == static_cast<std::uint64_t>(handler_sent));
  note_exit("child", child);
  ::close(handler_fd);
}

CASE(signals, handler_closes,
     "a handler closes the connection that the program is sending on: eight times, by itself") {
  in_child("the program", [] {
    static volatile sig_atomic_t closed;
    ::signal(SIGPIPE, SIG_IGN);
    struct sigaction action {};
    action.sa_handler = [](int) {
      ::close(handler_fd);
      closed = 1;
    };
    ::sigaction(SIGALRM, &action, nullptr);
    const std::vector<char> much(std::size_t{1} << 20);
    for (int i = 0; i < 8; ++i) {
      const auto receive_to_end = [](int fd) {
        std::vector<char> in(std::size_t{1} << 20);
        while (::recv(fd, in.data(), in.size(), 0) > 0) {
        }
        ::_exit(0);
      };
      pid_t reader = 0;
      handler_fd = with_child(receive_to_end, reader);
      closed = 0;
      const itimerval soon{{0, 0}, {0, 20'000 + i * 1777}};
      ::setitimer(ITIMER_REAL, &soon, nullptr);
      while (closed == 0 && ::send(handler_fd, much.data(), much.size(), 0) > 0) {
      }
      note("closed %d", static_cast<int>(closed));
      note_exit("the reader", reader);
    }
  });
}

CASE(process, shutdown_wakes_sender, "shutdown in one thread ends the send of another at once") {
  Link link = run.warm();
  ::signal(SIGPIPE, SIG_IGN);
  std::vector<char> much(std::size_t{64} << 20);
  std::atomic<bool> done{false};
  std::thread sender([&] {
    (void)!::send(link.fd, much.data(), much.size(), 0);
    done = true;
  });
  ::usleep(50'000);  // full by now, and asleep
  ::shutdown(link.fd, SHUT_WR);
  ::usleep(50'000);
  note("done %d", done.load());
  sender.join();
}

}  // namespace conformance
