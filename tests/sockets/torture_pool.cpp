// One thread waits for many connections, others read them: as it told them, or without having been told. Whoever takes
// a doorbell that was meant for the one that waits, it is told of what comes afterwards.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr std::size_t kConnections = 12;
constexpr std::size_t kWorkers = 2;
constexpr int kPatienceSeconds = 4;
constexpr std::array<std::uint32_t, 3> kWays = {EPOLLIN, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLET};

class Pool {
 public:
  Pool(const std::vector<int>& connections, unsigned seed) : connections_(connections), seed_(seed) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    for (std::size_t i = 0; i < connections_.size(); ++i) control(EPOLL_CTL_ADD, i);
  }

  int run() {
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < kWorkers; ++i)
      workers.emplace_back([this, i] { work(seed_ + static_cast<unsigned>(i)); });
    while (!over_.load()) {
      std::array<epoll_event, 5> events;
      const int found = ::epoll_wait(epoll_, events.data(), events.size(), -1);
      const std::lock_guard guard(mutex_);
      for (int i = 0; i < found; ++i) told_.push_back(events[static_cast<std::size_t>(i)].data.u64);
      some_.notify_all();
    }
    for (std::thread& worker : workers) worker.join();
    return failed_.load() ? 1 : 0;
  }

 private:
  static std::uint32_t way(std::size_t index) { return kWays[index % kWays.size()]; }
  void control(int operation, std::size_t index) {
    epoll_event event{.events = way(index), .data = {.u64 = index}};
    ::epoll_ctl(epoll_, operation, connections_[index], &event);
  }

  // What it was told of and, on the way, others that nobody spoke of. Told of nothing it does nothing.
  void work(unsigned seed) {
    Random random(seed);
    for (;;) {
      std::size_t index;
      {
        std::unique_lock guard(mutex_);
        some_.wait(guard, [this] { return over_.load() || !told_.empty(); });
        if (over_.load()) return;
        index = told_.front();
        told_.pop_front();
      }
      if (random() % 4 == 0) ::usleep(random() % 60);
      serve(index);
      if ((way(index) & EPOLLONESHOT) != 0) control(EPOLL_CTL_MOD, index);
      for (auto more = random() % 4 == 0 ? random() % 40 : 0; more > 0; --more) serve(random() % connections_.size());
    }
  }

  // All that is there. What two workers read at once is two questions all the same: each has one byte.
  void serve(std::size_t index) {
    const int fd = connections_[index];
    char byte;
    for (;;) {
      const ssize_t got = ::recv(fd, &byte, 1, MSG_DONTWAIT);
      if (got < 0) return;
      if (got == 0 || byte == 'q') return end(false);
      if (::send(fd, &byte, 1, MSG_NOSIGNAL) != 1) return end(true);
    }
  }

  void end(bool failed) {
    failed_.store(failed);
    const std::lock_guard guard(mutex_);
    over_.store(true);
    some_.notify_all();
  }

  std::vector<int> connections_;
  unsigned seed_;
  int epoll_ = -1;
  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::size_t> told_;
  std::atomic<bool> over_{false}, failed_{false};
};

int ask(const std::vector<int>& connections, int rounds, unsigned seed) {
  Random random(seed);
  const timeval patience{kPatienceSeconds, 0};
  for (const int fd : connections) ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char byte = 'a';
  for (int round = 0; round < rounds; ++round) {
    const std::size_t first = random() % connections.size(), asked = round < 40 ? connections.size() : 1 + random() % 3;
    for (std::size_t i = 0; i < asked; ++i)
      if (::send(connections[(first + i) % connections.size()], &byte, 1, MSG_NOSIGNAL) != 1) return complain("ask");
    for (std::size_t i = 0; i < asked; ++i)
      if (::recv(connections[(first + i) % connections.size()], &byte, 1, 0) != 1)
        return std::fprintf(stderr, "torture: seed %u, round %d: no answer\n", seed, round), 1;
    if (random() % 2 == 0) ::usleep(random() % 150);
  }
  byte = 'q';
  return ::send(connections[0], &byte, 1, MSG_NOSIGNAL) == 1 ? 0 : complain("quit");
}

}  // namespace

int pool(int rounds, unsigned seed) {
  const auto [clients, servers] = make_pairs(kConnections);
  const pid_t server = ::fork();
  if (server == 0) {
    ::alarm(10 * kHangSeconds);
    for (const int fd : clients) ::close(fd);
    ::_exit(Pool(servers, seed).run());
  }
  for (const int fd : servers) ::close(fd);
  ::alarm(10 * kHangSeconds);
  const int asked = ask(clients, rounds, seed);
  for (const int fd : clients) ::close(fd);
  const int answered = wait_for(server);
  if (asked == 0 && answered != 0) std::fprintf(stderr, "torture: seed %u: the pool ended with %d\n", seed, answered);
  return asked != 0 || answered != 0;
}

}  // namespace viaduct::sockets::torture
