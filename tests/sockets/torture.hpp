// What the modes of sockets-torture share: pairs of connected processes, and a look into somebody's memory.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "sockets/stream_format.hpp"

namespace viaduct::sockets::torture {

using Random = std::minstd_rand;

constexpr unsigned kHangSeconds = 20;
constexpr int kSkipped = 77;

int complain(const char* what);  // 1

// A listener on the loopback, and its name; a connection to it. -1: it failed. No program that is started gets them.
int listen_somewhere(sockaddr_in& name);
int connect_to(const sockaddr_in& name);

struct Pair {
  int client = -1;
  int server = -1;
};
Pair make_pair();
// So many: the clients' ends, the servers'.
std::pair<std::vector<int>, std::vector<int>> make_pairs(std::size_t count);

// Two processes, one end each: call it for both.
template <class Body>
pid_t start(const Pair& pair, bool client, Body body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(kHangSeconds);
  ::close(client ? pair.server : pair.client);
  ::_exit(body(client ? pair.client : pair.server));
}

// What that sender's stream has there: no stretch of it comes a second time.
unsigned char byte_at(int sender, std::uint64_t position);

// Exit code, or 100 plus the signal.
int wait_for(pid_t pid);

// Enough to and fro for the ring to be used.
bool warm(int fd, bool first);

// The memory of a connection of that process, for as long as this lives; empty: it has none.
class StreamOf {
 public:
  explicit StreamOf(pid_t pid);
  ~StreamOf();
  StreamOf(const StreamOf&) = delete;
  StreamOf& operator=(const StreamOf&) = delete;
  explicit operator bool() const { return control_ != nullptr; }
  StreamControl& operator*() const { return *control_; }
  StreamControl* operator->() const { return control_; }

 private:
  StreamControl* control_ = nullptr;
  std::size_t size_ = 0;
};

// From now on this process and its children are refused that system call, where its arguments are such.
struct Argument {
  int which;
  std::uint32_t value;
  bool among_others = false;  // bits of it
};
bool refuse(long call, int error, std::initializer_list<Argument> arguments = {});

// The modes. 0: nothing was lost, nothing hung and nobody crashed.
int crowd(int rounds, unsigned seed);
int idle(int hundreds);
int leave(int rounds, unsigned seed);
int family(int rounds, unsigned seed);
// One of those, in a program of its own: with the connection, or a UNIX socket over which it is `passed`.
int family_member(int fd, int memory, int end, bool passed);
int pool(int rounds, unsigned seed);
int reopen(int rounds, unsigned seed);
int row(int thousands);
int stopped(int rounds, unsigned seed);
int torn(int rounds, unsigned seed);
int waiters(int rounds, unsigned seed);
int hand_back_a_gigabyte(int rounds, unsigned seed);
int asked(int rounds);
int late(int rounds);
int limit(int hundreds);
int unread(int rounds);
int namespaces(int rounds);

}  // namespace viaduct::sockets::torture
