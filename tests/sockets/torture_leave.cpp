// Two threads at each end of a connection send, receive and shut down as they like, while it is asked to go back to TCP
// and programs are started that inherit it. Every byte is looked at.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "torture.hpp"

extern char** environ;

namespace viaduct::sockets::torture {

namespace {

// What both ends know, in memory that they share.
struct Plan {
  unsigned seed = 0;
  std::uint64_t bytes[2] = {};  // that the end sends
  bool starts_programs = false;
  std::atomic<bool> gives_up[2] = {};  // the end has left before everything came: errors are in order
  std::atomic<int> wrong = 0;
};

std::size_t some_size(Random& random) {
  static constexpr std::array<std::size_t, 14> kSizes = {1,   2,    8,    56,    57,    112,   113,
                                                         500, 1000, 4096, 16384, 16385, 65536, 150'000};
  return kSizes[random() % (random() % 10 < 6 ? 9 : kSizes.size())];
}

// One that will be accelerated, or one that cannot be.
void start_a_program() {
  char name[] = "true";
  char* const words[] = {name, nullptr};
  char* const nothing[] = {nullptr};
  static std::atomic<int> count{0};
  pid_t pid = 0;
  if (::posix_spawn(&pid, "/bin/true", nullptr, nullptr, words, ++count % 2 == 0 ? nothing : environ) == 0)
    ::waitpid(pid, nullptr, 0);
}

class Half {
 public:
  Half(Plan& plan, int fd, int end, unsigned salt) : plan_(plan), fd_(fd), end_(end), random_(plan.seed * 977 + salt) {
    for (int i = 0; i < 3; ++i) random_();
  }

 protected:
  bool excused() const { return plan_.gives_up[0] || plan_.gives_up[1]; }
  void fail(const char* what, std::uint64_t at) {
    if (plan_.wrong++ == 0)
      std::fprintf(stderr, "torture: seed %u, end %d: %s at %" PRIu64 ", errno %d\n", plan_.seed, end_, what, at,
                   errno);
  }
  void something_else() {
    if (random_() % 100 < 3) ::usleep(random_() % 3000);
    if (plan_.starts_programs && random_() % 300 == 0) start_a_program();
  }

  Plan& plan_;
  int fd_;
  int end_;
  Random random_;
};

class SendingHalf : Half {
 public:
  SendingHalf(Plan& plan, int fd, int end) : Half(plan, fd, end, end == 0 ? 1 : 2) {}

  void run() {
    const bool waits = random_() % 3 != 0;
    std::vector<unsigned char> buffer(150'000);
    for (std::uint64_t at = 0; at < plan_.bytes[end_];) {
      something_else();
      const std::size_t size = std::min<std::uint64_t>(some_size(random_), plan_.bytes[end_] - at);
      for (std::size_t i = 0; i < size; ++i) buffer[i] = byte_at(end_, at + i);
      const ssize_t sent = send_some(buffer.data(), size, waits);
      if (sent > 0) {
        at += static_cast<std::uint64_t>(sent);
      } else if (sent < 0 && errno == EAGAIN) {
        pollfd entry{fd_, POLLOUT, 0};
        ::poll(&entry, 1, 5000);
      } else {
        if (!excused()) fail("send", at);
        break;
      }
    }
    if (!plan_.gives_up[end_]) ::shutdown(fd_, SHUT_WR);
  }

 private:
  ssize_t send_some(unsigned char* bytes, std::size_t size, bool waits) {
    const int flags = MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT);
    if (random_() % 4 != 0) return ::send(fd_, bytes, size, flags);
    iovec pieces[3] = {{bytes, size / 3}, {bytes + size / 3, size / 3}, {bytes + size / 3 * 2, size - size / 3 * 2}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 3;
    return ::sendmsg(fd_, &message, flags);
  }
};

class ReceivingHalf : Half {
 public:
  ReceivingHalf(Plan& plan, int fd, int end) : Half(plan, fd, end, end == 0 ? 3 : 4) {
    how_ = static_cast<How>(random_() % 5);
    if (how_ != How::epoll && how_ != How::epoll_edge) return;
    set_ = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = how_ == How::epoll_edge ? EPOLLIN | EPOLLET | EPOLLRDHUP : static_cast<std::uint32_t>(EPOLLIN);
    ::epoll_ctl(set_, EPOLL_CTL_ADD, fd_, &event);
  }
  ~ReceivingHalf() {
    if (set_ >= 0) ::close(set_);
  }
  ReceivingHalf(const ReceivingHalf&) = delete;
  ReceivingHalf& operator=(const ReceivingHalf&) = delete;

  void run() {
    const std::uint64_t all = plan_.bytes[1 - end_];
    const std::uint64_t enough = random_() % 5 == 0 ? random_() % (all + 1) : UINT64_MAX;
    std::vector<unsigned char> buffer(150'000);
    bool may_be_more = false;
    for (std::uint64_t at = 0;;) {
      something_else();
      if (at >= enough) {
        plan_.gives_up[end_] = true;
        ::shutdown(fd_, SHUT_RDWR);
        return;
      }
      if (!may_be_more) wait();
      const ssize_t got = receive_some(buffer.data(), some_size(random_));
      may_be_more = how_ == How::epoll_edge && got > 0;
      if (got < 0 && errno == EAGAIN) continue;
      if (got < 0 && !excused()) return fail("recv", at);
      if (got == 0 && at != all && !excused()) return fail("an early end", at);
      if (got <= 0) return;
      for (ssize_t i = 0; i < got; ++i, ++at)
        if (buffer[static_cast<std::size_t>(i)] != byte_at(1 - end_, at)) return fail("a wrong byte", at);
    }
  }

 private:
  enum class How { recv, poll, select, epoll, epoll_edge };

  // For ever: who is never told hangs, and is found out.
  void wait() const {
    if (how_ == How::poll) {
      pollfd entry{fd_, POLLIN, 0};
      ::poll(&entry, 1, -1);
    } else if (how_ == How::select) {
      fd_set readable;
      FD_ZERO(&readable);
      FD_SET(fd_, &readable);
      ::select(fd_ + 1, &readable, nullptr, nullptr, nullptr);
    } else if (set_ >= 0) {
      epoll_event event;
      ::epoll_wait(set_, &event, 1, -1);
    }
  }

  ssize_t receive_some(unsigned char* bytes, std::size_t size) {
    const int flags = how_ == How::recv ? 0 : MSG_DONTWAIT;
    if (random_() % 10 != 0) return ::recv(fd_, bytes, size, flags);
    iovec pieces[2] = {{bytes, size / 2}, {bytes + size / 2, size - size / 2}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    return ::recvmsg(fd_, &message, flags);
  }

  How how_;
  int set_ = -1;
};

int use_end(Plan& plan, int fd, int end) {
  std::thread sender([&] { SendingHalf(plan, fd, end).run(); });
  std::thread receiver([&] { ReceivingHalf(plan, fd, end).run(); });
  sender.join();
  receiver.join();
  ::close(fd);
  return plan.wrong;
}

int use_both(Plan& plan, const Pair& pair) {
  std::thread other([&] { use_end(plan, pair.server, 1); });
  use_end(plan, pair.client, 0);
  other.join();
  return plan.wrong;
}

}  // namespace

int leave(int rounds, unsigned seed) {
  void* const memory = ::mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return complain("mmap");
  Random random(seed);
  for (int i = 0; i < rounds; ++i) {
    Plan& plan = *new (memory) Plan;
    plan.seed = seed + static_cast<unsigned>(i);
    for (std::uint64_t& bytes : plan.bytes) bytes = random() % 7 == 0 ? random() % 3000 : random() % 1'000'000;
    plan.starts_programs = random() % 2 == 0;
    const Pair pair = make_pair();
    std::vector<pid_t> processes;
    if (random() % 2 == 0) {
      processes.push_back(start(pair, true, [&](int fd) { return use_end(plan, fd, 0); }));
      processes.push_back(start(pair, false, [&](int fd) { return use_end(plan, fd, 1); }));
    } else {
      processes.push_back(::fork());
      if (processes.back() == 0) {
        ::alarm(kHangSeconds);
        ::_exit(use_both(plan, pair));
      }
    }
    ::close(pair.client);
    ::close(pair.server);
    if (random() % 4 != 0) {
      ::usleep(random() % 30'000);
      if (const StreamOf stream(processes[random() % processes.size()]); stream)
        for (End& end : stream->end) end.request.fetch_or(kHandBack);
    }
    for (const pid_t process : processes)
      if (const int code = wait_for(process); code != 0)
        return std::fprintf(stderr, "torture: seed %u ended with %d\n", plan.seed, code), 1;
  }
  ::munmap(memory, sizeof(Plan));
  return 0;
}

}  // namespace viaduct::sockets::torture
