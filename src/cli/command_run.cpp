// viaduct run: a program with libviaduct-sockets.so preloaded. Whatever is wrong with the library, the program runs: on
// kernel TCP, with a line that says why. What it returns is the exit code: we become the program.
#include <fmt/format.h>
#include <unistd.h>
#include <viaduct/version.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "cli/become.hpp"
#include "cli/command.hpp"
#include "cli/preload_library.hpp"
#include "cli/program_file.hpp"

namespace viaduct::cli {

namespace {

struct Options {
  std::optional<int> spin_us;
  std::string peers;
  std::string library;
  bool verbose = false;
};

void warn(const std::string& what) {
  fmt::print(stderr, "viaduct: {}\n", what);
}

// What the user should know before the program starts.
void say_about(const ProgramReport& report, const std::string& name, bool verbose) {
  const std::string who = report.interpreters.empty() ? name : fmt::format("{} ({})", name, report.interpreters.back());
  for (const ProgramFinding& finding : report.findings) {
    if (finding.effect == Effect::total) warn(fmt::format("{} runs on kernel TCP: it {}", who, finding.detail));
    if (finding.effect == Effect::partial) warn(fmt::format("{} {}", who, finding.detail));
    // What may be, and mostly is not, would be a line in the log of each start.
    const bool certain = finding.effect == Effect::partial || finding.effect == Effect::total;
    if (!certain && verbose) warn(fmt::format("{} {}", who, finding.detail));
  }
}

// Who has said whom the program may share memory with knows what that means.
bool has_said_whom(const Options& options) {
  for (const Config::Value& value : Config::process().values())
    if (value.setting->name == "VIADUCT_PEERS" && value.source != "default") return true;
  return !options.peers.empty();
}

std::optional<PreloadLibrary> find_library(const Options& options, const std::string& name) {
  const auto library = check_preload_library(options.library.empty() ? own_preload_library() : options.library);
  if (!library) {
    warn(fmt::format("{} runs on kernel TCP: {}", name, library.error().message()));
    return std::nullopt;
  }
  if (library->version != VIADUCT_VERSION)
    warn(fmt::format("{} is of version {}, this command of " VIADUCT_VERSION
                     ": programs under the two stay on kernel TCP "
                     "with each other",
                     library->path, library->version));
  return *library;
}

void prepare_environment(const Options& options, const PreloadLibrary& library) {
  const char* const before = std::getenv("LD_PRELOAD");
  ::setenv("LD_PRELOAD", with_preload(library.path, before != nullptr ? before : "").c_str(), 1);
  if (options.spin_us) ::setenv("VIADUCT_SPIN_US", std::to_string(*options.spin_us).c_str(), 1);
  if (!options.peers.empty()) ::setenv("VIADUCT_PEERS", options.peers.c_str(), 1);
}

std::vector<std::string> words;  // the program and its arguments

ExitCode run_program(const Options& options) {
  if (words.empty())
    return usage_error("run what? viaduct run [OPTIONS] -- PROGRAM [ARGUMENTS] (viaduct run --help says more)");
  const auto report = inspect_program(words[0], has_said_whom(options));
  if (!report) {
    warn(report.error().message());
    return report.error().code() == ENOENT ? ExitCode::not_found : ExitCode::not_runnable;
  }
  const auto library = find_library(options, words[0]);
  if (library) say_about(*report, words[0], options.verbose);
  if (library && report->preload_is_safe) prepare_environment(options, *library);
  if (library && options.verbose) {
    warn(fmt::format("library {} {}", library->path, library->version));
    warn(fmt::format("viaduct ls {} shows the program's connections", ::getpid()));
  }
  return become(words);
}

std::string_view default_of(std::string_view variable) {
  for (const Setting& setting : settings())
    if (setting.name == variable) return setting.fallback;
  return "";
}

class RunHelp : public CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: viaduct run [OPTIONS] -- PROGRAM [ARGUMENT...]\n";
  }
};

// Whether the word after this one is its value.
bool takes_value(const CLI::App& command, const std::string& word) {
  const CLI::Option* const option = command.get_option_no_throw(word);
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

int cut_off_program(const CLI::App& app, int argc, char** argv) {
  if (argc >= 2 && std::string_view(argv[1]) == "mpirun") return cut_off_mpirun(argc, argv);
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  const CLI::App& command = *app.get_subcommand("run");
  int at = 2;
  while (at < argc && argv[at][0] == '-' && std::string_view(argv[at]) != "--")
    at += takes_value(command, argv[at]) ? 2 : 1;
  const int ours = std::min(at, argc);
  if (at < argc && std::string_view(argv[at]) == "--") ++at;
  for (; at < argc; ++at) words.emplace_back(argv[at]);
  return ours;
}

void add_run(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const command =
      app.add_subcommand("run", "Run a program with its local TCP connections over shared memory");
  command
      ->add_option("--spin", options->spin_us,
                   fmt::format("Longest spin before sleeping (VIADUCT_SPIN_US; {})", default_of("VIADUCT_SPIN_US")))
      ->type_name("US")
      ->check(number_between(0, 10000));
  command
      ->add_option("--peers", options->peers,
                   fmt::format("Whose programs may share memory (VIADUCT_PEERS; {})", default_of("VIADUCT_PEERS")))
      ->type_name("WHO")
      ->check(CLI::IsMember({"user", "any"}));
  command->add_option("--library", options->library, "Preload this instead of the command's own library")
      ->type_name("FILE");
  command->add_flag("--verbose", options->verbose, "Say what is preloaded and what is known about the program");
  command->formatter(std::make_shared<RunHelp>());
  command->footer(
      "Exit codes: those of the program; 126 it cannot be run, 127 there is none, 2 the command line or a "
      "setting cannot be used.");
  on_run(*command, [options] { return run_program(*options); });
}

}  // namespace viaduct::cli
