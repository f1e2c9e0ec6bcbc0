// `viaduct bench sockets-nginx`: an unmodified nginx that serves a small file over connections that stay open, to wrk.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.hpp"
#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

class SocketsNginx {
 public:
  explicit SocketsNginx(const Options& options)
      : sockets_("sockets-nginx", "nginx and wrk, each on its processor, connections kept alive", options) {}

  Result<Report> run() {
    if (const Status ready = prepare(); !ready.ok()) return sockets_.run_without("nginx", ready.error().message());
    // Without its cache nginx opens, looks at, reads and closes the file for each request, which costs more than all
    // else it does: what is left to gain is said by the floor, and the goal is that of the other case.
    for (const auto& [connections, cached] : {std::pair{20, false}, {20, true}, {1, false}}) {
      if (sockets_.quick() && connections == 1) continue;
      const std::string name = fmt::format("1 KB file{}, {} connection{}", cached ? ", kept open" : "", connections,
                                           connections == 1 ? "" : "s");
      for (const auto& [who, kind, ports] :
           {std::tuple{SocketsSuite::kTcp, Kind::peer, kernel_}, {SocketsSuite::kUs, Kind::us, ours_}})
        sockets_.suite().add({name, who, kind, kRate, "thousand/s", Better::higher,
                              [this, accelerated = kind == Kind::us, port = cached ? ports.cached : ports.plain,
                               count = connections] { return rate(port, accelerated, count) / 1000; }});
      if (!cached)
        sockets_.suite().add({name, "file calls alone", Kind::floor, kRate, "thousand/s", Better::higher,
                              [this] { return file_calls() / 1000; }});
      else
        sockets_.suite().expect({name, kRate, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, 3});
    }
    return sockets_.run(7);
  }

 private:
  Status prepare() {
    VIADUCT_TRY(nginx_, find_server_program("nginx", "nginx-light"));
    VIADUCT_TRY(wrk_, find_server_program("wrk", "wrk"));
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    folder_ = std::make_unique<ScratchFolder>(std::move(folder));
    VIADUCT_CHECK(folder_->write("file", std::string(1024, 'v')));
    VIADUCT_TRY(kernel_, start_server("kernel", false));
    VIADUCT_TRY(ours_, start_server("viaduct", true));
    return {};
  }

  struct Ports {
    int plain = 0;
    int cached = 0;  // open_file_cache: as a busy server has it
  };

  Result<Ports> start_server(const std::string& name, bool accelerated) {
    VIADUCT_TRY(const int port, free_port());
    VIADUCT_TRY(const int cached, free_port());
    const std::string& folder = folder_->path();
    VIADUCT_CHECK(folder_->write(
        name + ".conf",
        fmt::format(
            "daemon off; worker_processes 1; pid {0}/{1}.pid; error_log {0}/{1}.log;{3}\n"
            "events {{ worker_connections 512; }}\n"
            "http {{ access_log off; keepalive_requests 100000000; sendfile on; tcp_nopush on;\n"
            "  client_body_temp_path {0}/{1}-body; proxy_temp_path {0}/{1}-proxy; fastcgi_temp_path {0}/{1}-fastcgi;\n"
            "  uwsgi_temp_path {0}/{1}-uwsgi; scgi_temp_path {0}/{1}-scgi;\n"
            "  server {{ listen 127.0.0.1:{2}; root {0}; }}\n"
            "  server {{ listen 127.0.0.1:{4}; root {0}; open_file_cache max=16; }} }}\n",
            folder, name, port, ::geteuid() == 0 ? " user root;" : "", cached)));  // one user on both sides
    VIADUCT_TRY(ChildProgram server, ChildProgram::start({.words = {nginx_, "-c", folder + "/" + name + ".conf"},
                                                          .processor = placement().theirs,
                                                          .accelerated = accelerated,
                                                          .silent = true,
                                                          .end_signal = SIGTERM}));
    servers_.push_back(std::make_unique<ChildProgram>(std::move(server)));
    VIADUCT_CHECK(wait_until_it_listens(*servers_.back(), port));
    return Ports{port, cached};
  }

  // wrk counts whole seconds; interrupted, it says what it has.
  double rate(int port, bool accelerated, int connections) const {
    auto wrk = ChildProgram::start({.words = {wrk_, "-t1", fmt::format("-c{}", connections), "-d20",
                                              fmt::format("http://127.0.0.1:{}/file", port)},
                                    .processor = placement().mine,
                                    .accelerated = accelerated,
                                    .silent = true});
    if (!wrk) give_up(wrk.error().message());
    ::usleep(sockets_.quick() ? 120'000 : 500'000);
    wrk->signal(SIGINT);
    const auto said = wrk->finish();
    if (!said) give_up(said.error().message());
    const std::string word = "Requests/sec:";
    const std::size_t at = said->find(word);
    if (at == std::string::npos) give_up("wrk says what we do not understand: " + *said);
    return std::strtod(said->c_str() + at + word.size(), nullptr);
  }

  // What a request for a file takes without any socket.
  double file_calls() const {
    const std::string path = folder_->path() + "/file";
    char bytes[1024];
    const int count = sockets_.quick() ? 10'000 : 50'000;
    const std::uint64_t begin = Clock::steady().now_ns();
    for (int i = 0; i < count; ++i) {
      struct stat about {};
      const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
      if (file < 0 || ::fstat(file, &about) != 0 || ::pread(file, bytes, sizeof bytes, 0) != sizeof bytes)
        give_up("cannot read " + path);
      ::close(file);
    }
    return count * 1e9 / static_cast<double>(Clock::steady().now_ns() - begin);
  }

  static constexpr const char* kRate = "requests";

  SocketsSuite sockets_;
  std::unique_ptr<ScratchFolder> folder_;
  std::string nginx_, wrk_;
  Ports kernel_, ours_;
  std::vector<std::unique_ptr<ChildProgram>> servers_;
};

}  // namespace

Result<Report> run_sockets_nginx(const Options& options) {
  return SocketsNginx(options).run();
}

}  // namespace viaduct::bench
