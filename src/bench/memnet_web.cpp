// `viaduct bench memnet-web`: figures 6 to 8 of the MemNet paper: a web server of one thread over kernel sockets and
// over MemNet. With two processors the load, the TCP server and the web server compete, so what counts is the processor
// time of the web server for each request, with the TCP server's beside it.
#include <fmt/format.h>

#include <csignal>
#include <map>
#include <memory>

#include "base/topology.hpp"
#include "bench/conduit.hpp"
#include "bench/memnet_server.hpp"
#include "bench/partner.hpp"
#include "bench/processor_time.hpp"
#include "bench/suite.hpp"
#include "bench/web_load.hpp"

namespace viaduct::bench {

namespace {

constexpr const char* kApplication = "processor time of the web server";
constexpr const char* kServer = "processor time of the TCP server";
constexpr const char* kRate = "requests";
constexpr const char* kOld = "HTTP/1.0, 1 KB";
constexpr const char* kNew = "HTTP/1.1, 1 KB, six a connection";

class MemnetWeb {
 public:
  explicit MemnetWeb(const Options& options)
      : options_(options),
        suite_("memnet-web", "A web server on a processor of its own; TCP server and load share the other") {}

  Result<Report> run() {
    auto program = find_memnet_web();
    if (!program) {
      suite_.note("nothing was measured: " + program.error().message());
      return suite_.run(options_, 1);
    }
    VIADUCT_TRY(ScratchFolder folder, ScratchFolder::make());
    VIADUCT_CHECK(folder.write("file", std::string(1024, 'v')));
    VIADUCT_TRY(server_, MemnetServer::start());
    for (const char* who : {"kernel", "plain", "direct", "async"}) VIADUCT_CHECK(start(*program, who, folder.path()));
    for (const bool http11 : {false, true}) add(http11);
    for (const auto& [case_name, plain, async] : {std::tuple{kOld, 0.6, 0.5}, {kNew, 0.6, 0.5}}) {
      suite_.expect({case_name, kApplication, "MemNet plain", "kernel sockets", Better::lower, plain});
      suite_.expect({case_name, kApplication, "MemNet async", "kernel sockets", Better::lower, async});
    }
    suite_.note("the paper, requests against kernel sockets: plain +15 %, direct +22 %, async +30 % (HTTP/1.0)");
    suite_.note(
        "the load generator shares a processor with the TCP server here: rates say little, processor time does");
    const PinnedScope pinned(placement().theirs);
    return suite_.run(options_, 7);
  }

 private:
  struct Web {
    std::unique_ptr<ChildProgram> program;
    int port = 0;
  };
  struct Figures {
    double application = 0, server = 0, rate = 0;
  };

  Status start(const std::string& program, const std::string& who, const std::string& folder) {
    VIADUCT_TRY(
        ChildProgram child,
        ChildProgram::start({.words = {program, "--way", who, "--port", "0", "--server", server_->name(), folder},
                             .processor = placement().mine,
                             .end_signal = SIGTERM}));
    Web web{std::make_unique<ChildProgram>(std::move(child)), 0};
    const std::string line = web.program->hear();
    if (std::sscanf(line.c_str(), "serving at port %d", &web.port) != 1)
      return Error(ECONNREFUSED, "memnet_web does not start");
    webs_[who] = std::move(web);
    return {};
  }

  struct Who {
    const char* name;
    const char* way;
    Kind kind;
  };
  static constexpr Who kWho[] = {{"kernel sockets", "kernel", Kind::peer},
                                 {"MemNet plain", "plain", Kind::us},
                                 {"MemNet direct", "direct", Kind::us},
                                 {"MemNet async", "async", Kind::us}};

  // The first of the three rows measures, the others tell what it saw.
  void add(bool http11) {
    const char* const case_name = http11 ? kNew : kOld;
    for (const Who& who : kWho)
      suite_.add({case_name, who.name, who.kind, kApplication, "us", Better::lower,
                  [this, way = std::string(who.way), http11] {
                    Figures& figures = figures_[way + (http11 ? "1" : "0")];
                    figures = measure(webs_.at(way), http11);
                    return figures.application;
                  }});
    const auto tell = [&](const Who& who, const char* metric, const char* unit, Better better, auto figure) {
      suite_.add({case_name, who.name, who.kind, metric, unit, better,
                  [this, key = std::string(who.way) + (http11 ? "1" : "0"), figure] { return figure(figures_[key]); }});
    };
    for (const Who& who : kWho)
      if (who.kind == Kind::us)
        tell(who, kServer, "us", Better::lower, [](const Figures& figures) { return figures.server; });
    for (const Who& who : kWho)
      tell(who, kRate, "thousand/s", Better::higher, [](const Figures& figures) { return figures.rate / 1000; });
  }

  Figures measure(const Web& web, bool http11) {
    const std::uint64_t for_ns = options_.quick ? 50'000'000 : 300'000'000;
    const double application = own_processor_time_ns(web.program->pid());
    const double server = own_processor_time_ns(server_->pid());
    const auto requests = run_web_load(web.port, {.http11 = http11}, for_ns);
    if (!requests) give_up(requests.error().message());
    const auto count = static_cast<double>(std::max<std::uint64_t>(*requests, 1));
    return {(own_processor_time_ns(web.program->pid()) - application) / count / 1000,
            (own_processor_time_ns(server_->pid()) - server) / count / 1000, count * 1e9 / static_cast<double>(for_ns)};
  }

  const Options options_;
  Suite suite_;
  std::unique_ptr<MemnetServer> server_;
  std::map<std::string, Web> webs_;
  std::map<std::string, Figures> figures_;
};

}  // namespace

Result<Report> run_memnet_web(const Options& options) {
  return MemnetWeb(options).run();
}

}  // namespace viaduct::bench
