// viaduct mpirun: Open MPI's mpirun, whose programs talk through the libfabric provider `viaduct`. Everything but our
// own two options is mpirun's; what it returns is the exit code: we become it.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "cli/become.hpp"
#include "cli/command.hpp"
#include "cli/program_file.hpp"

extern char** environ;

namespace viaduct::cli {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> words;  // mpirun's
bool verbose = false;

// In the build tree beside the other libraries, below the same prefix where installed.
std::string provider_folder() {
  std::error_code fault;
  const fs::path root = fs::read_symlink("/proc/self/exe", fault).parent_path().parent_path();
  const fs::path installed = root / VIADUCT_LIBDIR / "libfabric", built = root / "lib" / "libfabric";
  for (const fs::path& folder : {installed, built})
    if (fs::exists(folder / "libviaduct-fi.so", fault)) return folder.string();
  return "";
}

// For the ranks, wherever they run: where the provider is, and what was set for Viaduct here.
std::vector<std::string> variables(const std::string& folder) {
  const char* const before = std::getenv("FI_PROVIDER_PATH");
  std::vector<std::string> all{
      fmt::format("FI_PROVIDER_PATH={}{}", folder, before != nullptr && *before != 0 ? fmt::format(":{}", before) : ""),
      "FI_PROVIDER=viaduct"};
  if (verbose) all.push_back("VIADUCT_FABRIC_PATHS=on");
  for (char** one = environ; *one != nullptr; ++one)
    if (std::strncmp(*one, "VIADUCT_", 8) == 0 && !(verbose && std::strncmp(*one, "VIADUCT_FABRIC_PATHS=", 21) == 0))
      all.push_back(*one);
  return all;
}

// Debian's configuration leaves libfabric out; the command line wins over it.
std::vector<std::string> with_provider(const std::string& mpirun, const std::string& folder) {
  std::vector<std::string> all{
      mpirun, "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "viaduct"};
  for (const std::string& variable : variables(folder)) all.insert(all.end(), {"-x", variable});
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

ExitCode run_mpirun() {
  const auto mpirun = find_program("mpirun");
  if (!mpirun) return failure("there is no mpirun here; Debian has it in the package openmpi-bin"), ExitCode::not_found;
  const std::string folder = provider_folder();
  if (folder.empty())
    return failure(
        "libviaduct-fi.so is not beside this command: it is built where libfabric-dev is installed (./viaduct build)");
  return become(with_provider(*mpirun, folder));
}

class MpirunHelp : public CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: viaduct mpirun [--verbose] [WHAT MPIRUN TAKES...]\n";
  }
};

}  // namespace

int cut_off_mpirun(int argc, char** argv) {
  int at = 2;
  if (at < argc && (std::string_view(argv[at]) == "--help" || std::string_view(argv[at]) == "-h")) return at + 1;
  if (at < argc && std::string_view(argv[at]) == "--verbose") verbose = true, ++at;
  for (; at < argc; ++at) words.emplace_back(argv[at]);
  return 2;
}

void add_mpirun(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("mpirun", "Run an MPI program over shared memory and the network");
  command->add_flag("--verbose", verbose, "Say which path each pair of ranks has; must come first");
  command->formatter(std::make_shared<MpirunHelp>());
  command->footer("Everything else is mpirun's, and so are the exit codes; 127: there is no mpirun.");
  on_run(*command, run_mpirun);
}

}  // namespace viaduct::cli
