// A TCP server for tests, in a process of its own, and what one does with its sockets.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memnet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "memnet/server/server.hpp"

namespace viaduct::memnet::testing {

using viaduct::testing::Child;
using viaduct::testing::HangGuard;

// A name that no other test uses at the same time.
inline std::string server_name() {
  static int number = 0;
  return "test-" + std::to_string(::getpid()) + '-' + std::to_string(++number);
}

// The server of this test, forked before the test has threads.
class ServerProcess {
 public:
  explicit ServerProcess(std::function<void(ServerOptions&)> change = {}, std::string name = server_name())
      : name_(std::move(name)), change_(std::move(change)) {
    start();
  }
  ~ServerProcess() { stop(); }

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }

  void start() {
    int pipe[2];
    ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ServerOptions options;
      options.name = name_;
      if (change_) change_(options);
      auto server = Server::open(std::move(options));
      const char ok = server ? 'y' : 'n';
      (void)!::write(pipe[1], &ok, 1);
      if (!server) ::_exit(1);
      static volatile std::sig_atomic_t stopped = 0;
      ::signal(SIGTERM, [](int) { stopped = 1; });
      (*server)->run([] { return stopped != 0; }, 5'000'000);
      (*server)->stop();
      ::_exit(0);
    }
    ::close(pipe[1]);
    char ok = 0;
    EXPECT_EQ(::read(pipe[0], &ok, 1), 1);
    EXPECT_EQ(ok, 'y');
    ::close(pipe[0]);
  }
  void kill(int signal = SIGKILL) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    int status;
    (void)::waitpid(pid_, &status, 0);
    exit_status = status;
    pid_ = -1;
  }
  void stop() { kill(SIGTERM); }
  void send(int signal) { ::kill(pid_, signal); }
  int exit_status = 0;

 private:
  std::string name_;
  std::function<void(ServerOptions&)> change_;
  pid_t pid_ = -1;
};

inline sockaddr_in loopback(std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

inline const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}
inline sockaddr* generic(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

// A kernel socket that listens at a port of the loopback interface.
struct KernelListener {
  Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address = loopback();
  KernelListener() {
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd.get(), generic(address), length), 0);
    EXPECT_EQ(::listen(fd.get(), 128), 0);
    EXPECT_EQ(::getsockname(fd.get(), generic(address), &length), 0);
  }
  Fd accept() const { return Fd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
};

inline Fd kernel_connect(const sockaddr_in& address) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), generic(address), sizeof address), 0) << std::strerror(errno);
  return fd;
}

// A MemNet socket that listens.
struct Listener {
  int socket = memnet_socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback();
  explicit Listener(int backlog = 128) {
    socklen_t length = sizeof address;
    EXPECT_GE(socket, 0) << std::strerror(errno);
    EXPECT_EQ(memnet_bind(socket, generic(address), length), 0) << std::strerror(errno);
    EXPECT_EQ(memnet_listen(socket, backlog), 0) << std::strerror(errno);
    EXPECT_EQ(memnet_getsockname(socket, generic(address), &length), 0) << std::strerror(errno);
  }
  ~Listener() { memnet_close(socket); }
};

// A MemNet socket and the kernel socket at its other end.
struct Pair {
  KernelListener listener;
  int here = memnet_socket(AF_INET, SOCK_STREAM, 0);
  Fd there;
  Pair() {
    EXPECT_EQ(memnet_connect(here, generic(listener.address), sizeof listener.address), 0) << std::strerror(errno);
    there = listener.accept();
    EXPECT_TRUE(there);
  }
  ~Pair() {
    if (here >= 0) memnet_close(here);
  }
};

inline std::string pattern(std::size_t length, unsigned seed = 1) {
  std::string bytes(length, 0);
  std::uint32_t state = seed * 2654435761u + 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

inline bool read_all(int fd, std::string& into) {
  for (std::size_t at = 0; at < into.size();) {
    const ssize_t got = ::read(fd, into.data() + at, into.size() - at);
    if (got <= 0) return false;
    at += static_cast<std::size_t>(got);
  }
  return true;
}
inline bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

// The test's own client: opened to its server, gone with it.
class MemnetTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(memnet_open(server.name().c_str()), 0) << std::strerror(errno); }
  void TearDown() override { memnet_shut(); }
  HangGuard guard;
  ServerProcess server;
};

}  // namespace viaduct::memnet::testing
