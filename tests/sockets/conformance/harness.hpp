// What a conformance case is written with. A case is a function that uses one end of a connection, or several, and says
// what every call answered. The other end is an *agent* that does what it is told: another process, accelerated or not,
// or a thread of this one. The trace must be the same whoever is accelerated: it holds results, errno and digests,
// never a time or a number of bytes that the kernel is free to choose.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace conformance {

// ---- the trace

void note(const char* format, ...) __attribute__((format(printf, 1, 2)));
// "what = 5", or "what = -1 EAGAIN". Returns the result.
ssize_t call(const char* what, ssize_t result);
// The same, with a digest of the bytes.
ssize_t call(const char* what, ssize_t result, const void* data);
std::uint64_t digest(const void* data, std::size_t size, std::uint64_t before = 0xcbf29ce484222325);
std::string poll_bits(unsigned bits);
// The case makes no sense this way: nothing to compare.
void skip();

// The bytes of every stream: what comes at `offset` is known to both ends.
void fill(void* data, std::size_t size, std::uint64_t offset);
bool matches(const void* data, std::size_t size, std::uint64_t offset);

// ---- the other end

enum class Order : std::uint32_t {
  listen,
  accept,
  connect,
  send,
  receive,
  receive_once,
  receive_to_end,
  echo,
  shutdown,
  close,
  abort,
  option,
  nonblocking,
  send_once,
  receive_slowly,
  start_plain_program,
  quit,
};

struct Command {
  Order order;
  int link;
  std::int64_t a, b, c;
};

struct Answer {
  std::int64_t result;
  std::int32_t error;
  std::uint64_t digest;
};

enum class AgentKind { process, thread };

class Agent {
 public:
  Agent(AgentKind kind, const char* preload);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  Answer tell(Order order, int link = 0, std::int64_t a = 0, std::int64_t b = 0, std::int64_t c = 0);
  void begin(Order order, int link = 0, std::int64_t a = 0, std::int64_t b = 0, std::int64_t c = 0);
  Answer end();
  void kill();  // as by SIGKILL; afterwards nobody is there
  pid_t pid() const { return pid_; }
  bool is_process() const { return pid_ > 0; }

 private:
  int control_ = -1;
  pid_t pid_ = -1;
  std::thread thread_;
};

// The agent's side; returns when told to quit.
void serve(int control);

// ---- this end

struct Link {
  int fd = -1;
  int number = 0;  // the agent's name for its end
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  // The whole of it, as the stream's bytes; false: something failed, `errno` says what.
  bool send(std::size_t bytes);
  // Exactly so many, verified.
  bool receive(std::size_t bytes);
};

enum class Opening { connect, accept };  // what this end does

class Run {
 public:
  Run(AgentKind kind, const char* preload, bool expect_ring) : agent(kind, preload), expect_ring_(expect_ring) {}

  Agent agent;
  // A connection as it comes, and one that has been used so much that it is on the ring where both ends are
  // accelerated.
  Link open(Opening opening = Opening::connect, int family = AF_INET);
  // The same with a listener of ours that was seen to first.
  Link open_at(void (*prepare)(int listener), int family = AF_INET);
  Link warm(Opening opening = Opening::connect, int family = AF_INET);
  void warm_up(Link& link);

  // Bytes that the agent sends, or expects, counted in the link.
  void peer_sends(Link& link, std::size_t bytes);
  void peer_receives(Link& link, std::size_t bytes);
  // One thread waits for each answer of the agent with `wait`, which returns how many were told; this one asks.
  void ask_while_another_waits(Link& link, const std::function<int()>& wait);
  void peer_says(const char* what, Order order, const Link& link, std::int64_t a = 0, std::int64_t b = 0,
                 std::int64_t c = 0);

  // "yes", "no", or "unused": whether warmed connections were on the ring where they should be.
  const char* ring() const { return warmed_ == 0 ? "unused" : missed_ == 0 ? "yes" : "no"; }
  bool expects_ring() const { return expect_ring_; }

 private:
  bool expect_ring_;
  int warmed_ = 0;
  int missed_ = 0;
  int links_ = 0;
};

// Runs a program that cannot be accelerated, and waits for its end: what it might inherit goes back to TCP before.
void start_plain_program();

// Connections of this process that use the ring in both directions.
int on_ring();

// ---- cases

struct Case {
  const char* group;
  const char* name;
  const char* what;
  void (*body)(Run&);
};
const std::vector<Case>& cases();

struct Register {
  Register(const char* group, const char* name, const char* what, void (*body)(Run&));
};

#define CASE(group, name, what)                                                                      \
  static void group##_##name(conformance::Run&);                                                     \
  static const conformance::Register register_##group##_##name(#group, #name, what, group##_##name); \
  static void group##_##name([[maybe_unused]] conformance::Run& run)

// Runs `body` in a forked child and waits for it; the trace says how it ended.
template <class Body>
void in_child(const char* what, Body body);

int spawn_child(void (*body)(void*), void* argument);
void note_exit(const char* what, int pid);

template <class Body>
void in_child(const char* what, Body body) {
  const int pid = spawn_child([](void* argument) { (*static_cast<Body*>(argument))(); }, &body);
  note_exit(what, pid);
}

// A listening socket on the loopback of the family; its port.
int listening(int family, int& port, int type = SOCK_STREAM);
int connect_to(int family, int port, bool& ok);

extern const char* own_program;
extern const char* static_program;  // null: there is none

}  // namespace conformance
