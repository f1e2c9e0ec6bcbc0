#include "bench/plain_pair.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "bench/partner.hpp"

namespace viaduct::bench {

namespace {

// Enough for a connection to prove that it is long-lived.
constexpr int kExchanges = 12;

double proportional_kb(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/smaps_rollup", pid));
  for (std::string word; file >> word;) {
    double kb = 0;
    if (word == "Pss:" && file >> kb) return kb;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<PlainPair>> PlainPair::start(const PlainSetup& setup) {
  static int count = 0;
  const std::string program = plain_sockets_program();
  const std::string path = fmt::format("/tmp/viaduct-bench-{}-{}", ::getpid(), count++);
  const std::string listen = setup.unix_socket ? "unix:" + path : "tcp:0";
  const int here = placement().mine, there = setup.one_processor ? here : placement().theirs;
  VIADUCT_TRY(ChildProgram server, ChildProgram::start({.words = {program, "listen", listen, setup.server_way},
                                                        .processor = there,
                                                        .accelerated = setup.server_accelerated}));
  const int port = static_cast<int>(server.hear_number());
  const std::string connect = setup.unix_socket ? listen : fmt::format("tcp:{}", port);
  VIADUCT_TRY(ChildProgram client, ChildProgram::start({.words = {program, "connect", connect, setup.client_way},
                                                        .processor = here,
                                                        .accelerated = setup.client_accelerated}));
  std::unique_ptr<PlainPair> pair(new PlainPair(std::move(server), std::move(client)));
  if (setup.unix_socket) pair->path_ = path;
  pair->open_idle(1);
  pair->open_idle(setup.idle);
  return pair;
}

PlainPair::~PlainPair() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void PlainPair::open_idle(unsigned count) {
  constexpr unsigned kAtOnce = 200;
  for (unsigned opened = 0; opened < count; opened += kAtOnce) {
    const unsigned part = std::min(kAtOnce, count - opened);
    both(fmt::format("accept {} {}", part, kExchanges), fmt::format("connect {} {}", part, kExchanges));
  }
}

double PlainPair::both(const std::string& server_line, const std::string& client_line) {
  server_.tell(server_line);
  client_.tell(client_line);
  const double answer = client_.hear_number();
  (void)server_.hear();
  return answer;
}

double PlainPair::round_trip_us(std::size_t size, unsigned count) {
  const unsigned before = count / 5 + 5;  // both have just been woken
  return both(fmt::format("echo {} {}", size, count + before), fmt::format("ask {} {} {}", size, count, before)) / 1000;
}

double PlainPair::per_message_ns(std::size_t size, unsigned count, std::size_t at_once) {
  return both(fmt::format("swallow {} {}", size * count, at_once), fmt::format("stream {} {}", size, count));
}

double PlainPair::visit_us(unsigned count) {
  return both(fmt::format("visits {} 64", count), fmt::format("visit {} 64", count)) / 1000;
}

double PlainPair::memory_kb() const {
  return proportional_kb(server_.pid()) + proportional_kb(client_.pid());
}

unsigned PlainPair::accelerated() const {
  std::ifstream file(fmt::format("/proc/{}/maps", server_.pid()));
  unsigned count = 0;
  for (std::string line; std::getline(file, line);)
    if (line.find("memfd:viaduct-stream") != std::string::npos) ++count;
  return count;
}

}  // namespace viaduct::bench
