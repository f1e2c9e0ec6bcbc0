// viaduct nic run: an adapter between an interface of the kernel's stack and a real one.
#include <fmt/format.h>
#include <poll.h>
#include <viaduct/nic_bridge.hpp>
#include <viaduct/nic_macs.hpp>

#include <atomic>
#include <memory>
#include <thread>

#include "base/clock.hpp"
#include "base/counters.hpp"
#include "base/topology.hpp"
#include "cli/command_nic.hpp"
#include "cli/stop_signals.hpp"

namespace viaduct::cli {

namespace {

struct Options {
  std::string host, mac, name, pcap, processors, serve, delivery;
  std::string partition;
  unsigned queues = 1;
  std::string pcap_side = "both";
  std::uint32_t mtu = 0;
  std::uint64_t spin_us = 50;
};

const std::map<std::string, nic::Partition> kPartitions = {{"inline", nic::Partition::inlined},
                                                           {"release", nic::Partition::release},
                                                           {"parallel", nic::Partition::parallel},
                                                           {"dynamic", nic::Partition::dynamic}};

Result<nic::Config> configuration(const Options& options) {
  nic::Config config;
  config.name = options.name.empty() ? options.host : options.name;
  config.partition = kPartitions.at(options.partition);
  if (!options.processors.empty()) {
    VIADUCT_TRY(config.cores, Topology::machine().parse_processors(options.processors));
  }
  if (config.partition == nic::Partition::dynamic && config.cores.empty()) config.processors = 2;
  config.spin_us = options.spin_us;
  config.hold_when_empty = true;  // the interface's own ring has room for more
  return config;
}

// What `viaduct top` and `viaduct nic stat` show of the two sides, beyond what the firmware counts.
class SideCounters {
 public:
  explicit SideCounters(const std::string& side)
      : counters_{counter("nic." + side + ".sent"), counter("nic." + side + ".received"),
                  counter("nic." + side + ".transmit_drops"), counter("nic." + side + ".receive_drops"),
                  counter("nic." + side + ".link_down")} {}

  void publish(const nic::Mac& mac) {
    const nic::MacCounters now = mac.counters();
    counters_[0].add(now.sent - seen_.sent);
    counters_[1].add(now.received - seen_.received);
    counters_[2].add(now.transmit_drops - seen_.transmit_drops);
    counters_[3].add(now.receive_drops - seen_.receive_drops);
    seen_ = now;
    if (const nic::Link link = mac.link(); link != link_) {
      constexpr const char* kWords[] = {"the link is up", "the link is down",
                                        "the interface was removed: the adapter goes on without it"};
      fmt::print(stderr, "viaduct: {}: {}\n", mac.name(), kWords[static_cast<int>(link)]);
      counters_[4].set(link == nic::Link::up ? 0 : 1);
      link_ = link;
    }
  }

