// viaduct nic run --serve: an adapter whose endpoints other processes use over shared memory.
#include <fmt/format.h>
#include <viaduct/nic_macs.hpp>
#include <viaduct/nic_serve.hpp>

#include <map>

#include "base/topology.hpp"
#include "cli/command_nic.hpp"
#include "cli/stop_signals.hpp"

namespace viaduct::cli {

namespace {

const std::map<std::string, nic::Delivery> kDeliveries = {{"together", nic::Delivery::together},
                                                          {"single-queue", nic::Delivery::single_queue},
                                                          {"multiqueue", nic::Delivery::multiqueue},
                                                          {"round-robin", nic::Delivery::round_robin}};
const std::map<std::string, nic::Partition> kPartitions = {
    {"release", nic::Partition::release}, {"parallel", nic::Partition::parallel}, {"dynamic", nic::Partition::dynamic}};

// The queues' processors come first in the list, the firmware's behind them.
Result<nic::Config> configuration(const ServeRun& options) {
  nic::Config config;
  config.name = options.name.empty() ? options.serve : options.name;
  config.queues = options.queues;
  config.delivery = options.delivery.empty()
                        ? (options.queues > 1 ? nic::Delivery::multiqueue : nic::Delivery::together)
                        : kDeliveries.at(options.delivery);
  const auto partition = kPartitions.find(options.partition);
  if (partition == kPartitions.end())
    return Error(EINVAL, "a server's firmware runs on processors of its own: --partition release, parallel or dynamic");
  config.partition = partition->second;
  config.endpoint_at = nic::kServedPlace;
  config.spin_us = options.spin_us;
  const unsigned firmware = config.partition == nic::Partition::release ? 1 : 2;
  if (config.partition == nic::Partition::dynamic) config.processors = firmware;
  if (options.processors.empty()) return config;
  VIADUCT_TRY(const std::vector<int> cores, Topology::machine().parse_processors(options.processors));
  const std::size_t queues = config.delivery == nic::Delivery::together ? 0 : options.queues;
  if (queues != 0 && cores.size() <= queues) {  // the firmware's own run anywhere
    for (std::size_t queue = 0; queue < queues; ++queue) config.queue_core.push_back(cores[queue % cores.size()]);
    return config;
  }
  if (cores.size() != queues + firmware)
    return Error(EINVAL,
                 queues == 0
                     ? fmt::format("--processors names {}: say {} for the firmware", cores.size(), firmware)
                     : fmt::format("--processors names {}: say 1 to {} for the queues, or {} for them and {} more "
                                   "for the firmware",
                                   cores.size(), queues, queues, firmware));
  config.cores.assign(cores.begin() + static_cast<std::ptrdiff_t>(queues), cores.end());
  config.queue_core.assign(cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(queues));
  if (queues == 0) config.queue_core.assign(options.queues, cores.front());  // who receives also moves the frames
  return config;
}

}  // namespace

std::string in_words(const nic::Capabilities& can) {
  std::string text = fmt::format("frames of up to {} bytes", can.max_frame);
  if (can.segments > 1) text += fmt::format(", {} of them leave as one", can.segments);
  if (can.gathered_arrivals) text += ", arrivals are gathered";
  text += can.checked_arrivals ? ", arrivals are checked" : ", arrivals are not checked";
  if (can.congestion_marks) text += ", congestion is marked";
  text += can.probes_path_mtu ? ", frames stay whole" : ", frames may be cut on the way";
  return text + (can.privilege.empty() ? "; no privilege needed" : fmt::format("; needs {}", can.privilege));
}

ExitCode serve_endpoints(const ServeRun& options) {
  auto config = configuration(options);
  if (!config) return usage_error(config.error().message());
  nic::Failure why;
  auto mac = nic::make_mac(options.mac, options.mtu == 0 ? 0 : options.mtu + nic::kEthernetHeader, why);
  if (mac == nullptr) return failure(why.message);
  const std::string name = mac->name(), can = in_words(mac->capabilities());
  StopSignals signals;
  const auto server = nic::Server::create(options.serve, *config, std::move(mac), why);
  if (server == nullptr) return failure(why.message);
  fmt::print("{}: {}\n", name, can);
  for (unsigned queue = 0; queue < config->queues; ++queue)
    if (const int core = server->adapter().core_of_queue(queue); core >= 0)
      fmt::print("queue {}: processor {}\n", queue, core);
  fmt::print("serving endpoints of {} as {}; viaduct nic stat shows it, Ctrl-C ends it\n", name, options.serve);
  (void)std::fflush(stdout);
  nic::Link link = nic::Link::up;
  while (!signals.wait(std::chrono::milliseconds(250))) {
    const nic::Link now = server->adapter().mac().link();
    if (now == link) continue;
    link = now;
    constexpr const char* kWords[] = {"the link is up", "the link is down", "the interface was removed"};
    fmt::print(stderr, "viaduct: {}: {}\n", name, kWords[static_cast<int>(link)]);
  }
  const nic::Totals totals = server->adapter().statistics().totals;
  const nic::Server::Counters counters = server->counters();
  fmt::print("{} endpoints were opened, {} refused; {} packets sent, {} received\n", counters.opened, counters.refused,
             totals.packets_sent, totals.packets_received);
  return ExitCode::ok;
}

}  // namespace viaduct::cli
