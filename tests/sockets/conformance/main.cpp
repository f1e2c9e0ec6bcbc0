// sockets-conformance: every case natively and in five ways under libviaduct-sockets.so, compared line by line.
//
//   --list                         the cases
//   --compare LIBRARY [--only X] [--show]  runs what contains X; exit code 1 where something differs
//   --table LIBRARY                the same, as the table of docs/sockets-conformance.md
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>

#include "sockets/conformance/harness.hpp"

namespace conformance {
namespace {

constexpr int kLimitSeconds = 8;

struct Way {
  const char* name;
  const char* what;
  bool subject;  // is preloaded
  bool peer;
  AgentKind kind;
  const char* after = "5";  // VIADUCT_SOCKETS_AFTER
};
constexpr Way kWays[] = {
    {"native", "kernel TCP", false, false, AgentKind::process},
    {"both", "both ends accelerated", true, true, AgentKind::process},
    {"subject", "only the program under test accelerated", true, false, AgentKind::process},
    {"peer", "only its peer accelerated", false, true, AgentKind::process},
    {"one-process", "both ends in one accelerated process", true, true, AgentKind::thread},
    {"at-once", "both ends accelerated, from the first operation on", true, true, AgentKind::process, "1"},
};

const Way* way_named(const std::string& name) {
  for (const Way& way : kWays)
    if (name == way.name) return &way;
  return nullptr;
}

std::string full_name(const Case& one) {
  return std::string(one.group) + "." + one.name;
}

// ---- one case, in this process

int run_case(const std::string& name, const Way& way, const char* library) {
  ::signal(SIGPIPE, SIG_DFL);
  for (const Case& one : cases()) {
    if (full_name(one) != name) continue;
    std::string ring;
    {
      const bool expected = way.subject && way.peer;
      Run run(way.kind, way.peer ? library : nullptr, expected);
      one.body(run);
      ring = expected ? run.ring() : "unused";
    }
    note("#ring %s", ring.c_str());
    return 0;
  }
  return 2;
}

// What the programs that cases start do: so many bytes back, on a descriptor that they inherited.
// What exec has left of a connection's options; the exit code tells: TCP_NODELAY, TCP_CORK, SO_RCVLOWAT of 10.
int options_child(int fd) {
  const auto option = [fd](int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(fd, level, name, &value, &size);
    return value;
  };
  return option(IPPROTO_TCP, TCP_NODELAY) | option(IPPROTO_TCP, TCP_CORK) << 1 |
         (option(SOL_SOCKET, SO_RCVLOWAT) == 10 ? 4 : 0);
}

int echo_child(int fd, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    char byte;
    if (::read(fd, &byte, 1) != 1) return 3;
    if (::write(fd, &byte, 1) != 1) return 4;
  }
  return 0;
}

// ---- all of them

struct Trace {
  std::string text;
  std::string ring = "unused";
};

class Running {
 public:
  Running(const Case& one, const Way& way, const char* library) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) std::abort();
    output_ = pipe[0];
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::dup2(pipe[1], 1);
      if (way.subject) ::setenv("LD_PRELOAD", library, 1);
      ::setenv("VIADUCT_SOCKETS_AFTER", way.after, 1);
      const std::string name = full_name(one);
      ::execl(own_program, own_program, "--case", name.c_str(), way.name, library, nullptr);
      ::_exit(127);
    }
    ::close(pipe[1]);
  }

  Trace finish() {
    Trace trace;
    const auto seconds = [] {
      timespec now{};
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      return now.tv_sec;
    };
    const time_t end = seconds() + kLimitSeconds;
    bool late = false;
    for (char buffer[4096];;) {
      pollfd entry{output_, POLLIN, 0};
      const int left = static_cast<int>(end - seconds());
      if (left <= 0 || ::poll(&entry, 1, left * 1000) <= 0) {
        late = true;
        break;
      }
      const ssize_t got = ::read(output_, buffer, sizeof buffer);
      if (got <= 0) break;
      trace.text.append(buffer, static_cast<std::size_t>(got));
    }
    ::kill(-pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ::close(output_);
    split_ring(trace);
    if (late)
      trace.text += "did not end in time\n";
    else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
      trace.text += "ended by SIG" + std::string(sigabbrev_np(WTERMSIG(status))) + "\n";
    return trace;
  }

 private:
  static void split_ring(Trace& trace) {
    const std::size_t at = trace.text.find("#ring ");
    if (at == std::string::npos) return;
    trace.ring = trace.text.substr(at + 6, trace.text.find('\n', at) - at - 6);
    trace.text.resize(at);
  }
  int output_ = -1;
  pid_t pid_ = -1;
};

