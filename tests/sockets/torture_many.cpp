// Many connections: one after the other, so many that the ports would run out if any stayed behind, and all at once.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "torture.hpp"

namespace viaduct::sockets::torture {

namespace {

constexpr unsigned kPatience = 300;  // seconds, on a machine that is busy
constexpr std::size_t kMessage = 64;

using Message = std::array<char, kMessage>;

Message question(int connection, int turn) {
  Message bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(static_cast<std::size_t>(connection) * 31 + static_cast<std::size_t>(turn) * 7 + i);
  return bytes;
}

bool receive_all(int fd, Message& bytes) {
  return ::recv(fd, bytes.data(), bytes.size(), MSG_WAITALL) == static_cast<ssize_t>(bytes.size());
}

bool ask(int fd, const Message& bytes) {
  Message answer{};
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()) &&
         receive_all(fd, answer) && answer == bytes;
}

bool answer(int fd) {
  Message bytes;
  return receive_all(fd, bytes) &&
         ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// This process's share of the memory that it has in common with others.
std::size_t shared_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss_Shmem:")) return std::stoul(line.substr(std::strlen("Pss_Shmem:"))) * 1024;
  return 0;
}

bool may_open(std::size_t descriptors) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= descriptors) return true;
  limit.rlim_cur = descriptors;
  if (limit.rlim_max < descriptors) limit.rlim_max = descriptors;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

int row(int thousands) {
  sockaddr_in name;
  const int listener = listen_somewhere(name);
  if (listener < 0) return complain("listen");
  const int count = thousands * 1000;
  const pid_t server = ::fork();
  if (server == 0) {
    ::alarm(kPatience);
    for (int i = 0; i < count; ++i) {
      const int fd = ::accept(listener, nullptr, nullptr);
      if (fd < 0) ::_exit(complain("accept"));
      if (!answer(fd)) ::_exit(complain("answer"));
      ::close(fd);
    }
    ::_exit(0);
  }
  ::alarm(kPatience);
  for (int i = 0; i < count; ++i) {
    const int fd = connect_to(name);
    if (fd < 0) return complain("connect");
    if (!ask(fd, question(i, 0))) return complain("ask");
    ::close(fd);
  }
  return wait_for(server);
}

int idle(int hundreds) {
  constexpr int kTurns = 60;  // each is taken to the ring
  constexpr std::size_t kMostBytes = std::size_t{64} << 10;
  const int count = hundreds * 100;
  if (!may_open(static_cast<std::size_t>(count) * 3 / 2 + 100)) return kSkipped;
  sockaddr_in name;
  const int listener = listen_somewhere(name);
  int told[2];
  if (listener < 0 || ::pipe(told) != 0) return complain("listen");
  const std::size_t before = shared_bytes();
  const pid_t server = ::fork();
  if (server == 0) {
    ::alarm(kPatience);
    std::vector<int> ends;
    for (int i = 0; i < count; ++i) {
      ends.push_back(::accept(listener, nullptr, nullptr));
      for (int turn = 0; turn < kTurns; ++turn)
        if (!answer(ends.back())) ::_exit(complain("answer"));
    }
    const std::size_t bytes = shared_bytes() - before;
    if (::write(told[1], &bytes, sizeof bytes) != sizeof bytes) ::_exit(complain("write"));
    for (const int fd : ends)  // all of them work still
      if (!answer(fd)) ::_exit(complain("answer after all were open"));
    ::_exit(0);
  }
  ::alarm(kPatience);
  std::vector<int> ends;
  for (int i = 0; i < count; ++i) {
    ends.push_back(connect_to(name));
    for (int turn = 0; turn < kTurns; ++turn)
      if (!ask(ends.back(), question(i, turn))) return complain("ask");
  }
  std::size_t theirs = 0;
  if (::read(told[0], &theirs, sizeof theirs) != sizeof theirs) return complain("read");
  const std::size_t each = (theirs + shared_bytes() - before) / static_cast<std::size_t>(count);
  for (int i = 0; i < count; ++i)
    if (!ask(ends[static_cast<std::size_t>(i)], question(i, kTurns))) return complain("ask after all were open");
  std::fprintf(stderr, "torture: %d connections, %zu bytes of shared memory each\n", count, each);
  if (each > kMostBytes) return 1;
  if (each == 0) return std::fprintf(stderr, "torture: none was accelerated\n"), 1;
  return wait_for(server);
}

}  // namespace viaduct::sockets::torture
