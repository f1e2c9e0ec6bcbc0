// `viaduct bench net-bandwidth`: one stream between two network namespaces joined by veth, and what it costs.
#include <fmt/format.h>

#include <map>

#include "bench/net_paths.hpp"

namespace viaduct::bench {

namespace {

constexpr unsigned kMtus[] = {1500, 9000};
constexpr std::size_t kSizes[] = {64 << 10, 1 << 20, 4 << 20};
constexpr std::uint64_t kSlowPart = 16;  // what a slow one need not send

struct Line {
  std::string case_name;
  NetWho who;
  int cable;
  std::size_t size;
};

}  // namespace

Result<Report> run_net_bandwidth(const Options& options) {
  Suite suite("net-bandwidth", "One stream between two network namespaces, each end on its own processor");
  std::vector<NetWho> all{session_path(true), session_path(false), vipl_path(), tcp_path(false), bare_udp_path()};
  for (NetWho& fabric : fabric_paths(suite)) all.push_back(std::move(fabric));
  std::vector<Line> rows;
  for (int cable = 0; cable < static_cast<int>(std::size(kMtus)); ++cable) {
    for (const std::size_t size : kSizes) {
      const std::string name = fmt::format("{} KB, MTU {}", size >> 10, kMtus[cable]);
      for (const NetWho& who : all) rows.push_back({name, who, cable, size});
      suite.expect({name, "bandwidth", kSession, kTcpBlocking, Better::higher, 1.5});
      suite.expect({name, "bandwidth", kSession, kRxd, Better::higher, 5});
      suite.expect({name, "bandwidth", kSession, kBareUdp, Better::higher, 0.6});
      suite.expect({name, "both processors", kSessionAsleep, kTcpBlocking, Better::lower, 1});
    }
  }
  auto lab = Lab::fork([&]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks({std::begin(kMtus), std::end(kMtus)}));
    Lab::Measurements measurements;
    std::map<std::pair<std::string, int>, NetPath*> paths;  // one of a kind and cable, for all sizes
    for (const Line& row : rows) {
      NetPath*& path = paths[{row.who.name, row.cable}];
      if (path == nullptr) {
        VIADUCT_TRY(path, add_path(row.who, *networks, row.cable));
      }
      const std::uint64_t bytes = (options.quick ? 4 << 20 : 64 << 20) / (row.who.name == kRxd ? kSlowPart : 1);
      auto* const reading = new TwoNumbers([=, size = row.size] {
        const NetPath::Streamed streamed = path->stream(size, std::max<std::uint64_t>(bytes, size));
        return std::pair(streamed.gigabits, streamed.ns_per_kb);
      });
      if (row.who.kind == Kind::floor)
        measurements.push_back([=] { return reading->only_first(); });
      else
        measurements.push_back([=] { return reading->first(); });
      measurements.push_back([=] { return reading->second(); });
    }
    return measurements;
  });
  if (!lab) {
    suite.note("not measured: " + lab.error().message());
    return suite.run(options, 1);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    suite.add({rows[i].case_name, rows[i].who.name, rows[i].who.kind, "bandwidth", "Gbit/s", Better::higher,
               [&lab, i] { return lab->measure(2 * i); }});
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].who.kind == Kind::floor) continue;  // it spins until it is sure that nothing comes any more
    suite.add({rows[i].case_name, rows[i].who.name, rows[i].who.kind, "both processors", "ns/KB", Better::lower,
               [&lab, i] { return lab->measure(2 * i + 1); }});
  }
  suite.note("sessions: puts into the other side's memory, a few under way; VIPL: RDMA writes");
  suite.note("bare UDP: what arrives, in super-datagrams of 65 KB");
  return suite.run(options, 11);
}

}  // namespace viaduct::bench
