// `viaduct bench sockets-memcached`: an unmodified memcached, asked for a small value by a plain program.
#include <cstdlib>

#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

class SocketsMemcached {
 public:
  explicit SocketsMemcached(const Options& options)
      : sockets_("sockets-memcached", "memcached with one thread and a plain client, each on its processor", options) {}

  Result<Report> run() {
    if (const Status ready = prepare(); !ready.ok()) return sockets_.run_without("memcached", ready.error().message());
    for (const int connections : {50, 1}) {
      const std::string name = fmt::format("get, {} connection{}", connections, connections == 1 ? "" : "s");
      for (const auto& [who, kind, port] :
           {std::tuple{SocketsSuite::kTcp, Kind::peer, kernel_port_}, {SocketsSuite::kUs, Kind::us, our_port_}})
        sockets_.suite().add({name, who, kind, kRate, "thousand/s", Better::higher,
                              [this, accelerated = kind == Kind::us, port = port, connections] {
                                return load(port, accelerated, connections, "get key\\r\\n", kAnswer) / 1000;
                              }});
      sockets_.suite().expect({name, kRate, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, 4});
    }
    return sockets_.run(7);
  }

 private:
  // "VALUE key 0 32\r\n", the value, "\r\nEND\r\n"
  static constexpr unsigned kAnswer = 16 + 32 + 7;

  Status prepare() {
    VIADUCT_TRY(memcached_, find_server_program("memcached", "memcached"));
    VIADUCT_TRY(kernel_port_, start_server(false));
    VIADUCT_TRY(our_port_, start_server(true));
    return {};
  }

  Result<int> start_server(bool accelerated) {
    VIADUCT_TRY(const int port, free_port());
    std::vector<std::string> words{memcached_, "-l", "127.0.0.1", "-p", std::to_string(port), "-U", "0", "-t", "1"};
    if (::geteuid() == 0) words.insert(words.end(), {"-u", "root"});  // one user on both sides
    VIADUCT_TRY(ChildProgram server,
                ChildProgram::start(
                    {.words = words, .processor = placement().theirs, .accelerated = accelerated, .silent = true}));
    servers_.push_back(std::make_unique<ChildProgram>(std::move(server)));
    VIADUCT_CHECK(wait_until_it_listens(*servers_.back(), port));
    (void)load(port, false, 1, fmt::format("set key 0 0 32\\r\\n{}\\r\\n", std::string(32, 'v')), 8);  // "STORED\r\n"
    return port;
  }

  double load(int port, bool accelerated, int connections, const std::string& request, unsigned answer) const {
    auto client = ChildProgram::start(
        {.words = {plain_sockets_program(), "load", fmt::format("tcp:{}", port), std::to_string(connections), request,
                   std::to_string(answer), sockets_.quick() ? "60" : "400"},
         .processor = placement().mine,
         .accelerated = accelerated});
    if (!client) give_up(client.error().message());
    const auto said = client->finish();
    if (!said) give_up(said.error().message());
    return std::strtod(said->c_str(), nullptr);
  }

  static constexpr const char* kRate = "requests";

  SocketsSuite sockets_;
  std::string memcached_;
  int kernel_port_ = 0, our_port_ = 0;
  std::vector<std::unique_ptr<ChildProgram>> servers_;
};

}  // namespace

Result<Report> run_sockets_memcached(const Options& options) {
  return SocketsMemcached(options).run();
}

}  // namespace viaduct::bench
