// `viaduct bench net-latency`: 4 bytes there and back between two network namespaces joined by veth.
#include "bench/net_paths.hpp"

namespace viaduct::bench {

namespace {

struct Line {
  const char* case_name;
  NetWho who;
  int cable;
};
constexpr const char* kSpinning = "4 B, spinning";
constexpr const char* kSleeping = "4 B, sleeping";
constexpr const char* kFrames = "4 B, frames, spinning";
constexpr int kCable = 0, kFrameCable = 1, kBareCable = 2;  // who takes frames past the kernel has a cable of its own

}  // namespace

Result<Report> run_net_latency(const Options& options) {
  Suite suite("net-latency", "4 bytes there and back between two network namespaces, each end on its own processor");
  std::vector<Line> rows{{kSpinning, session_path(true), kCable},
                         {kSpinning, vipl_path(), kCable},
                         {kSpinning, tcp_path(true), kCable},
                         {kSpinning, bare_udp_path(), kCable}};
  for (NetWho& fabric : fabric_paths(suite)) rows.push_back({kSpinning, std::move(fabric), kCable});
  rows.push_back({kFrames, session_by_packet_path(), kFrameCable});
  rows.push_back({kFrames, bare_packet_path(), kBareCable});
  rows.push_back({kFrames, tcp_path(true), kCable});
  rows.push_back({kSleeping, session_path(false), kCable});
  rows.push_back({kSleeping, tcp_path(false), kCable});
  auto lab = Lab::fork([&]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks({1500, 1500, 1500}));
    Lab::Measurements measurements;
    for (const Line& row : rows) {
      VIADUCT_TRY(NetPath * path, add_path(row.who, *networks, row.cable));
      const std::uint32_t count = options.quick ? 100 : 1'000;
      measurements.push_back([=] { return path->round_trip_us(count); });
    }
    return measurements;
  });
  if (!lab) {
    suite.note("not measured: " + lab.error().message());
    return suite.run(options, 1);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    suite.add({rows[i].case_name, rows[i].who.name, rows[i].who.kind, "round trip", "us", Better::lower,
               [&lab, i] { return lab->measure(i); }});
  }
  suite.expect({kSpinning, "round trip", kSession, kBareUdp, Better::lower, 1.3});
  suite.expect({kSpinning, "round trip", kSession, kTcpSpinning, Better::lower, 1.0});
  suite.expect({kFrames, "round trip", kSessionByPacket, kBarePacket, Better::lower, 1.5});
  suite.expect({kFrames, "round trip", kSessionByPacket, kTcpSpinning, Better::lower, 0.7});
  suite.expect({kSleeping, "round trip", kSessionAsleep, kTcpBlocking, Better::lower, 1.1});
  return suite.run(options, 31);
}

}  // namespace viaduct::bench