// The first line where they part.
std::string difference(const std::string& native, const std::string& other) {
  std::size_t at = 0;
  while (at < native.size() && at < other.size()) {
    const std::string left = native.substr(at, native.find('\n', at) - at);
    const std::string right = other.substr(at, other.find('\n', at) - at);
    if (left != right) return "'" + right + "' instead of '" + left + "'";
    at += left.size() + 1;
  }
  if (at < native.size()) return "stops before '" + native.substr(at, native.find('\n', at) - at) + "'";
  return "goes on with '" + other.substr(at, other.find('\n', at) - at) + "'";
}

constexpr char kTableHead[] =
    "# Conformance of accelerated sockets\n\n"
    "What a program sees of its sockets under `viaduct run`, against what it sees natively. Each case is a small "
    "program\n"
    "([tests/sockets/conformance](../tests/sockets/conformance)) that writes down what every call answered: result, "
    "errno, a\n"
    "digest of the bytes. It runs natively and in five other ways, and the six traces are compared line by line. "
    "Where both\n"
    "ends are accelerated the case uses the connection until it is on the ring, and fails where it does not get "
    "there.\n\n"
    "| column | who runs under the library |\n| --- | --- |\n"
    "| both ends | the program of the case, and its peer, another process |\n"
    "| program only, peer only | one of them; the connection is the kernel's |\n"
    "| one process | program and peer are two threads of one process |\n"
    "| at once | as both ends, with `VIADUCT_SOCKETS_AFTER=1`: short connections reach the ring too |\n\n"
    "*same*: call by call as natively. *on the ring*: and every connection of the case was accelerated. *-*: makes no "
    "sense\n"
    "this way. `sockets-conformance --table LIBRARY` writes this page, `--compare LIBRARY --only NAME --show` shows "
    "traces.\n";

constexpr char kTableTail[] =
    "\n## What is known to differ\n\n"
    "- Buffers of a connection on the ring that are not mapped: SIGSEGV instead of EFAULT.\n"
    "- Bytes that are unread in the ring when a connection is handed back (exec of a program that cannot be "
    "accelerated,\n"
    "  `SCM_RIGHTS`, a socket that becomes standard input or output) come over TCP when the peer next waits for or "
    "uses the\n"
    "  connection. A peer that does neither delays them; one that has shut down its sending before can not send them "
    "again.\n"
    "- A signal that arrives while a blocking call is between two sleeps, a few microseconds, does not end it with "
    "EINTR. The\n"
    "  next one does.\n"
    "- After a peer was killed, sends of one who has not received its end yet may succeed for one tick of the kernel's "
    "clock,\n"
    "  some milliseconds, and eight more before EPIPE; TCP lets one through.\n"
    "- Other members of an epoll set, or of a poll, may be told up to 20 us after an accelerated one that is always "
    "ready.\n"
    "- How many bytes a connection takes before it is full: up to four megabytes, then TCP's buffers for a call that "
    "blocks.\n";

