#include "bench/crowded_programs.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.hpp"
#include "bench/child_program.hpp"
#include "bench/conduit.hpp"
#include "bench/processor_time.hpp"

namespace viaduct::bench {

namespace {

// Debian's own, whose modules its packages are.
constexpr const char* kPython = "/usr/bin/python3";

// A number behind a word in what a program says.
double number_behind(const std::string& said, const std::string& word) {
  const std::size_t at = said.find(word);
  if (at == std::string::npos) give_up(fmt::format("there is no \"{}\" in what a program says: {}", word, said));
  return std::strtod(said.c_str() + at + word.size(), nullptr);
}

class Application : public CrowdedProgram {
 protected:
  explicit Application(bool accelerated) : accelerated_(accelerated) {}

  ProgramStart start_of(std::vector<std::string> words) const {
    ProgramStart start;
    start.words = std::move(words);
    start.accelerated = accelerated_;
    start.silent = true;
    return start;
  }

  Result<ChildProgram*> serve(const ProgramStart& start) {
    VIADUCT_TRY(ChildProgram program, ChildProgram::start(start));
    return programs_.emplace_back(std::make_unique<ChildProgram>(std::move(program))).get();
  }

  // `work` returns how many operations there were; whatever it starts it waits for.
  template <class Work>
  OperationCost cost_of(Work&& work) const {
    const double cpu_before = cpu_ns();
    const std::uint64_t began = Clock::steady().now_ns();
    const double operations = work();
    const auto took = static_cast<double>(Clock::steady().now_ns() - began);
    if (operations < 1) give_up("a program did nothing");
    return {(cpu_ns() - cpu_before) / operations / 1000, took / operations / 1000};
  }

  std::string finish(const ProgramStart& start) const {
    auto program = ChildProgram::start(start);
    if (!program) give_up(program.error().message());
    auto said = program->finish();
    if (!said) give_up(said.error().message());
    return std::move(*said);
  }

  // For three quarters of a second: wrk itself counts whole seconds, and says what it has when it is interrupted.
  double ask_by_wrk(const std::string& wrk, int connections, int port) const {
    auto program = ChildProgram::start(
        start_of({wrk, "-t1", fmt::format("-c{}", connections), "-d20", fmt::format("http://127.0.0.1:{}/", port)}));
    if (!program) give_up(program.error().message());
    ::usleep(750'000);
    program->signal(SIGINT);
    const auto said = program->finish();
    if (!said) give_up(said.error().message());
    const std::size_t end = said->find(" requests in ");
    if (end == std::string::npos) give_up("wrk says what we do not understand: " + *said);
    const std::size_t begin = said->find_last_of(" \n", end - 1);
    return std::strtod(said->c_str() + begin + 1, nullptr);
  }

  bool accelerated_;
  std::vector<std::unique_ptr<ChildProgram>> programs_;

 private:
  double cpu_ns() const {
    double sum = processor_time_of_ended_ns();
    for (const auto& each : programs_) sum += processor_time_ns(each->pid());
    return sum;
  }
};

Status needs_module(const char* module, const char* package) {
  ProgramStart start;
  start.words = {kPython, "-c", fmt::format("import {}", module)};
  start.silent = true;
  VIADUCT_TRY(ChildProgram program, ChildProgram::start(start));
  if (!program.finish())
    return Error(ENOENT, fmt::format("{} has no {} (Debian package {})", kPython, module, package));
  return {};
}

// ---- ZeroMQ: a question and its answer wake two threads in each process

constexpr const char* kZeroMqServer = R"(
import zmq
socket = zmq.Context().socket(zmq.REP)
print(socket.bind_to_random_port('tcp://127.0.0.1'), flush=True)
while True:
    socket.send(socket.recv())
)";

constexpr const char* kZeroMqClient = R"(
import sys, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.connect('tcp://127.0.0.1:' + sys.argv[1])
for line in sys.stdin:
    for i in range(int(line)):
        socket.send(b'x' * 64)
        socket.recv()
    print('done', flush=True)
)";

class ZeroMq final : public Application {
 public:
  static Result<std::unique_ptr<CrowdedProgram>> start(bool accelerated) {
    VIADUCT_CHECK(needs_module("zmq", "python3-zmq"));
    std::unique_ptr<ZeroMq> made(new ZeroMq(accelerated));
    VIADUCT_TRY(ChildProgram* const server, made->serve(made->start_of({kPython, "-c", kZeroMqServer})));
    const int port = static_cast<int>(server->hear_number());
    VIADUCT_TRY(made->client_, made->serve(made->start_of({kPython, "-c", kZeroMqClient, std::to_string(port)})));
    return std::unique_ptr<CrowdedProgram>(std::move(made));
  }
  OperationCost run(unsigned) override {
    constexpr int kQuestions = 4000;
    return cost_of([this] {
      client_->tell(std::to_string(kQuestions));
      (void)client_->hear();
      return kQuestions;
    });
  }

