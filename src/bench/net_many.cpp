// `viaduct bench net-many`: what many idle virtual interfaces to another host cost, and how hosts that all send to one
// share it.
#include <fmt/format.h>
#include <unistd.h>

#include "bench/conduit_vipl.hpp"
#include "bench/net_paths.hpp"
#include "bench/net_senders.hpp"
#include "bench/processor_time.hpp"

namespace viaduct::bench {

namespace {

constexpr const char* kCrowded = "VIPL, idle ones beside it";
constexpr const char* kAlone = "VIPL, alone";
constexpr const char* kWaiting = "VIPL completion queue, waiting";
constexpr const char* kPolling = "a processor of each host, polling";
constexpr const char* kAll = "eight senders, together";
constexpr const char* kOne = "one sender";
constexpr const char* kLeast = "eight times the slowest of them";
constexpr const char* kInto = "256 KB RDMA writes into one host";

// In a lab of its own, since VIs of one process share an engine: the active VI, and the time that waiting costs.
Result<Lab> with_idle_vis(std::uint32_t idle, std::uint32_t count, unsigned wait_ms) {
  return Lab::fork([=]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks({1500}));
    VIADUCT_TRY(std::unique_ptr<ViplConduit> conduit,
                make_vipl({.completion = ViplOptions::Completion::completion_queue,
                           .idle_vis = idle,
                           .hosts = hosts_of(*networks, 0)}));
    ViplConduit* const vis = conduit.get();
    VIADUCT_TRY(auto made, ConduitLink::make(std::move(conduit)));
    ConduitLink* const link = made.release();
    return Lab::Measurements{[=] { return 2 * link->one_way_ns(count, 4) / 1e3; },
                             [=] {
                               link->open();
                               const double before = own_processor_time_ns(link->partner());
                               const double mine = vis->idle_processor_ms(wait_ms);
                               return mine + (own_processor_time_ns(link->partner()) - before) / 1e6;
                             }};
  });
}

}  // namespace

Result<Report> run_net_many(const Options& options) {
  Suite suite("net-many", "Many virtual interfaces between two network namespaces");
  const std::uint32_t idle = options.quick ? 50 : 500, count = options.quick ? 100 : 1'000;
  const unsigned wait = options.quick ? 50 : 500;
  auto crowded = with_idle_vis(idle, count, wait), alone = with_idle_vis(0, count, wait);
  auto senders = fork_senders(options.quick ? 50 : 200);
  for (const auto* each : {&crowded, &alone, &senders}) {
    if (*each) continue;
    suite.note("not measured: " + each->error().message());
    return suite.run(options, 1);
  }
  const std::string beside = fmt::format("4 B, {} idle VIs", idle);
  suite.add({beside, kCrowded, Kind::us, "round trip", "us", Better::lower, [&] { return crowded->measure(0); }});
  suite.add({beside, kAlone, Kind::floor, "round trip", "us", Better::lower, [&] { return alone->measure(0); }});
  suite.expect({beside, "round trip", kCrowded, kAlone, Better::lower, 1.1});

  const std::string nothing = fmt::format("waiting {} ms for nothing, {} idle VIs", wait, idle);
  suite.add({nothing, kWaiting, Kind::us, "both hosts' processors", "ms", Better::lower,
             [&] { return crowded->measure(1); }});
  suite.add(
      {nothing, kPolling, Kind::floor, "both hosts' processors", "ms", Better::lower, [=] { return 2.0 * wait; }});
  suite.expect({nothing, "both hosts' processors", kWaiting, kPolling, Better::lower, 0.001});

  const auto add = [&](const char* who, Kind kind, std::size_t index) {
    suite.add(
        {kInto, who, kind, "bandwidth", "Gbit/s", Better::higher, [&, index] { return senders->measure(index); }});
  };
  add(kAll, Kind::us, 0);
  add(kLeast, Kind::us, 1);
  add(kOne, Kind::floor, 2);
  suite.expect({kInto, "bandwidth", kAll, kOne, Better::higher, 0.85});
  suite.expect({kInto, "bandwidth", kLeast, kAll, Better::higher, 0.5});
  suite.note("the eight senders are eight processes of one host and share a processor of this machine");
  return suite.run(options, 15);
}

}  // namespace viaduct::bench
