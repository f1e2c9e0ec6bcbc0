// The `viaduct` command: what every subcommand shares with main().
//
// A subcommand lives in command_<name>.cpp and has one function, add_<name>(), that describes its options to CLI11 and
// says with on_run() what it does. main.cpp lists them. Options live in a shared_ptr that the action captures:
//
//   void add_info(CLI::App& app) {
//     auto options = std::make_shared<Options>();
//     CLI::App* command = app.add_subcommand("info", "...");
//     command->add_flag("--json", options->json, "...");
//     on_run(*command, [options] { return print_info(*options); });
//   }
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace viaduct::cli {

// The exit codes of the command; docs/command.md and the man page list them.
enum class ExitCode {
  ok = 0,
  failed = 1,          // the operation was understood and did not succeed
  usage = 2,           // the command line, a VIADUCT_* variable or the configuration file cannot be used
  not_runnable = 126,  // of `run`, as of env(1): the program is there and cannot be run
  not_found = 127,     // of `run`: there is no such program
};

// What the subcommand does; its result is the exit code of the process. Runs once the whole command line is accepted
// and the settings are known to be good (so Config::process() holds them), and not for --help.
void on_run(CLI::App& command, std::function<ExitCode()> action);

// One line on standard error, "viaduct: <what>", and the exit code that goes with it:
//   return failure(result.error().message());
ExitCode failure(std::string_view what);
ExitCode usage_error(std::string_view what);

// For option->check(): a value that is not a number in the range is a usage error that says so.
CLI::Validator number_between(double least, double most);

constexpr int kHighestPid = 1 << 22;  // the kernel's own bound

// What a command that shows readings live takes: `top` and `nic stat`. `whose` is the help of PID.
struct WatchOptions {
  bool once = false;
  bool json = false;
  double interval = 1;
  std::vector<int> pids;
};
void add_watch_options(CLI::App& command, WatchOptions& options, const std::string& whose);

// What the action returned.
ExitCode exit_code();

void add_info(CLI::App& app);
void add_top(CLI::App& app);
void add_bench(CLI::App& app);
void add_demo(CLI::App& app);
void add_run(CLI::App& app);
// How many words of the command line are ours: behind `run`'s options everything belongs to the program, however it
// looks. Keeps the rest for `run`.
int cut_off_program(const CLI::App& app, int argc, char** argv);
int cut_off_mpirun(int argc, char** argv);
void add_mpirun(CLI::App& app);
void add_ls(CLI::App& app);
void add_doctor(CLI::App& app);
void add_handback(CLI::App& app);
void add_nic(CLI::App& app);
void add_ping(CLI::App& app);
void add_tcp_server(CLI::App& app);

}  // namespace viaduct::cli