 private:
  using Application::Application;
  ChildProgram* client_ = nullptr;
};

// ---- aiohttp, asked by wrk

constexpr const char* kAioHttpServer = R"(
import sys
from aiohttp import web
async def answer(request):
    return web.Response(text='v' * 256)
application = web.Application()
application.router.add_get('/', answer)
web.run_app(application, host='127.0.0.1', port=int(sys.argv[1]), print=None, access_log=None)
)";

class AioHttp final : public Application {
 public:
  static Result<std::unique_ptr<CrowdedProgram>> start(bool accelerated) {
    std::unique_ptr<AioHttp> made(new AioHttp(accelerated));
    VIADUCT_TRY(made->wrk_, find_server_program("wrk", "wrk"));
    VIADUCT_CHECK(needs_module("aiohttp", "python3-aiohttp"));
    VIADUCT_TRY(made->port_, free_port());
    VIADUCT_TRY(const ChildProgram* const server,
                made->serve(made->start_of({kPython, "-c", kAioHttpServer, std::to_string(made->port_)})));
    VIADUCT_CHECK(wait_until_it_listens(*server, made->port_));
    return std::unique_ptr<CrowdedProgram>(std::move(made));
  }
  OperationCost run(unsigned) override {
    return cost_of([this] { return ask_by_wrk(wrk_, 16, port_); });
  }

 private:
  using Application::Application;
  std::string wrk_;
  int port_ = 0;
};

// ---- nginx in front of nginx: a new connection behind it for each request

class NginxProxy final : public Application {
 public:
  static Result<std::unique_ptr<CrowdedProgram>> start(bool accelerated) {
    std::unique_ptr<NginxProxy> made(new NginxProxy(accelerated));
    VIADUCT_TRY(made->wrk_, find_server_program("wrk", "wrk"));
    VIADUCT_TRY(made->nginx_, find_server_program("nginx", "nginx-light"));
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    made->folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    VIADUCT_TRY(const int behind, made->start_server("behind", "return 200 \"an answer of some bytes\\n\";"));
    VIADUCT_TRY(made->port_, made->start_server("front", fmt::format("proxy_pass http://127.0.0.1:{};", behind)));
    return std::unique_ptr<CrowdedProgram>(std::move(made));
  }
  OperationCost run(unsigned) override {
    return cost_of([this] { return ask_by_wrk(wrk_, 8, port_); });
  }

 private:
  using Application::Application;

  Result<int> start_server(const std::string& name, const std::string& what) {
    VIADUCT_TRY(const int port, free_port());
    const std::string& folder = folder_->path();
    VIADUCT_CHECK(folder_->write(
        name + ".conf",
        fmt::format(
            "daemon off; worker_processes 1; pid {0}/{1}.pid; error_log {0}/{1}.log;{3}\n"
            "events {{ worker_connections 512; }}\n"
            "http {{ access_log off; keepalive_requests 100000000;\n"
            "  client_body_temp_path {0}/{1}-body; proxy_temp_path {0}/{1}-proxy; fastcgi_temp_path {0}/{1}-fastcgi;\n"
            "  uwsgi_temp_path {0}/{1}-uwsgi; scgi_temp_path {0}/{1}-scgi;\n"
            "  server {{ listen 127.0.0.1:{2}; location / {{ {4} }} }} }}\n",
            folder, name, port, ::geteuid() == 0 ? " user root;" : "", what)));  // one user everywhere
    ProgramStart start = start_of({nginx_, "-c", folder + "/" + name + ".conf"});
    start.end_signal = SIGTERM;
    VIADUCT_TRY(const ChildProgram* const server, serve(start));
    VIADUCT_CHECK(wait_until_it_listens(*server, port));
    return port;
  }

  std::string wrk_, nginx_;
  std::unique_ptr<ScratchFolder> folder_;
  int port_ = 0;
};

// ---- databases

// Their servers refuse to be root: they become another user then, and so do the clients.
class Database : public Application {
 protected:
  Database(bool accelerated, const char* user) : Application(accelerated), user_(user) {}

  Status make_folder() {
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    return folder_->give_to(user_);
  }
  ProgramStart start_here(std::vector<std::string> words) const {
    ProgramStart start = start_of(std::move(words));
    start.folder = folder_->path();
    start.user = user_;
    return start;
  }
  Status finish_plain(std::vector<std::string> words) const {
    ProgramStart start = start_here(std::move(words));
    start.accelerated = false;
    VIADUCT_TRY(ChildProgram program, ChildProgram::start(start));
    if (const auto said = program.finish(); !said) return said.error();
    return {};
  }
  // It listens before it is ready.
  template <class Words>
  Status finish_when_ready(const Words& words) const {
    Status done = finish_plain(words);
    for (int again = 0; !done.ok() && again < 50; ++again) {
      ::usleep(100'000);
      done = finish_plain(words);
    }
    return done;
  }

  const char* user_;
  std::unique_ptr<ScratchFolder> folder_;
  int port_ = 0;
};

class Postgres final : public Database {
 public:
  static Result<std::unique_ptr<CrowdedProgram>> start(bool accelerated) {
    std::unique_ptr<Postgres> made(new Postgres(accelerated));
    VIADUCT_TRY(made->programs_, find_postgres_programs());
    VIADUCT_CHECK(made->make_folder());
    const std::string data = made->folder_->path() + "/data";
    VIADUCT_CHECK(
        made->finish_plain({made->programs_ + "initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync"}));
    VIADUCT_TRY(made->port_, free_port());
    ProgramStart start = made->start_here({made->programs_ + "postgres", "-D", data, "-p", std::to_string(made->port_),
                                           "-h", "127.0.0.1", "-k", data, "-F", "-c", "autovacuum=off"});
    start.end_signal = SIGINT;
    VIADUCT_TRY(const ChildProgram* const server, made->serve(start));
    VIADUCT_CHECK(wait_until_it_listens(*server, made->port_));
    VIADUCT_CHECK(made->finish_when_ready(made->pgbench({"-i", "-q"})));
    return std::unique_ptr<CrowdedProgram>(std::move(made));
  }
  OperationCost run(unsigned) override {
    return cost_of([this] {
      return number_behind(finish(start_here(pgbench({"-S", "-n", "-T", "1", "-c", "8"}))),
                           "transactions actually processed: ");
    });
  }

