// Clients and servers that end, stop, fork and exec.
#include <sys/resource.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/counters.hpp"
#include "memnet/memnet_lab.hpp"

namespace viaduct::memnet::testing {
namespace {

int rounds_from_environment(int usual) {
  const char* const text = std::getenv("VIADUCT_TEST_MEMNET_KILLS");
  return text != nullptr ? std::atoi(text) : viaduct::testing::rounds(usual);
}

std::uint64_t count_of(pid_t server, const std::string& name) {
  const auto readings = read_counters(server);
  if (!readings) return UINT64_MAX;
  for (const auto& one : readings->counters)
    if (one.name == name) return one.value;
  return UINT64_MAX;
}

bool comes_to(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Connections of every kind that the killed client may have, until it is killed.
[[noreturn]] void use_until_killed(const std::string& server, const sockaddr_in& to, unsigned seed) {
  ::alarm(30);
  if (memnet_open(server.c_str()) != 0) ::_exit(1);
  std::mt19937 random(seed);
  static char bytes[100'000];
  memnet_mem_t memory;
  memnet_register_mem(bytes, sizeof bytes, &memory);
  std::vector<int> sockets;
  Listener listener;
  for (;;) {
    const int s = memnet_socket(AF_INET, SOCK_STREAM, 0);
    if (memnet_connect(s, generic(to), sizeof to) == 0) sockets.push_back(s);
    for (const int one : sockets) {
      memnet_job_t job;
      switch (random() % 5) {
        case 0:
          (void)memnet_send(one, bytes, random() % sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
          break;
        case 1:
          (void)memnet_async_send(one, memory, 0, random() % sizeof bytes, 0, &job);
          break;
        case 2:
          (void)memnet_async_recv(one, memory, 0, 1000, 0, &job);
          break;
        case 3:
          (void)memnet_recv(one, bytes, 10, MSG_DONTWAIT);
          break;
        default:
          (void)memnet_shutdown(one, SHUT_WR);
      }
    }
    if (sockets.size() > 6) {
      memnet_close(sockets.front());
      sockets.erase(sockets.begin());
    }
  }
}

TEST(Death, AKilledClientLeavesNothingAtTheServer) {
  const HangGuard guard;
  ServerProcess server;
  KernelListener listener;
  std::mt19937 random(7);
  for (int round = 0; round < rounds_from_environment(24); ++round) {
    Child client([&]() -> int { use_until_killed(server.name(), listener.address, static_cast<unsigned>(round)); });
    std::vector<Fd> peers;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 20'000);
    ::fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK);
    do {
      if (Fd peer = listener.accept()) peers.push_back(std::move(peer));
    } while (std::chrono::steady_clock::now() < end);
    client.kill();
    (void)client.wait();
    // Each of its connections comes to an end, however much was sent.
    const auto drain = [](const Fd& peer) {
      char bytes[65536];
      ssize_t got;
      while ((got = ::recv(peer.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0) continue;
      return got == 0 || (errno != EAGAIN && errno != EINTR);
    };
    ASSERT_TRUE(comes_to([&] {
      while (Fd peer = listener.accept()) peers.push_back(std::move(peer));
      return std::all_of(peers.begin(), peers.end(), drain);
    })) << "round "
        << round;
    ASSERT_TRUE(comes_to([&] { return count_of(server.pid(), "memnet.worker1_sockets") == 0; }))
        << count_of(server.pid(), "memnet.worker1_sockets");
    ASSERT_TRUE(comes_to([&] { return count_of(server.pid(), "memnet.worker1_clients") == 0; }));
  }
  EXPECT_EQ(count_of(server.pid(), "memnet.broken"), 0u);
  server.stop();
  EXPECT_TRUE(WIFEXITED(server.exit_status));
}

TEST(Death, AKilledServerEndsEverythingAndIsFoundAgain) {
  const HangGuard guard;
  ServerProcess server;
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  static char bytes[100'000];
  memnet_mem_t memory;
  ASSERT_EQ(memnet_register_mem(bytes, sizeof bytes, &memory), 0);
  std::mt19937 random(11);
  for (int round = 0; round < rounds_from_environment(16); ++round) {
    Pair idle, busy;
    Listener listener;
    memnet_job_t receive, accept, send;
    ASSERT_EQ(memnet_async_recv(idle.here, memory, 0, 100, 0, &receive), 0);
    ASSERT_EQ(memnet_async_accept(listener.socket, &accept), 0);
    ASSERT_EQ(memnet_async_send(busy.here, memory, 0, sizeof bytes, 0, &send), 0);
    std::thread killer([&, nap = random() % 2000] {
      std::this_thread::sleep_for(std::chrono::microseconds(nap));
      server.kill();
    });
    ssize_t got;  // it may wait already when the server goes, or not yet
    char byte;
    EXPECT_EQ(got = memnet_recv(busy.here, &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
    memnet_result result{};
    EXPECT_EQ(memnet_job_wait(receive, 5000, &result), 1);
    EXPECT_EQ(result.error, ECONNRESET);
    EXPECT_EQ(memnet_job_wait(accept, 5000, &result), 1);
    EXPECT_EQ(result.error, ECONNRESET);
    EXPECT_EQ(memnet_job_wait(send, 5000, &result), 1);
    EXPECT_TRUE(result.error == ECONNRESET || result.bytes == static_cast<ssize_t>(sizeof bytes));
    EXPECT_EQ(memnet_recv(busy.here, &byte, 1, 0), 0);
    EXPECT_EQ(memnet_send(busy.here, "x", 1, MSG_NOSIGNAL), -1);
    EXPECT_EQ(errno, EPIPE);
    pollfd entry{idle.here, POLLIN | POLLOUT, 0};
    EXPECT_EQ(memnet_poll(&entry, 1, 0), 1);
    EXPECT_TRUE((entry.revents & POLLHUP) != 0);
    killer.join();
    EXPECT_EQ(memnet_socket(AF_INET, SOCK_STREAM, 0), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    server.start();
    Pair again;
    ASSERT_EQ(memnet_send_direct(again.here, memory, 0, 5, 0), 5) << std::strerror(errno);
  }
  memnet_shut();
}

TEST(Death, AStoppedServerDelaysAndDoesNotHang) {
  const HangGuard guard;
  ServerProcess server;
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  {
    Pair pair;
    server.send(SIGSTOP);
    int status;
    ASSERT_EQ(::waitpid(server.pid(), &status, WUNTRACED), server.pid());
    const std::string bytes = pattern(64 << 10);
    std::size_t sent = 0;
    for (ssize_t one; (one = memnet_send(pair.here, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;)
      sent += static_cast<std::size_t>(one);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_GT(sent, 0u);
    static char more[100];
    memnet_mem_t memory;
    memnet_job_t job;
    ASSERT_EQ(memnet_register_mem(more, sizeof more, &memory), 0);
    ASSERT_EQ(memnet_async_send(pair.here, memory, 0, sizeof more, 0, &job), 0);
    memnet_result result{};
    EXPECT_EQ(memnet_job_wait(job, 20, &result), 0);
    pollfd entry{pair.here, POLLOUT, 0};
    EXPECT_EQ(memnet_poll(&entry, 1, 20), 0);
    server.send(SIGCONT);
    std::string got(sent + sizeof more, 0);
    EXPECT_TRUE(read_all(pair.there.get(), got));
    EXPECT_EQ(memnet_job_wait(job, 5000, &result), 1);
    EXPECT_EQ(memnet_poll(&entry, 1, 5000), 1);
  }
  memnet_shut();
}

TEST(Death, AStoppedServerEndsInGoodOrder) {
  const HangGuard guard;
  ServerProcess server;
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  Pair pair;
  const std::string bytes = pattern(200'000);
  ASSERT_EQ(memnet_send(pair.here, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  std::string got(bytes.size(), 0);
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(read_all(pair.there.get(), got));
  });
  server.stop();
  reader.join();
  EXPECT_TRUE(WIFEXITED(server.exit_status) && WEXITSTATUS(server.exit_status) == 0);
  EXPECT_EQ(got, bytes) << "what was queued is sent";
  char byte;
  EXPECT_EQ(memnet_recv(pair.here, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  memnet_shut();
}

TEST(Death, AForkedChildMakesItsOwn) {
  const HangGuard guard;
  ServerProcess server;
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  {
    Pair pair;
    KernelListener listener;
    Child child([&] {
      char byte;
      if (memnet_send(pair.here, "x", 1, 0) != -1 || errno != EBADF) return 1;
      if (memnet_recv(pair.here, &byte, 1, 0) != -1 || errno != EBADF) return 2;
      if (memnet_open(server.name().c_str()) != 0) return 3;
      const int own = memnet_socket(AF_INET, SOCK_STREAM, 0);
      if (memnet_connect(own, generic(listener.address), sizeof listener.address) != 0) return 4;
      return memnet_send(own, "c", 1, 0) == 1 ? 0 : 5;
    });
    const Fd there = listener.accept();
    std::string got(1, 0);
    EXPECT_TRUE(read_all(there.get(), got));
    EXPECT_EQ(child.wait(), 0);
    ASSERT_EQ(memnet_send(pair.here, "p", 1, 0), 1) << "the parent's are as they were";
    EXPECT_TRUE(read_all(pair.there.get(), got));
    EXPECT_EQ(got, "p");
  }
  memnet_shut();
}

// A child that was forked holds nothing of the parent's that would keep it alive for the server.
TEST(Death, IsSeenThoughAChildLives) {
  const HangGuard guard;
  ServerProcess server;
  KernelListener listener;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  Child parent([&] {
    if (memnet_open(server.name().c_str()) != 0) return 1;
    const int s = memnet_socket(AF_INET, SOCK_STREAM, 0);
    if (memnet_connect(s, generic(listener.address), sizeof listener.address) != 0) return 2;
    if (::fork() == 0) {
      char byte;
      (void)!::read(pipe[0], &byte, 1);
      ::_exit(0);
    }
    return 0;
  });
  const Fd there = listener.accept();
  char byte;
  EXPECT_LE(::read(there.get(), &byte, 1), 0) << "the connection has ended";
  EXPECT_EQ(parent.wait(), 0);
  (void)!::write(pipe[1], "x", 1);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Death, ExecEndsTheSockets) {
  const HangGuard guard;
  ServerProcess server;
  KernelListener listener;
  Child child([&] {
    if (memnet_open(server.name().c_str()) != 0) return 1;
    const int s = memnet_socket(AF_INET, SOCK_STREAM, 0);
    if (memnet_connect(s, generic(listener.address), sizeof listener.address) != 0) return 2;
    ::execlp("sleep", "sleep", "50", nullptr);
    return 3;
  });
  const Fd there = listener.accept();
  char byte;
  EXPECT_EQ(::read(there.get(), &byte, 1), 0);
}

// ---- limits of the server

TEST(Limits, OfDescriptorsAreErrorsAndPass) {
  const HangGuard guard;
  ServerProcess server([](ServerOptions&) {
    const rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
  });
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  {
    std::vector<int> sockets;
    int made;
    while ((made = memnet_socket(AF_INET, SOCK_STREAM, 0)) >= 0) sockets.push_back(made);
    EXPECT_EQ(errno, EMFILE);
    EXPECT_GT(sockets.size(), 20u);
    // Connections that come meanwhile wait, and are accepted once there is a descriptor.
    memnet_close(sockets.back());
    sockets.pop_back();
    Listener listener;
    const Fd there = kernel_connect(listener.address);
    memnet_set_nonblocking(listener.socket, 1);
    EXPECT_EQ(memnet_accept(listener.socket, nullptr, nullptr), -1);
    memnet_close(sockets.back());
    sockets.pop_back();
    memnet_set_nonblocking(listener.socket, 0);
    const int here = memnet_accept(listener.socket, nullptr, nullptr);
    ASSERT_GE(here, 0) << std::strerror(errno);
    EXPECT_EQ(memnet_send(here, "x", 1, 0), 1);
    std::string got(1, 0);
    EXPECT_TRUE(read_all(there.get(), got));
    for (const int one : sockets) memnet_close(one);
    memnet_close(here);
  }
  memnet_shut();
}

TEST(Limits, OfClientsAreToldAtOnce) {
  const HangGuard guard;
  ServerProcess server([](ServerOptions& options) { options.most_lines = 1; });
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  Child second([&] { return memnet_open(server.name().c_str()) == -1 && errno == EBUSY ? 0 : 1; });
  EXPECT_EQ(second.wait(), 0);
  memnet_shut();
  Child third([&] {
    for (int i = 0; i < 1000; ++i, ::usleep(1000))
      if (memnet_open(server.name().c_str()) == 0) return 0;
    return 1;
  });
  EXPECT_EQ(third.wait(), 0) << "the first has gone";
}

TEST(Policy, SaysWhatMayBeBoundAndConnectedTo) {
  const HangGuard guard;
  KernelListener allowed, forbidden;
  ServerProcess server([&](ServerOptions& options) {
    ASSERT_TRUE(options.policy.add("connect 127.0.0.0/8 " + std::to_string(ntohs(allowed.address.sin_port))));
    ASSERT_TRUE(options.policy.add("bind 127.0.0.1 0"));
  });
  ASSERT_EQ(memnet_open(server.name().c_str()), 0);
  int s = memnet_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(memnet_connect(s, generic(forbidden.address), sizeof forbidden.address), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(memnet_connect(s, generic(allowed.address), sizeof allowed.address), 0);
  s = memnet_socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  EXPECT_EQ(memnet_bind(s, generic(any), sizeof any), -1);
  EXPECT_EQ(errno, EACCES);
  const sockaddr_in local = loopback();
  EXPECT_EQ(memnet_bind(s, generic(local), sizeof local), 0);
  // The same address in the other family's clothes.
  s = memnet_socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = forbidden.address.sin_port;
  ASSERT_EQ(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr), 1);
  EXPECT_EQ(memnet_connect(s, reinterpret_cast<sockaddr*>(&six), sizeof six), -1);
  EXPECT_EQ(errno, EACCES);
  six.sin6_port = allowed.address.sin_port;
  EXPECT_EQ(memnet_connect(s, reinterpret_cast<sockaddr*>(&six), sizeof six), 0) << std::strerror(errno);
  memnet_shut();
}

TEST(Policy, RefusesRulesThatMakeNoSense) {
  for (const char* rule :
       {"", "bind", "bind 1.2.3.4", "listen * 80", "bind 1.2.3 80", "bind 1.2.3.4/33 80", "connect * 70000",
        "connect * 90-80", "connect * 80 extra", "connect ::1/129 1", "connect * x"})
    EXPECT_FALSE(memnet::Policy().add(rule)) << rule;
  memnet::Policy policy;
  for (const char* rule : {"bind * 80", "connect [2001:db8::]/32 *", "connect 10.0.0.0/8 1-65535"})
    EXPECT_TRUE(policy.add(rule)) << rule;
}

}  // namespace
}  // namespace viaduct::memnet::testing
