// viaduct nic: running an adapter, looking at one, planning one.
#include "cli/command_nic.hpp"

namespace viaduct::cli {

void add_nic(CLI::App& app) {
  CLI::App* const nic = app.add_subcommand("nic", "The adapter: run one on real interfaces, watch one that runs");
  nic->require_subcommand(0, 1);
  nic->callback([nic] {
    if (nic->get_subcommands().empty()) throw CLI::RequiredError("one of run, stat, trace, partition and model");
  });
  add_nic_run(*nic);
  add_nic_stat(*nic);
  add_nic_trace(*nic);
  add_nic_partition(*nic);
  add_nic_model(*nic);
}

}  // namespace viaduct::cli