 private:
  explicit Postgres(bool accelerated) : Database(accelerated, "postgres") {}
  std::vector<std::string> pgbench(std::initializer_list<std::string> more) const {
    std::vector<std::string> words{programs_ + "pgbench", "-h", "127.0.0.1", "-p",
                                   std::to_string(port_), "-U", "bench"};
    words.insert(words.end(), more);
    words.push_back("postgres");
    return words;
  }
  std::string programs_;
};

class MariaDb final : public Database {
 public:
  static constexpr unsigned kThreads[] = {2, 8};

  static Result<std::unique_ptr<CrowdedProgram>> start(bool accelerated) {
    std::unique_ptr<MariaDb> made(new MariaDb(accelerated));
    VIADUCT_TRY(made->sysbench_, find_server_program("sysbench", "sysbench"));
    VIADUCT_TRY(const std::string server, find_server_program("mariadbd", "mariadb-server"));
    VIADUCT_TRY(const std::string install, find_server_program("mariadb-install-db", "mariadb-server"));
    VIADUCT_CHECK(made->make_folder());
    const std::string data = made->folder_->path() + "/data";
    VIADUCT_CHECK(made->finish_plain(
        {install, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir=" + data}));
    VIADUCT_TRY(made->port_, free_port());
    const std::string socket = data + "/socket";
    ProgramStart start =
        made->start_here({server, "--no-defaults", "--datadir=" + data, "--socket=" + socket,
                          fmt::format("--port={}", made->port_), "--bind-address=127.0.0.1", "--skip-grant-tables",
                          "--skip-networking=0", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0",
                          "--innodb-log-file-size=32M", "--innodb-buffer-pool-size=64M", "--sync-binlog=0"});
    start.end_signal = SIGTERM;
    VIADUCT_TRY(const ChildProgram* const running, made->serve(start));
    VIADUCT_CHECK(wait_until_it_listens(*running, made->port_));
    VIADUCT_TRY(const std::string client, find_server_program("mariadb", "mariadb-client"));
    VIADUCT_CHECK(made->finish_when_ready(std::vector<std::string>{client, "--no-defaults", "--socket=" + socket, "-e",
                                                                   "CREATE DATABASE IF NOT EXISTS sbtest"}));
    VIADUCT_CHECK(made->finish_plain(made->sysbench({"prepare"})));
    return std::unique_ptr<CrowdedProgram>(std::move(made));
  }
  OperationCost run(unsigned load) override {
    return cost_of([this, load] {
      return number_behind(
          finish(start_here(sysbench({"--time=1", fmt::format("--threads={}", kThreads[load]), "run"}))),
          "transactions: ");
    });
  }

 private:
  explicit MariaDb(bool accelerated) : Database(accelerated, "mysql") {}
  std::vector<std::string> sysbench(std::initializer_list<std::string> more) const {
    std::vector<std::string> words{
        sysbench_,           "oltp_read_write",          "--mysql-host=127.0.0.1",
        "--mysql-user=root", "--mysql-db=sbtest",        fmt::format("--mysql-port={}", port_),
        "--tables=1",        "--table-size=10000",       "--db-ps-mode=disable",
        "--rand-seed=1",     "--mysql-ignore-errors=all"};
    words.insert(words.end(), more);
    return words;
  }
  std::string sysbench_;
};

}  // namespace

std::vector<CrowdedKind> crowded_kinds() {
  return {{"ZeroMQ", {"ZeroMQ REQ/REP, 64 B"}, ZeroMq::start},
          {"aiohttp", {"aiohttp, wrk with 16 connections"}, AioHttp::start},
          {"nginx as a proxy", {"nginx as a proxy, wrk with 8 connections"}, NginxProxy::start},
          {"PostgreSQL", {"pgbench -S, 8 clients"}, Postgres::start, true},
          {"MariaDB", {"MariaDB read_write, 2 threads", "MariaDB read_write, 8 threads"}, MariaDb::start, true}};
}

}  // namespace viaduct::bench