 private:
  std::array<Counter, 5> counters_;
  nic::MacCounters seen_;
  nic::Link link_ = nic::Link::up;
};

// Partition inline: the firmware on a thread that sleeps when there is nothing to do.
void poll_until(nic::Bridge& bridge, const Options& options, const std::vector<int>& cores,
                const std::atomic<bool>& stopping) {
  if (!cores.empty()) (void)pin_this_thread(cores.front());
  const Clock& clock = Clock::steady();
  std::uint64_t idle_since = 0;
  constexpr int kNapMs = 20;  // a descriptor wakes it before
  while (!stopping.load(std::memory_order_relaxed)) {
    if (bridge.poll()) {
      idle_since = 0;
      continue;
    }
    const std::uint64_t now = clock.now_ns();
    if (idle_since == 0) idle_since = now;
    if (now - idle_since < options.spin_us * 1000) continue;
    pollfd watched{bridge.fd(), POLLIN, 0};
    (void)::poll(&watched, 1, watched.fd < 0 ? 1 : kNapMs);
  }
}

std::string summary(nic::Bridge& bridge) {
  const nic::Totals totals = bridge.adapter().statistics().totals;
  const nic::MacCounters mac = bridge.adapter().mac().counters(), host = bridge.host_side().counters();
  return fmt::format("{} packets sent, {} received; dropped: {} on the way out, {} on the way in, {} by the adapter\n",
                     mac.sent, mac.received, mac.transmit_drops, mac.receive_drops + host.transmit_drops,
                     totals.no_buffer_drops + totals.short_buffer_drops + totals.bad_frames + totals.bad_send_packets +
                         bridge.counters().too_long);
}

std::unique_ptr<nic::Mac> tapped(std::unique_ptr<nic::Mac> mac, const std::shared_ptr<nic::Capture>& capture,
                                 const Options& options, std::string_view side) {
  if (capture == nullptr || (options.pcap_side != "both" && options.pcap_side != side)) return mac;
  return nic::make_captured_mac(std::move(mac), capture);
}

ExitCode watch(nic::Bridge& bridge, nic::Capture* capture, StopSignals& signals) {
  SideCounters mac("mac"), host("host");
  bool capturing = capture != nullptr;
  for (bool stop = false; !stop;) {
    stop = signals.wait(std::chrono::milliseconds(250));
    mac.publish(bridge.adapter().mac());
    host.publish(bridge.host_side());
    if (capturing && !capture->flush()) {
      capturing = false;
      fmt::print(stderr, "viaduct: the capture file could not be written: it ends here, the adapter goes on\n");
    }
  }
  fmt::print("{}", summary(bridge));
  return capture != nullptr && !capturing ? ExitCode::failed : ExitCode::ok;
}

// Without a host there is somebody to serve.
ExitCode run(const Options& given) {
  Options options = given;
  if (options.host.empty() == options.serve.empty())
    return usage_error("say either --host INTERFACE, to bridge, or --serve NAME, to serve endpoints");
  if (!options.serve.empty()) {
    if (!options.pcap.empty()) return usage_error("--pcap goes with --host");
    return serve_endpoints({.serve = options.serve,
                            .mac = options.mac,
                            .name = options.name,
                            .processors = options.processors,
                            .delivery = options.delivery,
                            .partition = options.partition.empty() ? "release" : options.partition,
                            .queues = options.queues,
                            .mtu = options.mtu,
                            .spin_us = options.spin_us});
  }
  if (options.queues != 1 || !options.delivery.empty()) return usage_error("--queues and --delivery go with --serve");
  if (options.partition.empty()) options.partition = "inline";
  auto config = configuration(options);
  if (!config) return usage_error(config.error().message());
  nic::Failure why;
  auto mac = nic::make_mac(options.mac, options.mtu == 0 ? 0 : options.mtu + nic::kEthernetHeader, why);
  if (mac == nullptr) return failure(why.message);
  auto host = nic::make_mac(options.host.find(':') == std::string::npos ? "tap:" + options.host : options.host,
                            mac->max_frame(), why);
  if (host == nullptr) return failure(why.message);
  std::shared_ptr<nic::Capture> capture;
  if (!options.pcap.empty() && (capture = nic::Capture::create(options.pcap, why)) == nullptr)
    return failure(why.message);

  StopSignals signals;
  const std::vector<int> cores = config->cores;
  const std::string names = host->name() + " - " + mac->name();
  fmt::print("{}: {}\n", mac->name(), in_words(mac->capabilities()));
  const auto bridge = nic::Bridge::create(std::move(*config), tapped(std::move(host), capture, options, "host"),
                                          tapped(std::move(mac), capture, options, "mac"), why);
  if (bridge == nullptr) return failure(why.message);
  fmt::print("{}, partition {}; viaduct nic stat shows it, Ctrl-C ends it\n", names, options.partition);
  (void)std::fflush(stdout);

  std::atomic<bool> stopping{false};
  std::thread firmware;
  if (options.partition == "inline") firmware = std::thread([&] { poll_until(*bridge, options, cores, stopping); });
  const ExitCode code = watch(*bridge, capture.get(), signals);
  stopping.store(true, std::memory_order_relaxed);
  if (firmware.joinable()) firmware.join();
  return code;
}

}  // namespace

void add_nic_run(CLI::App& nic) {
  auto options = std::make_shared<Options>();
  CLI::App* const command =
      nic.add_subcommand("run", "Bridge the kernel's stack through the firmware onto an interface");
  command->add_option("--host", options->host, "The kernel's side: a tap interface, made if it is not there, or a MAC")
      ->type_name("INTERFACE");
  command->add_option("--serve", options->serve, "Instead: serve endpoints to other processes by this name")
      ->type_name("NAME");
  command->add_option("--queues", options->queues, "Receive queues, each with a processor that moves its frames")
      ->type_name("N")
      ->check(number_between(1, 16))
      ->capture_default_str();
  command
      ->add_option("--delivery", options->delivery,
                   "Who moves frames to endpoints: together, single-queue, multiqueue or round-robin")
      ->type_name("HOW")
      ->check(CLI::IsMember({"together", "single-queue", "multiqueue", "round-robin"}));
  command->add_option("--mac", options->mac, "packet:IF, xdp:IF, auto:IF, udp:LOCAL,REMOTE or tap:IF")
      ->type_name("MAC")
      ->required();
  command->add_option("--partition", options->partition, "inline, release, parallel or dynamic")
      ->type_name("NAME")
      ->check(CLI::IsMember({"inline", "release", "parallel", "dynamic"}));
  command->add_option("--processors", options->processors, "Where the firmware runs, such as 0,1")->type_name("LIST");
  command->add_option("--mtu", options->mtu, "Instead of the interface's own")
      ->type_name("BYTES")
      ->check(number_between(46, 65521));
  command->add_option("--spin-us", options->spin_us, "How long an idle processor spins before it sleeps")
      ->type_name("MICROSECONDS")
      ->check(number_between(0, 1e9))
      ->capture_default_str();
  command->add_option("--name", options->name, "What nic stat calls it; the host interface's name if not given")
      ->type_name("NAME");
  command->add_option("--pcap", options->pcap, "Write every frame to this file (pcapng)")->type_name("FILE");
  command->add_option("--pcap-side", options->pcap_side, "host, mac or both")
      ->type_name("SIDE")
      ->check(CLI::IsMember({"host", "mac", "both"}))
      ->capture_default_str();
  on_run(*command, [options] { return run(*options); });
}

}  // namespace viaduct::cli
