#include <viaduct/version.h>

#include <cstdio>
#include <exception>

#include "cli/command.hpp"
#include "cli/usage.hpp"

namespace viaduct::cli {
namespace {

using AddCommand = void (*)(CLI::App&);

// The table of contents, in the order of `viaduct --help`.
constexpr AddCommand kCommands[] = {
    add_demo, add_run, add_mpirun, add_ls,  add_doctor, add_handback,
    add_info, add_top, add_bench,  add_nic, add_ping,   add_tcp_server,
};

constexpr const char* kVersion = "viaduct " VIADUCT_VERSION;

// As good as --version: whatever the settings say.
void add_version(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("version", "Print the version");
  command->callback([] { std::puts(kVersion); });
}

ExitCode run(int argc, char** argv) {
  CLI::App app("Viaduct: communication over virtual interfaces, without the kernel in the data path.", "viaduct");
  app.set_version_flag("-V,--version", kVersion, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(0, 1);
  app.footer("Exit codes: 0 done, 1 the operation failed, 2 the command line or a setting cannot be used.");
  for (const AddCommand add : kCommands) add(app);
  add_version(app);

  try {
    app.parse(cut_off_program(app, argc, argv), argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return ExitCode::ok;
  } catch (const CLI::ParseError& fault) {
    return usage_error(explain(app, fault));
  }
  if (app.get_subcommands().empty()) return usage_error(ask_for_command(app));
  return exit_code();
}

}  // namespace
}  // namespace viaduct::cli

int main(int argc, char** argv) {
  try {
    return static_cast<int>(viaduct::cli::run(argc, argv));
  } catch (const std::exception& fault) {
    return static_cast<int>(viaduct::cli::failure(fault.what()));
  }
}
