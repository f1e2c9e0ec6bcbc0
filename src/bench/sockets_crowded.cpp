// `viaduct bench sockets-crowded`: more threads than processors, so that most messages wake somebody. What each
// operation costs in processor time, of all programs together, and how long it takes; on kernel TCP, and accelerated.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/clock.hpp"
#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

// Programs that are measured together, each with one thread.
class Crowd {
 public:
  struct Setup {
    std::vector<int> processors;  // all of them run there
    bool accelerated = false;
    std::string way = "blocking";  // of the servers
    unsigned servers = 1;
    unsigned clients_of_each = 1;
  };

  static std::unique_ptr<Crowd> start(const Setup& setup) {
    auto crowd = std::make_unique<Crowd>();
    const std::vector<int> before = Topology::machine().processors();
    (void)pin_this_thread(setup.processors);  // for programs to inherit
    for (unsigned i = 0; i < setup.servers; ++i) crowd->start_server(setup);
    (void)pin_this_thread(before);
    return crowd;
  }

  struct Cost {
    double cpu_us, time_us;  // each
  };

  // `count` operations by each client.
  Cost round_trips(std::size_t size, unsigned count) {
    const auto each = clients_.size() / servers_.size();
    return cost(fmt::format("echo {} {}", size, count * each), fmt::format("ask {} {} 0", size, count), count);
  }
  Cost stream(std::size_t size, unsigned count) {
    return cost(fmt::format("swallow {} {}", size * count, size), fmt::format("stream {} {}", size, count), count);
  }
  Cost visits(unsigned count) {
    return cost(fmt::format("visits {} 64", count), fmt::format("visit {} 64", count), count);
  }

 private:
  static constexpr int kExchanges = 12;  // enough for a connection to prove that it is long-lived

  ChildProgram program(const Setup& setup, const char* verb, const std::string& where, const std::string& way) {
    auto started =
        ChildProgram::start({.words = {plain_sockets_program(), verb, where, way}, .accelerated = setup.accelerated});
    if (!started) give_up(started.error().message());
    return std::move(*started);
  }

  void start_server(const Setup& setup) {
    ChildProgram& server =
        *servers_.emplace_back(std::make_unique<ChildProgram>(program(setup, "listen", "tcp:0", setup.way)));
    const std::string where = fmt::format("tcp:{}", static_cast<int>(server.hear_number()));
    for (unsigned i = 0; i < setup.clients_of_each; ++i) {
      ChildProgram& client =
          *clients_.emplace_back(std::make_unique<ChildProgram>(program(setup, "connect", where, "blocking")));
      server.tell(fmt::format("accept 1 {}", kExchanges));
      client.tell(fmt::format("connect 1 {}", kExchanges));
      (void)client.hear();
      (void)server.hear();
    }
  }

  static double cpu_ns(const ChildProgram& program) {
    double sum = 0;
    std::error_code fault;
    for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", program.pid()), fault)) {
      double ns = 0;
      if (std::ifstream(thread.path() / "schedstat") >> ns) sum += ns;
    }
    return sum;
  }
  double cpu_ns() const {
    double sum = 0;
    for (const auto* programs : {&servers_, &clients_})
      for (const auto& each : *programs) sum += cpu_ns(*each);
    return sum;
  }

  Cost cost(const std::string& server_line, const std::string& client_line, unsigned count) {
    const double before = cpu_ns();
    const std::uint64_t began = Clock::steady().now_ns();
    for (const auto& each : servers_) each->tell(server_line);
    for (const auto& each : clients_) each->tell(client_line);
    for (const auto* programs : {&clients_, &servers_})
      for (const auto& each : *programs) (void)each->hear();
    const auto took = static_cast<double>(Clock::steady().now_ns() - began);
    const double operations = static_cast<double>(count) * static_cast<double>(clients_.size());
    return {(cpu_ns() - before) / operations / 1000, took / operations / 1000};
  }

  std::vector<std::unique_ptr<ChildProgram>> servers_, clients_;
};

class SocketsCrowded {
 public:
  explicit SocketsCrowded(const Options& options)
      : sockets_("sockets-crowded", "Plain sockets, more programs than processors", options) {}

  Result<Report> run() {
    const int here = placement().mine, there = placement().theirs;
    const std::vector<int> one{here}, two = here == there ? one : std::vector<int>{here, there};
    const auto ask = [](unsigned count) { return [count](Crowd& crowd) { return crowd.round_trips(64, count); }; };
    add("one pair on one processor", {.processors = one}, ask(sockets_.scaled(4000)), 0.6);
    for (const unsigned pairs : {2, 4, 8})
      add(fmt::format("{} pairs on two processors", pairs), {.processors = two, .servers = pairs},
          ask(sockets_.scaled(8000 / pairs)), pairs == 4 ? 0.8 : kMostOfTcp);
    add("epoll server, 16 clients, on two processors", {.processors = two, .way = "epoll", .clients_of_each = 16},
        ask(sockets_.scaled(500)), kMostOfTcp);
    add("epoll server, 16 clients, on one processor", {.processors = one, .way = "epoll", .clients_of_each = 16},
        ask(sockets_.scaled(500)), kMostOfTcp);
    add(
        "1 MB messages on one processor", {.processors = one},
        [n = sockets_.scaled(100)](Crowd& crowd) { return crowd.stream(1 << 20, n); }, kMostOfTcp);
    for (const auto& [where, processors] : {std::pair{"one processor", one}, {"two processors", two}})
      add(
          fmt::format("short connections on {}", where), {.processors = processors},
          [n = sockets_.scaled(400)](Crowd& crowd) { return crowd.visits(n); }, kMostOfTcp);
    sockets_.suite().note(
        "not measured here: ZeroMQ, aiohttp under wrk, pgbench with 8 clients, MariaDB under sysbench, nginx as a "
        "proxy; "
        "their rates where this command has a benchmark of them are in sockets-pgbench and sockets-nginx");
    return sockets_.run(9);
  }

 private:
  template <class Run>
  void add(const std::string& name, Crowd::Setup setup, Run run, double most_of_tcp) {
    const std::shared_ptr<Crowd> theirs = Crowd::start(setup);
    setup.accelerated = true;
    const std::shared_ptr<Crowd> ours = Crowd::start(setup);
    const auto add_row = [&](const char* who, Kind kind, const char* metric, auto sample) {
      sockets_.suite().add({name, who, kind, metric, "us", Better::lower, sample});
    };
    add_row(SocketsSuite::kTcp, Kind::peer, kCpu, [=] { return run(*theirs).cpu_us; });
    add_row(SocketsSuite::kUs, Kind::us, kCpu, [=] { return run(*ours).cpu_us; });
    add_row(SocketsSuite::kTcp, Kind::peer, kTime, [=] { return run(*theirs).time_us; });
    add_row(SocketsSuite::kUs, Kind::us, kTime, [=] { return run(*ours).time_us; });
    sockets_.suite().expect({name, kCpu, SocketsSuite::kUs, SocketsSuite::kTcp, Better::lower, most_of_tcp});
  }

  static constexpr double kMostOfTcp = 1.02;
  static constexpr const char* kCpu = "processor time each";
  static constexpr const char* kTime = "time each";

  SocketsSuite sockets_;
};

}  // namespace

Result<Report> run_sockets_crowded(const Options& options) {
  return SocketsCrowded(options).run();
}

}  // namespace viaduct::bench
