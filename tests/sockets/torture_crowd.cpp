// One process with many connections in one epoll set, and one that answers them in bursts: whoever sleeps is woken,
// though it is not rung for on each connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <vector>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr std::size_t kConnections = 24;
constexpr int kPatienceMs = 4000;
constexpr int kSliceMs = 5;

void naps(Random& random) {
  if (random() % 3 == 0) ::usleep(random() % 400);
}

// Answers everything; the answers to one burst all at once, or with breaks between them.
int answer(const std::vector<int>& connections, unsigned seed) {
  ::alarm(10 * kHangSeconds);
  Random random(seed);
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : connections) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }
  std::array<epoll_event, kConnections> events;
  for (std::size_t open = connections.size(); open != 0;) {
    const int found = ::epoll_wait(epoll, events.data(), events.size(), -1);
    naps(random);
    const bool breaks = random() % 4 == 0;
    for (int i = 0; i < found; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      char bytes[64];
      const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
      if (got <= 0) {
        ::close(fd);
        --open;
        continue;
      }
      if (breaks) ::usleep(random() % 100);
      if (::send(fd, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) != got) return complain("answer");
    }
  }
  return 0;
}

// Asks on some connections and waits for all answers, sometimes with two threads on the same set.
class Asker {
 public:
  Asker(const std::vector<int>& connections, unsigned seed) : connections_(connections), random_(seed) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    for (const int fd : connections_) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
  }

  ~Asker() { ::close(epoll_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  int run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const std::size_t all = connections_.size();
      const std::size_t asked = round < 50 ? all : 1 + random_() % all;  // first all, to warm up
      std::shuffle(connections_.begin(), connections_.end(), random_);
      missing_.store(static_cast<int>(asked));
      for (std::size_t i = 0; i < asked; ++i)
        if (::send(connections_[i], "ask", 3, MSG_NOSIGNAL) != 3) return complain("ask");
      bool fine = true;
      if (random_() % 4 == 0) {
        std::thread other([this, &fine] { fine = collect(kSliceMs); });
        const bool mine = collect(kSliceMs);
        other.join();
        fine = fine && mine;
      } else {
        fine = collect(kPatienceMs);
      }
      if (!fine) return std::fprintf(stderr, "torture: round %d: %d answers did not come\n", round, missing_.load()), 1;
    }
    return 0;
  }

 private:
  // Of two threads the other may take the last answer, and nobody wakes us then: they sleep in slices.
  bool collect(int slice_ms) {
    for (int waited_ms = 0; missing_.load() > 0;) {
      std::array<epoll_event, 5> events;
      const int found = ::epoll_wait(epoll_, events.data(), events.size(), slice_ms);
      if (found == 0 && (waited_ms += slice_ms) >= kPatienceMs) return false;
      for (int i = 0; i < found; ++i) {
        char bytes[64];
        const ssize_t got = ::recv(events[static_cast<std::size_t>(i)].data.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) missing_.fetch_sub(1), waited_ms = 0;
        if (got == 0) return false;
      }
    }
    return true;
  }

  std::vector<int> connections_;
  Random random_;
  int epoll_ = -1;
  std::atomic<int> missing_{0};
};

// All of them, and then a child takes half of them over: connections that one process made are used, and slept on, by
// another.
int ask(const std::vector<int>& connections, int rounds, unsigned seed) {
  if (const int failed = Asker(connections, seed).run(rounds / 2)) return failed;
  const auto middle = connections.begin() + static_cast<std::ptrdiff_t>(connections.size() / 2);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(Asker({connections.begin(), middle}, seed + 2).run(rounds / 2));
  const int own = Asker({middle, connections.end()}, seed + 3).run(rounds / 2);
  const int theirs = wait_for(child);
  return own != 0 ? own : theirs;
}

}  // namespace

int crowd(int rounds, unsigned seed) {
  const auto [clients, servers] = make_pairs(kConnections);
  const pid_t server = ::fork();
  if (server == 0) {
    for (const int fd : clients) ::close(fd);
    ::_exit(answer(servers, seed + 1));
  }
  const pid_t client = ::fork();
  if (client == 0) {
    ::alarm(10 * kHangSeconds);
    for (const int fd : servers) ::close(fd);
    ::_exit(ask(clients, rounds, seed));
  }
  for (const int fd : clients) ::close(fd);
  for (const int fd : servers) ::close(fd);
  const int asked = wait_for(client), answered = wait_for(server);
  if (asked != 0 || answered != 0)
    std::fprintf(stderr, "torture: seed %u: the asker ended with %d, the other with %d\n", seed, asked, answered);
  return asked != 0 || answered != 0;
}

}  // namespace viaduct::sockets::torture
