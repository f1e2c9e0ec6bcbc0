// `viaduct bench sockets-redis`: an unmodified redis server and its own benchmark, each on its processor.
#include <cstdlib>
#include <sstream>

#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

struct Job {
  const char* name;
  const char* verb;
  int clients;
  int pipeline;
  unsigned kernel_requests, our_requests;  // about a second of each: connections start on TCP
  double goal;
  bool in_quick;
};
constexpr Job kJobs[] = {
    {"GET, 50 clients", "get", 50, 1, 100'000, 1'000'000, 12, true},
    {"SET, 50 clients", "set", 50, 1, 100'000, 1'000'000, 12, false},
    {"GET, 1 client", "get", 1, 1, 10'000, 400'000, 40, true},
    {"SET, 1 client", "set", 1, 1, 10'000, 400'000, 40, false},
    {"GET, 50 clients, pipeline of 16", "get", 50, 16, 1'000'000, 2'000'000, 1.5, true},
    {"SET, 50 clients, pipeline of 16", "set", 50, 16, 1'000'000, 2'000'000, 1.5, false},
};

class SocketsRedis {
 public:
  explicit SocketsRedis(const Options& options)
      : sockets_("sockets-redis", "redis-server and redis-benchmark, each on its processor", options) {}

  Result<Report> run() {
    if (const Status ready = prepare(); !ready.ok()) return sockets_.run_without("redis", ready.error().message());
    for (const Job& job : kJobs) {
      if (sockets_.quick() && !job.in_quick) continue;
      add(job, SocketsSuite::kTcp, Kind::peer, kernel_port_, false);
      add(job, SocketsSuite::kUnix, Kind::peer, 0, false);
      add(job, SocketsSuite::kUs, Kind::us, our_port_, true);
      sockets_.suite().expect({job.name, kRate, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, job.goal});
    }
    return sockets_.run(5);
  }

 private:
  Status prepare() {
    VIADUCT_TRY(server_, find_server());
    VIADUCT_TRY(benchmark_, find_server_program("redis-benchmark", "redis-tools"));
    VIADUCT_TRY(kernel_port_, start_server("kernel", false));
    VIADUCT_TRY(our_port_, start_server("viaduct", true));
    return {};
  }

  // Debian keeps the server in redis-tools, under the name of a checker that it also is.
  Result<std::string> find_server() {
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    auto server = find_server_program("redis-server", "redis-server");
    if (server) return server;
    VIADUCT_TRY(const std::string same, find_server_program("redis-check-rdb", "redis-tools"));
    const std::string link = folder_->path() + "/redis-server";
    if (::symlink(same.c_str(), link.c_str()) != 0) return Error::from_errno("link redis-server");
    return link;
  }

  Result<int> start_server(const std::string& name, bool accelerated) {
    VIADUCT_TRY(const int port, free_port());
    VIADUCT_TRY(
        ChildProgram server,
        ChildProgram::start({.words = {server_, "--port", std::to_string(port), "--bind", "127.0.0.1", "--save", "",
                                       "--appendonly", "no", "--daemonize", "no", "--unixsocket", socket_of(name)},
                             .processor = placement().theirs,
                             .accelerated = accelerated,
                             .silent = true,
                             .folder = folder_->path()}));
    servers_.push_back(std::make_unique<ChildProgram>(std::move(server)));
    VIADUCT_CHECK(wait_until_it_listens(*servers_.back(), port));
    return port;
  }

  std::string socket_of(const std::string& name) const { return folder_->path() + "/" + name; }

  void add(const Job& job, const char* who, Kind kind, int port, bool accelerated) {
    const unsigned requests = (accelerated ? job.our_requests : job.kernel_requests) / (sockets_.quick() ? 10 : 1);
    std::vector<std::string> words{benchmark_,
                                   "-t",
                                   job.verb,
                                   "-c",
                                   std::to_string(job.clients),
                                   "-n",
                                   std::to_string(requests),
                                   "-P",
                                   std::to_string(job.pipeline),
                                   "--csv"};
    const std::vector<std::string> where =
        port == 0 ? std::vector<std::string>{"-s", socket_of("kernel")}
                  : std::vector<std::string>{"-h", "127.0.0.1", "-p", std::to_string(port)};
    words.insert(words.end(), where.begin(), where.end());
    const ProgramStart start{.words = words, .processor = placement().mine, .accelerated = accelerated, .silent = true};
    sockets_.suite().add(
        {job.name, who, kind, kRate, "thousand/s", Better::higher, [start] { return rate(start) / 1000; }});
  }

  // "test","rps",... and below it the values.
  static double rate(const ProgramStart& start) {
    auto benchmark = ChildProgram::start(start);
    if (!benchmark) give_up(benchmark.error().message());
    const auto said = benchmark->finish();
    if (!said) give_up(said.error().message());
    const std::size_t line = said->find('\n');
    const std::size_t value = line == std::string::npos ? line : said->find(",\"", line);
    if (value == std::string::npos) give_up("redis-benchmark says what we do not understand: " + *said);
    return std::strtod(said->c_str() + value + 2, nullptr);
  }

  static constexpr const char* kRate = "requests";

  SocketsSuite sockets_;
  std::unique_ptr<ScratchFolder> folder_;
  std::string server_, benchmark_;
  int kernel_port_ = 0, our_port_ = 0;
  std::vector<std::unique_ptr<ChildProgram>> servers_;
};

}  // namespace

Result<Report> run_sockets_redis(const Options& options) {
  return SocketsRedis(options).run();
}

}  // namespace viaduct::bench
