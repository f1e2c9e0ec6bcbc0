// The subcommands of `viaduct nic`, each in a file of its own.
#pragma once

#include "cli/command.hpp"

namespace viaduct::cli {

void add_nic_run(CLI::App& nic);
void add_nic_stat(CLI::App& nic);
void add_nic_trace(CLI::App& nic);
void add_nic_partition(CLI::App& nic);
void add_nic_model(CLI::App& nic);

}  // namespace viaduct::cli
