// Several threads in epoll_wait on one set: everybody who asks is answered, whoever of them is told. And one thread
// with many connections that all have something. No result names a connection twice, or is written behind its array.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kConnections = 32;
constexpr int kStandstillMs = 2000;
constexpr std::size_t kMostEvents = 256;

struct Trial {
  const char* name;
  std::uint32_t how;         // beside EPOLLIN
  std::vector<int> at_most;  // events at once, of each thread
  int questions;             // on each connection
};

const std::vector<Trial>& trials() {
  static const std::vector<Trial> all = {
      {"level", 0, {3, 64}, 100},
      {"level, three threads", 0, {3, 64, 64}, 100},
      {"level, four threads, few events", 0, {3, 3, 3, 3}, 100},
      {"edges", EPOLLET, {64, 64}, 200},
      {"edges, three threads", EPOLLET, {3, 64, 64}, 200},
      {"edges, four threads", EPOLLET, {3, 64, 3, 64}, 200},
      {"one shot", EPOLLONESHOT, {3, 64}, 200},
      {"one shot, three threads", EPOLLONESHOT, {64, 64, 64}, 200},
      {"one shot, four threads", EPOLLONESHOT, {3, 64, 3, 64}, 200},
      {"one shot on the edge", EPOLLONESHOT | EPOLLET, {3, 64, 64}, 200},
  };
  return all;
}

// One result of epoll_wait, looked at from all sides. Which connection it is, is in `data`.
class Events {
 public:
  int wait(int epoll, int at_most, int limit_ms) {
    std::memset(events_.data(), kGuard, sizeof events_);
    const int found = ::epoll_wait(epoll, events_.data(), at_most, limit_ms);
    const auto* const first = reinterpret_cast<const unsigned char*>(events_.data() + std::max(found, 0));
    const auto* const behind = reinterpret_cast<const unsigned char*>(events_.data() + at_most);
    const auto* const end = reinterpret_cast<const unsigned char*>(events_.data() + events_.size());
    const auto untouched = [](unsigned char byte) { return byte == kGuard; };
    if (found > at_most || !std::all_of(std::max(first, behind), end, untouched))
      say("wrote behind the array of events");
    std::array<bool, kMostEvents> seen{};
    for (int i = 0; i < std::min(found, at_most); ++i) {
      const std::uint32_t which = (*this)[i];
      if (which >= seen.size())
        say("told of a connection that nobody added");
      else if (std::exchange(seen[which], true))
        say("told of a connection twice in one result");
    }
    return complaint_ != nullptr ? -1 : found;
  }

  std::uint32_t operator[](int i) const { return events_[static_cast<std::size_t>(i)].data.u32; }
  const char* complaint() const { return complaint_; }

 private:
  void say(const char* what) {
    if (complaint_ == nullptr) complaint_ = what;
  }

  static constexpr unsigned char kGuard = 0xee;
  std::array<epoll_event, kMostEvents + 64> events_;
  const char* complaint_ = nullptr;
};

int add_all(const std::vector<int>& connections, std::uint32_t events) {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  for (std::uint32_t i = 0; i < connections.size(); ++i) {
    epoll_event event{.events = events, .data = {.u32 = i}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i], &event);
  }
  return epoll;
}

// ---- questions and answers

// Threads that give every byte back, until the first connection ends.
class Answering {
 public:
  Answering(const std::vector<int>& connections, const Trial& trial)
      : connections_(connections), trial_(trial), epoll_(add_all(connections, EPOLLIN | trial.how)) {}

  int run() {
    std::vector<std::thread> threads;
    for (const int at_most : trial_.at_most) threads.emplace_back([this, at_most] { serve(at_most); });
    for (std::thread& thread : threads) thread.join();
    if (const char* const complaint = complaint_.load()) {
      std::fprintf(stderr, "torture: %s: epoll_wait %s\n", trial_.name, complaint);
      return 1;
    }
    return 0;
  }

 private:
  void serve(int at_most) {
    Events events;
    while (!over_) {
      const int found = events.wait(epoll_, at_most, 200);
      if (events.complaint() != nullptr) {
        complaint_ = events.complaint();
        over_ = true;
      }
      for (int i = 0; i < found; ++i) answer(events[i]);
    }
  }

  // Told by the level it takes a byte only, and must be told again.
  void answer(std::uint32_t which) {
    const int fd = connections_[which];
    const bool all = trial_.how != 0;
    for (char bytes[64];;) {
      const ssize_t got = ::recv(fd, bytes, all ? sizeof bytes : 1, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) over_ = true;
      if (got <= 0) break;
      if (::send(fd, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) != got) over_ = true;
      if (!all) break;
    }
    work();
    if ((trial_.how & EPOLLONESHOT) == 0) return;
    epoll_event event{.events = EPOLLIN | trial_.how, .data = {.u32 = which}};
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
  }

  // Meanwhile others are told.
  static void work() {
    const auto end = Clock::now() + std::chrono::microseconds(15);
    while (Clock::now() < end) {
    }
  }

  const std::vector<int>& connections_;
  const Trial& trial_;
  const int epoll_;
  std::atomic<bool> over_{false};
  std::atomic<const char*> complaint_{nullptr};
};

// A question on each connection, and the next one as soon as it is answered.
class Asking {
 public:
  Asking(const std::vector<int>& connections, const Trial& trial)
      : connections_(connections), trial_(trial), asked_(connections.size()), missing_(connections.size()) {}

