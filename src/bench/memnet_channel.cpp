// `viaduct bench memnet-channel`: table 1 of the MemNet paper: what the channel below it can do.
#include "base/topology.hpp"
#include "bench/partner.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

Result<Report> run_memnet_channel(const Options& options) {
  ViaSuite via("memnet-channel", "The channel under MemNet, two processes, each on its processor", options);
  VIADUCT_TRY(const auto line, via.connect("cache line", Kind::floor, make_cache_line()));
  VIADUCT_TRY(const auto channel, via.connect("channel", Kind::us, make_raw_channel()));
  VIADUCT_TRY(const auto vipl, via.connect("VIPL polling", Kind::us, ViplOptions{}));
  VIADUCT_TRY(const auto tcp, via.connect("TCP, spinning", Kind::peer, make_tcp(Waits::spinning)));
  via.add_one_way(line, 4, 10'000);
  for (const auto& entry : {channel, vipl}) {
    via.add_one_way(entry, 4, 5'000);
    via.add_stream(entry, 16384, 5'000);
  }
  via.add_one_way(tcp, 4, 500);
  via.add_stream(tcp, 16384, 2'000);
  via.suite().expect({"4 B", ViaSuite::kOneWay, "channel", "cache line", Better::lower, 2});
  via.suite().note("the paper's cLAN: 8.6 us one way (4 B), 96 MB/s (16 KB); posting a send took 2.1 us (memnet-send)");
  const PinnedScope pinned(placement().mine);
  return via.run(15);
}

}  // namespace viaduct::bench