int compare(const char* library, const std::string& only, bool show, bool table) {
  int failures = 0;
  int count = 0;
  if (table) std::fputs(kTableHead, stdout);
  const char* group = "";
  for (const Case& one : cases()) {
    const std::string name = full_name(one);
    if (name.find(only) == std::string::npos) continue;
    ++count;
    std::map<std::string, Trace> traces;
    // Two at a time: one waits most of the time.
    const std::size_t ways = std::size(kWays);
    for (std::size_t i = 0; i < ways; i += 2) {
      Running first(one, kWays[i], library);
      if (i + 1 < ways) {
        Running second(one, kWays[i + 1], library);
        traces[kWays[i].name] = first.finish();
        traces[kWays[i + 1].name] = second.finish();
      } else {
        traces[kWays[i].name] = first.finish();
      }
    }
    std::string verdicts;
    const Trace& native = traces["native"];
    if (show) std::printf("---- %s\n%s", name.c_str(), native.text.c_str());
    bool failed = native.text.empty() || native.text.find("did not end in time") != std::string::npos;
    if (failed) std::fprintf(stderr, "FAILED %s natively: %s\n", name.c_str(), native.text.c_str());
    for (const Way& way : kWays) {
      if (way.subject == false && way.peer == false) continue;
      const Trace& trace = traces[way.name];
      if (trace.text.find("#skip") != std::string::npos) {
        verdicts += " - |";
        continue;
      }
      const bool same = trace.text == native.text;
      const bool slow = trace.ring == "no";
      if (!same)
        std::fprintf(stderr, "FAILED %s, %s: %s\n", name.c_str(), way.name,
                     difference(native.text, trace.text).c_str());
      if (slow) std::fprintf(stderr, "FAILED %s, %s: was not on the ring\n", name.c_str(), way.name);
      if (show && !same) std::printf("---- %s %s\n%s", name.c_str(), way.name, trace.text.c_str());
      failed |= !same || slow;
      verdicts += same && !slow ? trace.ring == "yes" ? " same, on the ring |" : " same |" : " **different** |";
    }
    failures += failed;
    if (table) {
      if (std::strcmp(group, one.group) != 0) {
        group = one.group;
        std::printf(
            "\n## %s\n\n| case | what the program does | both ends | program only | peer only | one process | at "
            "once |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n",
            group);
      }
      std::printf("| %s | %s |%s\n", one.name, one.what, verdicts.c_str());
    }
    std::fflush(stdout);
  }
  if (table) std::fputs(kTableTail, stdout);
  std::fprintf(stderr, "%d cases, %d different\n", count, failures);
  return failures == 0 && count != 0 ? 0 : 1;
}

int use(const char* program) {
  std::fprintf(stderr, "usage: %s --list | --compare LIBRARY [--only TEXT] [--show] | --table LIBRARY\n", program);
  return 2;
}

int main(int count, char** arguments) {
  own_program = ::realpath("/proc/self/exe", nullptr);
  static const std::string neighbour =
      std::string(own_program).substr(0, std::string(own_program).rfind('/') + 1) + "sockets-static-echo";
  if (::access(neighbour.c_str(), X_OK) == 0) static_program = neighbour.c_str();
  const std::string order = count > 1 ? arguments[1] : "";
  if (order == "--agent" && count == 3) return serve(std::atoi(arguments[2])), 0;
  if (order == "--echo" && count == 4) return echo_child(std::atoi(arguments[2]), std::atoi(arguments[3]));
  if (order == "--options" && count == 3) return options_child(std::atoi(arguments[2]));
  if (order == "--accept" && count == 4)
    return echo_child(::accept(std::atoi(arguments[2]), nullptr, nullptr), std::atoi(arguments[3]));
  if (order == "--case" && count == 5) {
    const Way* const way = way_named(arguments[3]);
    return way == nullptr ? 2 : run_case(arguments[2], *way, arguments[4]);
  }
  if (order == "--list") {
    for (const Case& one : cases()) std::printf("%s\n", full_name(one).c_str());
    return 0;
  }
  if ((order != "--compare" && order != "--table") || count < 3) return use(arguments[0]);
  std::string only;
  bool show = false;
  for (int i = 3; i < count; ++i) {
    if (std::strcmp(arguments[i], "--show") == 0)
      show = true;
    else if (std::strcmp(arguments[i], "--only") == 0 && i + 1 < count)
      only = arguments[++i];
    else
      return use(arguments[0]);
  }
  const char* const library = ::realpath(arguments[2], nullptr);
  if (library == nullptr) return std::perror(arguments[2]), 2;
  return compare(library, only, show, order == "--table");
}

}  // namespace
}  // namespace conformance

int main(int count, char** arguments) {
  return conformance::main(count, arguments);
}
