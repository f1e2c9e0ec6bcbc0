// `viaduct bench sockets-pgbench`: an unmodified PostgreSQL and `pgbench -S`, each on its processor.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

class SocketsPgbench {
 public:
  explicit SocketsPgbench(const Options& options)
      : sockets_("sockets-pgbench", "PostgreSQL and pgbench -S, each on its processor", options) {}

  Result<Report> run() {
    if (sockets_.quick())
      return sockets_.run_without("PostgreSQL", "making a database takes longer than --quick allows");
    if (const Status ready = prepare(); !ready.ok()) return sockets_.run_without("PostgreSQL", ready.error().message());
    for (const int clients : {8, 1}) {
      const std::string name = fmt::format("{} client{}", clients, clients == 1 ? "" : "s");
      for (const auto& [who, kind, port] :
           {std::tuple{SocketsSuite::kTcp, Kind::peer, kernel_port_}, {SocketsSuite::kUs, Kind::us, our_port_}})
        sockets_.suite().add({name, who, kind, kRate, "thousand/s", Better::higher,
                              [this, accelerated = kind == Kind::us, port = port, clients] {
                                return rate(port, accelerated, clients) / 1000;
                              }});
      sockets_.suite().expect({name, kRate, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, 1.3});
    }
    return sockets_.run(5);
  }

 private:
  Status prepare() {
    VIADUCT_TRY(programs_, find_postgres_programs());
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    VIADUCT_CHECK(folder_->give_to(kUser));  // the server refuses to run as root
    VIADUCT_TRY(kernel_port_, start_server("kernel", false));
    VIADUCT_TRY(our_port_, start_server("viaduct", true));
    return {};
  }

  Result<std::string> run_one(const std::vector<std::string>& words, bool accelerated = false) const {
    VIADUCT_TRY(ChildProgram program, ChildProgram::start({.words = words,
                                                           .processor = placement().mine,
                                                           .accelerated = accelerated,
                                                           .silent = true,
                                                           .folder = folder_->path(),
                                                           .user = kUser}));
    return program.finish();
  }

  Result<int> start_server(const std::string& name, bool accelerated) {
    const std::string data = folder_->path() + "/" + name;
    VIADUCT_CHECK(run_one({programs_ + "initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync"}));
    VIADUCT_TRY(const int port, free_port());
    VIADUCT_TRY(ChildProgram server,
                ChildProgram::start({.words = {programs_ + "postgres", "-D", data, "-p", std::to_string(port), "-h",
                                               "127.0.0.1", "-k", data, "-F", "-c", "autovacuum=off"},
                                     .processor = placement().theirs,
                                     .accelerated = accelerated,
                                     .silent = true,
                                     .folder = folder_->path(),
                                     .user = kUser,
                                     .end_signal = SIGINT}));
    servers_.push_back(std::make_unique<ChildProgram>(std::move(server)));
    VIADUCT_CHECK(wait_until_it_listens(*servers_.back(), port));
    // It listens before it is ready.
    auto filled = run_one(pgbench(port, {"-i", "-q"}));
    for (int again = 0; !filled && again < 50; ++again) {
      ::usleep(100'000);
      filled = run_one(pgbench(port, {"-i", "-q"}));
    }
    if (!filled) return filled.error();
    return port;
  }

  std::vector<std::string> pgbench(int port, std::initializer_list<std::string> more) const {
    std::vector<std::string> words{programs_ + "pgbench", "-h", "127.0.0.1", "-p", std::to_string(port), "-U", "bench"};
    words.insert(words.end(), more);
    words.push_back("postgres");
    return words;
  }

  double rate(int port, bool accelerated, int clients) const {
    const auto said = run_one(pgbench(port, {"-S", "-n", "-T", "1", "-c", std::to_string(clients)}), accelerated);
    if (!said) give_up(said.error().message());
    const std::string word = "tps = ";
    const std::size_t at = said->find(word);
    if (at == std::string::npos) give_up("pgbench says what we do not understand: " + *said);
    return std::strtod(said->c_str() + at + word.size(), nullptr);
  }

  static constexpr const char* kUser = "postgres";
  static constexpr const char* kRate = "transactions";

  SocketsSuite sockets_;
  std::unique_ptr<ScratchFolder> folder_;
  std::string programs_;
  int kernel_port_ = 0, our_port_ = 0;
  std::vector<std::unique_ptr<ChildProgram>> servers_;
};

}  // namespace

Result<Report> run_sockets_pgbench(const Options& options) {
  return SocketsPgbench(options).run();
}

}  // namespace viaduct::bench
