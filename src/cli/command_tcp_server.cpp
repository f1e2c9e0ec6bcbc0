// viaduct tcp-server: does the TCP of programs that use memnet.h.
#include <fmt/format.h>

#include <chrono>

#include "cli/command.hpp"
#include "cli/stop_signals.hpp"
#include "memnet/server/server.hpp"

namespace viaduct::cli {

namespace {

struct Options {
  memnet::ServerOptions server;
  std::vector<std::string> allow;
  std::string policy;
  std::string listen_on = "via";
};

ExitCode run_tcp_server(Options& options) {
  for (const std::string& rule : options.allow)
    if (auto added = options.server.policy.add(rule); !added) return usage_error(added.error().message());
  if (!options.policy.empty())
    if (auto read = options.server.policy.read(options.policy); !read) return failure(read.error().message());
  options.server.on_network = options.listen_on == "net";
  const std::string name = options.server.name;
  const unsigned workers = options.server.workers;
  StopSignals stop;
  auto server = memnet::Server::open(std::move(options.server));
  if (!server) return failure(server.error().message());
  fmt::print("serving as '{}' with {} worker{}; Ctrl-C ends it\n", name, workers, workers == 1 ? "" : "s");
  std::fflush(stdout);
  (*server)->run([&] { return stop.wait(std::chrono::milliseconds(0)); });
  fmt::print("stopping: {} sockets of {} clients\n", (*server)->sockets(), (*server)->lines());
  std::fflush(stdout);
  (*server)->stop();
  return ExitCode::ok;
}

}  // namespace

void add_tcp_server(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("tcp-server", "Do the TCP of programs that use memnet.h");
  command->add_option("--name", options->server.name, "What clients ask for")->capture_default_str();
  command->add_option("--workers", options->server.workers, "Threads that run sockets")
      ->capture_default_str()
      ->check(number_between(1, 64));
  command->add_option("--processors", options->server.processors, "Processors of the workers, in turn: 1,2")
      ->delimiter(',')
      ->check(number_between(0, 4095));
  command->add_option("--listen-on", options->listen_on, "via: this host; net: other hosts too")
      ->capture_default_str()
      ->check(CLI::IsMember({"via", "net"}));
  command->add_option("--clients", options->server.most_lines, "Clients of one worker, at most")
      ->capture_default_str()
      ->check(number_between(1, 4096));
  command->add_option("--sockets", options->server.most_sockets, "Sockets of one worker, at most")
      ->capture_default_str()
      ->check(number_between(1, 1e6));
  command
      ->add_option("--busy", options->server.busy_permille,
                   "Thousandths of its time above which a worker takes no more clients; 1001: never")
      ->capture_default_str()
      ->check(number_between(1, 1001));
  command->add_option("--allow", options->allow, "A rule, as in --policy; several are allowed")->type_name("RULE");
  command->add_option("--policy", options->policy, "File of rules: bind|connect ADDRESS[/BITS] PORT[-PORT]")
      ->type_name("FILE");
  on_run(*command, [options] { return run_tcp_server(*options); });
}

}  // namespace viaduct::cli