  int run() {
    const int epoll = add_all(connections_, EPOLLIN);
    for (std::uint32_t i = 0; i < connections_.size(); ++i) ask(i);
    Events events;
    while (open_ != 0) {
      const int found = events.wait(epoll, kMostEvents, kStandstillMs);
      if (events.complaint() != nullptr)
        return std::fprintf(stderr, "torture: %s: the asker's epoll_wait %s\n", trial_.name, events.complaint()), 1;
      if (found == 0) return stand_still();
      for (int i = 0; i < found; ++i)
        if (!take(events[i])) return 1;
    }
    return 0;
  }

 private:
  static constexpr std::size_t kSize = 4;

  // All bytes are the same: threads that answer one byte each need not do so in their order.
  void ask(std::uint32_t which) {
    std::array<char, kSize> question;
    question.fill(static_cast<char>(++asked_[which]));
    missing_[which] = kSize;
    ++open_;
    if (::send(connections_[which], question.data(), question.size(), MSG_NOSIGNAL) != kSize) complain("ask");
  }

  bool take(std::uint32_t which) {
    std::array<char, 64> bytes;
    const ssize_t got = ::recv(connections_[which], bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    const auto size = static_cast<std::size_t>(got);
    if (got <= 0 || size > missing_[which] ||
        std::count(bytes.begin(), bytes.begin() + got, static_cast<char>(asked_[which])) != got) {
      std::fprintf(stderr, "torture: %s: connection %u, question %d: a wrong answer of %zd bytes\n", trial_.name, which,
                   asked_[which], got);
      return false;
    }
    missing_[which] -= size;
    if (missing_[which] != 0) return true;
    --open_;
    if (asked_[which] < trial_.questions) ask(which);
    return true;
  }

  int stand_still() const {
    std::fprintf(stderr, "torture: %s: %zu of %zu connections stand still:", trial_.name, open_, connections_.size());
    for (std::size_t i = 0; i < connections_.size(); ++i)
      if (missing_[i] != 0) std::fprintf(stderr, " %zu at question %d", i, asked_[i]);
    std::fprintf(stderr, "\n");
    return 1;
  }

  const std::vector<int>& connections_;
  const Trial& trial_;
  std::vector<int> asked_;
  std::vector<std::size_t> missing_;
  std::size_t open_ = 0;
};

// Two processes, one end of all connections each.
template <class One, class Other>
int both(const char* name, std::size_t count, One one, Other other) {
  const auto [clients, servers] = make_pairs(count);
  const int on = 1;  // so that it does not take long over TCP
  for (const auto& ends : {clients, servers})
    for (const int fd : ends) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto begin = [&](const std::vector<int>& own, const std::vector<int>& foreign, auto body) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::alarm(kHangSeconds);
    for (const int fd : foreign) ::close(fd);
    ::_exit(body(own));
  };
  const pid_t server = begin(servers, clients, one), client = begin(clients, servers, other);
  for (const int fd : clients) ::close(fd);
  for (const int fd : servers) ::close(fd);
  const int asked = wait_for(client), answered = wait_for(server);
  if (asked == 0 && answered == 0) return 0;
  std::fprintf(stderr, "torture: %s: one process ended with %d, the other with %d\n", name, asked, answered);
  return 1;
}

// ---- all of them busy

constexpr std::size_t kBusy = 220;
constexpr char kBusyName[] = "one thread, many connections";

int keep_busy(const std::vector<int>& connections, unsigned seed) {
  Random random(seed);
  for (const int fd : connections)
    if (!warm(fd, true)) return complain("warm");
  const auto end = Clock::now() + std::chrono::milliseconds(400);
  while (Clock::now() < end) {
    for (std::size_t left = 20 + random() % 60; left != 0; --left)
      if (::send(connections[random() % connections.size()], "busy", 4, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
          errno != EAGAIN)
        return 0;
    ::usleep(random() % 600);
  }
  return 0;
}

// Takes less than comes, so that more and more of them have something.
int take_a_little(const std::vector<int>& connections) {
  for (const int fd : connections)
    if (!warm(fd, false)) return complain("warm");
  const int epoll = add_all(connections, EPOLLIN);
  Events events;
  for (bool ended = false; !ended;) {
    const int found = events.wait(epoll, kMostEvents, kStandstillMs);
    if (events.complaint() != nullptr)
      return std::fprintf(stderr, "torture: %s: epoll_wait %s\n", kBusyName, events.complaint()), 1;
    if (found == 0) return std::fprintf(stderr, "torture: %s: nothing was told\n", kBusyName), 1;
    for (int i = 0; i < found; ++i) {
      char byte;
      ended = ::recv(connections[events[i]], &byte, 1, MSG_DONTWAIT) == 0 || ended;
    }
  }
  return 0;
}

}  // namespace

int waiters(int rounds, unsigned seed) {
  int failed = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const Trial& trial : trials())
      failed |= both(
          trial.name, kConnections, [&](const auto& connections) { return Answering(connections, trial).run(); },
          [&](const auto& connections) { return Asking(connections, trial).run(); });
    failed |= both(kBusyName, kBusy, take_a_little, [&](const auto& connections) {
      return keep_busy(connections, seed + static_cast<unsigned>(round));
    });
  }
  return failed;
}

}  // namespace viaduct::sockets::torture
