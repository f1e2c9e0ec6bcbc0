// `viaduct bench sockets-crowded`: more threads than processors, so that most messages wake somebody. What each
// operation costs in processor time, of all programs together, and how long it takes; on kernel TCP, and accelerated.
#include <fmt/format.h>

#include <functional>
#include <optional>

#include "base/clock.hpp"
#include "bench/crowded_programs.hpp"
#include "bench/processor_time.hpp"
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

  // `count` operations by each client.
  OperationCost round_trips(std::size_t size, unsigned count) {
    const auto each = clients_.size() / servers_.size();
    return cost(fmt::format("echo {} {}", size, count * each), fmt::format("ask {} {} 0", size, count), count);
  }
  OperationCost stream(std::size_t size, unsigned count) {
    return cost(fmt::format("swallow {} {}", size * count, size), fmt::format("stream {} {}", size, count), count);
  }
  OperationCost visits(unsigned count) {
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

  double cpu_ns() const {
    double sum = 0;
    for (const auto* programs : {&servers_, &clients_})
      for (const auto& each : *programs) sum += own_processor_time_ns(each->pid());
    return sum;
  }

  OperationCost cost(const std::string& server_line, const std::string& client_line, unsigned count) {
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
    for (const CrowdedKind& kind : crowded_kinds()) add_program(kind, two);
    return sockets_.run(9);
  }

 private:
  template <class Run>
  void add(const std::string& name, Crowd::Setup setup, Run run, double most_of_tcp) {
    const std::shared_ptr<Crowd> theirs = Crowd::start(setup);
    setup.accelerated = true;
    const std::shared_ptr<Crowd> ours = Crowd::start(setup);
    add_rows(
        name, [=] { return run(*theirs); }, [=] { return run(*ours); }, most_of_tcp);
  }

  using Program = std::shared_ptr<CrowdedProgram>;

  static Result<Program> start(const CrowdedKind& kind, bool accelerated, const std::vector<int>& processors) {
    const std::vector<int> before = Topology::machine().processors();
    (void)pin_this_thread(processors);  // for programs to inherit
    auto program = kind.start(accelerated);
    (void)pin_this_thread(before);
    if (!program) return program.error();
    return Program(std::move(*program));
  }

  void add_program(const CrowdedKind& kind, const std::vector<int>& processors) {
    const auto left_out = [&](const std::string& why) {
      sockets_.suite().note(fmt::format("{} was not measured: {}", kind.name, why));
    };
    if (sockets_.quick() && kind.slow_to_start) return left_out("making a database takes longer than --quick allows");
    auto theirs = start(kind, false, processors);
    auto ours = theirs ? start(kind, true, processors) : theirs;
    if (!ours) return left_out(ours.error().message());
    for (unsigned load = 0; load < kind.loads.size(); ++load)
      add_rows(
          kind.loads[load], [program = *theirs, load] { return program->run(load); },
          [program = *ours, load] { return program->run(load); }, kMostOfTcp);
  }

  // Both figures of one run, whichever is asked for first.
  class Figures {
   public:
    explicit Figures(std::function<OperationCost()> run) : run_(std::move(run)) {}
    double cpu_us() { return take(cpu_us_); }
    double time_us() { return take(time_us_); }

   private:
    double take(std::optional<double>& which) {
      if (!which) {
        const OperationCost cost = run_();
        cpu_us_ = cost.cpu_us;
        time_us_ = cost.time_us;
      }
      return *std::exchange(which, std::nullopt);
    }
    std::function<OperationCost()> run_;
    std::optional<double> cpu_us_, time_us_;
  };

  void add_rows(const std::string& name, std::function<OperationCost()> theirs, std::function<OperationCost()> ours,
                double most_of_tcp) {
    const auto tcp = std::make_shared<Figures>(std::move(theirs)), us = std::make_shared<Figures>(std::move(ours));
    Suite& suite = sockets_.suite();
    suite.add({name, SocketsSuite::kTcp, Kind::peer, kCpu, "us", Better::lower, [tcp] { return tcp->cpu_us(); }});
    suite.add({name, SocketsSuite::kUs, Kind::us, kCpu, "us", Better::lower, [us] { return us->cpu_us(); }});
    suite.add({name, SocketsSuite::kTcp, Kind::peer, kTime, "us", Better::lower, [tcp] { return tcp->time_us(); }});
    suite.add({name, SocketsSuite::kUs, Kind::us, kTime, "us", Better::lower, [us] { return us->time_us(); }});
    suite.expect({name, kCpu, SocketsSuite::kUs, SocketsSuite::kTcp, Better::lower, most_of_tcp});
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
