// Many sockets: events, the descriptor for other people's loops, crowds, and who is slow.
#include <sys/epoll.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

class Ready : public MemnetTest {};

TEST_F(Ready, EventsAreToldOnceForEachChange) {
  Pair pair;
  int mark = 0;
  ASSERT_EQ(memnet_watch(pair.here, &mark), 0);
  memnet_event events[4];
  ASSERT_EQ(memnet_events(events, 4, 5000), 1) << "it can be written to";
  EXPECT_EQ(events[0].socket, pair.here);
  EXPECT_EQ(events[0].context, &mark);
  EXPECT_EQ(events[0].events & (POLLIN | POLLOUT), POLLOUT);
  EXPECT_EQ(memnet_events(events, 4, 5), 0);
  ASSERT_TRUE(write_all(pair.there.get(), "x"));
  ASSERT_EQ(memnet_events(events, 4, 5000), 1);
  EXPECT_EQ(events[0].events & POLLIN, POLLIN);
  EXPECT_EQ(memnet_events(events, 4, 5), 0);
  pair.there.reset();
  ASSERT_EQ(memnet_events(events, 4, 5000), 1);
  EXPECT_EQ(events[0].events & POLLRDHUP, POLLRDHUP);
  EXPECT_EQ(memnet_unwatch(pair.here), 0);
}

// Events and ended jobs wake whoever sleeps in a poll of its own.
TEST_F(Ready, SleepsOnOneDescriptor) {
  Pair pair;
  ASSERT_EQ(memnet_watch(pair.here, nullptr), 0);
  memnet_event event;
  ASSERT_EQ(memnet_events(&event, 1, 5000), 1);
  const Fd own(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(own.get(), EPOLL_CTL_ADD, memnet_descriptor(), &wanted), 0);
  for (int round = 0; round < 200; ++round) {
    std::thread writer([&] {
      if (round % 3 != 0) std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      ASSERT_TRUE(write_all(pair.there.get(), "x"));
    });
    for (;;) {
      if (memnet_events(&event, 1, 0) == 1) break;
      if (memnet_prepare() == 0) continue;
      epoll_event got;
      ASSERT_GE(::epoll_wait(own.get(), &got, 1, 10'000), 1) << "nobody woke us";
    }
    char byte;
    ASSERT_EQ(memnet_recv(pair.here, &byte, 1, MSG_DONTWAIT), 1);
    writer.join();
  }
}

// While another thread waits inside MemNet, and leads.
TEST_F(Ready, SleepsOnOneDescriptorBesideAnotherThread) {
  Pair pair, other;
  ASSERT_EQ(memnet_watch(pair.here, nullptr), 0);
  memnet_event event;
  ASSERT_EQ(memnet_events(&event, 1, 5000), 1);
  std::thread waiter([&] {
    char byte;
    EXPECT_EQ(memnet_recv(other.here, &byte, 1, 0), 1);
  });
  const int descriptor = memnet_descriptor();
  for (int round = 0; round < 100; ++round) {
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      ASSERT_TRUE(write_all(pair.there.get(), "x"));
    });
    for (;;) {
      if (memnet_events(&event, 1, 0) == 1) break;
      if (memnet_prepare() == 0) continue;
      pollfd entry{descriptor, POLLIN, 0};
      ASSERT_GE(::poll(&entry, 1, 10'000), 1) << "nobody woke us";
    }
    char byte;
    ASSERT_EQ(memnet_recv(pair.here, &byte, 1, MSG_DONTWAIT), 1);
    writer.join();
  }
  ASSERT_TRUE(write_all(other.there.get(), "x"));
  waiter.join();
}

TEST_F(Ready, ThreadsShareSocketsAndLines) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(std::make_unique<Pair>());
  std::vector<std::thread> threads;
  for (auto& pair : pairs) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        char bytes[8];
        EXPECT_EQ(memnet_recv(pair->here, bytes, 8, MSG_WAITALL), 8);
        EXPECT_EQ(memnet_send(pair->here, bytes, 8, 0), 8);
      }
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const std::string what = pattern(8, static_cast<unsigned>(i));
        EXPECT_TRUE(write_all(pair->there.get(), what));
        std::string got(8, 0);
        EXPECT_TRUE(read_all(pair->there.get(), got));
        EXPECT_EQ(got, what);
      }
    });
  }
  for (std::thread& one : threads) one.join();
}

