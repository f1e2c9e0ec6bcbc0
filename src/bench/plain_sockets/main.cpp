// viaduct-plain-sockets: an ordinary program with sockets, for the benchmarks. It knows nothing of Viaduct; whether it
// is accelerated is decided by whoever starts it. One process listens, another connects; each does what the lines on
// its standard input say, one after the other, and answers every line with one number.
//
//   viaduct-plain-sockets listen  tcp:0|unix:PATH         blocking|spinning|epoll     says its port, then:
//     accept COUNT EXCHANGES | echo SIZE COUNT | swallow BYTES AT_ONCE | visits COUNT SIZE
//   viaduct-plain-sockets connect tcp:PORT|unix:PATH      blocking|spinning
//     connect COUNT EXCHANGES | ask SIZE COUNT BEFORE | stream SIZE COUNT | visit COUNT SIZE
//   viaduct-plain-sockets load    tcp:PORT CONNECTIONS REQUEST ANSWER_SIZE MILLISECONDS
#include <sys/resource.h>

#include <iostream>
#include <sstream>

#include "bench/plain_sockets/client.hpp"
#include "bench/plain_sockets/load.hpp"
#include "bench/plain_sockets/server.hpp"

namespace plain {

namespace {

void open_as_many_files_as_allowed() {
  rlimit limit{100'000, 100'000};
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

template <class Obey>
int obey_lines(Obey&& obey) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    unsigned long first = 0, second = 0, third = 0;
    words >> verb >> first >> second >> third;
    std::printf("%.4f\n", obey(verb, first, second, third));
    std::fflush(stdout);
  }
  return 0;
}

[[noreturn]] void unknown(const std::string& verb) {
  errno = EINVAL;
  fail(verb.c_str());
}

int serve(const std::string& where, Way way) {
  Server server(where, way);
  return obey_lines([&](const std::string& verb, unsigned long first, unsigned long second, unsigned long) {
    if (verb == "accept")
      server.accept(first, static_cast<int>(second));
    else if (verb == "echo")
      server.echo(first, static_cast<long>(second));
    else if (verb == "swallow")
      server.swallow(first, second);
    else if (verb == "visits")
      server.answer_visits(static_cast<long>(first), second);
    else
      unknown(verb);
    return 0.0;
  });
}

int ask(const std::string& where, Way way) {
  Client client(where, way);
  return obey_lines([&](const std::string& verb, unsigned long first, unsigned long second, unsigned long third) {
    if (verb == "ask") return client.round_trip(first, static_cast<long>(second), static_cast<long>(third));
    if (verb == "stream") return client.per_message(first, static_cast<long>(second));
    if (verb == "visit") return client.visit(static_cast<long>(first), second);
    if (verb != "connect") unknown(verb);
    client.connect(first, static_cast<int>(second));
    return 0.0;
  });
}

// "\r\n" as it is written on a command line.
std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      plain += text[i];
      continue;
    }
    ++i;
    plain += text[i] == 'r' ? '\r' : text[i] == 'n' ? '\n' : text[i];
  }
  return plain;
}

int run(int argc, char** argv) {
  open_as_many_files_as_allowed();
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "listen" && argc == 4) return serve(argv[2], parse_way(argv[3]));
  if (verb == "connect" && argc == 4) return ask(argv[2], parse_way(argv[3]));
  if (verb == "load" && argc == 7) {
    const double rate =
        load(argv[2], std::atoi(argv[3]), unescape(argv[4]), std::strtoul(argv[5], nullptr, 10), std::atof(argv[6]));
    std::printf("%.1f\n", rate);
    return 0;
  }
  std::fprintf(stderr, "viaduct-plain-sockets: started by `viaduct bench` only\n");
  return 2;
}

}  // namespace

}  // namespace plain

int main(int argc, char** argv) {
  return plain::run(argc, argv);
}
