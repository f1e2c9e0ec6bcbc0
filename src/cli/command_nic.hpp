// The subcommands of `viaduct nic`, each in a file of its own.
#pragma once

#include "cli/command.hpp"

namespace viaduct::nic {
struct Capabilities;
}

namespace viaduct::cli {

// nic run --serve.
struct ServeRun {
  std::string serve, mac, name, processors, delivery, partition;
  unsigned queues = 1;
  std::uint32_t mtu = 0;
  std::uint64_t spin_us = 50;
};
ExitCode serve_endpoints(const ServeRun& options);
std::string in_words(const nic::Capabilities& can);

void add_nic_run(CLI::App& nic);
void add_nic_stat(CLI::App& nic);
void add_nic_trace(CLI::App& nic);
void add_nic_partition(CLI::App& nic);
void add_nic_model(CLI::App& nic);

}  // namespace viaduct::cli