TEST_F(Ready, ThousandsOfSockets) {
  constexpr std::size_t kMany = viaduct::testing::kSanitized ? 500 : 3000;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 20'000);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < kMany + 200) GTEST_SKIP() << "the limit of open files is too low";
  Listener listener(1024);
  std::vector<Fd> there;
  std::vector<int> here;
  for (std::size_t i = 0; i < kMany; ++i) {
    there.push_back(kernel_connect(listener.address));
    if (i % 64 == 63 || i + 1 == kMany)
      while (here.size() <= i) {
        const int made = memnet_accept(listener.socket, nullptr, nullptr);
        ASSERT_GE(made, 0);
        ASSERT_EQ(memnet_watch(made, nullptr), 0);
        here.push_back(made);
      }
  }
  memnet_event events[64];
  while (memnet_events(events, 64, 0) > 0) continue;
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_TRUE(write_all(there[i].get(), "ping"));
  for (std::size_t done = 0; done < kMany;) {
    const int count = memnet_events(events, 64, 5000);
    ASSERT_GT(count, 0) << done;
    for (int i = 0; i < count; ++i) {
      char bytes[4];
      if (memnet_recv(events[i].socket, bytes, 4, MSG_DONTWAIT) != 4) continue;
      ASSERT_EQ(memnet_send(events[i].socket, bytes, 4, 0), 4);
      ++done;
    }
  }
  for (const Fd& one : there) {
    std::string got(4, 0);
    ASSERT_TRUE(read_all(one.get(), got));
    ASSERT_EQ(got, "ping");
  }
  for (const int one : here) ASSERT_EQ(memnet_close(one), 0);
}

// A program that takes nothing, and a peer that reads nothing, hold up nobody else.
TEST_F(Ready, SlowOnesHoldUpNobody) {
  Pair deaf, stuffed;
  const std::string bytes = pattern(64 << 10);
  // A peer that does not read.
  for (int idle = 0; idle < 3;) {
    while (memnet_send(stuffed.here, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) idle = 0;
    pollfd entry{stuffed.here, POLLOUT, 0};
    if (memnet_poll(&entry, 1, 20) == 0) ++idle;
  }
  // Another process that does not take what comes, over the same worker.
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  KernelListener listener;
  Child slow([&] {
    if (memnet_open(server.name().c_str()) != 0) return 1;
    for (int i = 0; i < 30; ++i) {
      const int s = memnet_socket(AF_INET, SOCK_STREAM, 0);
      if (memnet_connect(s, generic(listener.address), sizeof listener.address) != 0) return 2;
    }
    char byte;
    (void)!::read(pipe[0], &byte, 1);
    return 0;
  });
  std::vector<Fd> senders;
  for (int i = 0; i < 30; ++i) {
    senders.push_back(listener.accept());
    ::fcntl(senders.back().get(), F_SETFL, O_NONBLOCK);
    while (::send(senders.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) continue;
  }
  Pair quick;
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(memnet_send(quick.here, "ping", 4, 0), 4);
    std::string got(4, 0);
    ASSERT_TRUE(read_all(quick.there.get(), got));
    ASSERT_TRUE(write_all(quick.there.get(), got));
    char back[4];
    ASSERT_EQ(memnet_recv(quick.here, back, 4, MSG_WAITALL), 4);
  }
  (void)!::write(pipe[1], "x", 1);
  EXPECT_EQ(slow.wait(), 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(Ready, SignalsInterrupt) {
  Pair pair;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &action, &before);
  const pthread_t self = ::pthread_self();
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) {
      ::pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  char byte;
  EXPECT_EQ(memnet_recv(pair.here, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EINTR);
  over = true;
  other.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace viaduct::memnet::testing
