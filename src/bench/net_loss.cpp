// `viaduct bench net-loss`: one stream between two network namespaces of which one frame in a hundred is lost, each way
// and at random (nft), against the same without.
#include <fmt/format.h>

#include <cstdlib>

#include "bench/frame_by_frame.hpp"
#include "bench/net_paths.hpp"

namespace viaduct::bench {

namespace {

constexpr int kWhole = 0, kLossy = 1;  // cables
constexpr int kPerThousand = 10;
constexpr std::size_t kSize = 1 << 20;
constexpr const char* kCase = "1 MB, MTU 1500";

Status lose(const TwoNetworks& networks) {
  for (const bool left : {true, false}) {
    networks.enter(left);
    const std::string command = fmt::format(
        "nft add table inet lossy && nft add chain inet lossy arriving '{{ type filter hook input priority 0 ; }}' && "
        "nft add rule inet lossy arriving iifname {} numgen random mod 1000 '<' {} drop",
        TwoNetworks::interface(kLossy, left), kPerThousand);
    if (std::system(("(" + command + ") >/dev/null 2>&1").c_str()) != 0)
      return Error(ENOSYS, "nft cannot lose frames here (Debian: nftables, and a kernel with nf_tables)");
  }
  return {};
}

}  // namespace

Result<Report> run_net_loss(const Options& options) {
  Suite suite("net-loss",
              "One stream of 1 MB transfers between two network namespaces, whole and with 1 % of all "
              "frames lost");
  const std::vector<NetWho> all{session_path(true), tcp_path(false)};
  auto lab = Lab::fork([&]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks({1500, 1500}));
    VIADUCT_CHECK(lose(*networks));
    Lab::Measurements measurements;
    for (const int cable : {kWhole, kLossy}) {
      for (const bool left : {true, false}) {
        networks->enter(left);
        VIADUCT_CHECK(send_frame_by_frame(TwoNetworks::interface(cable, left)));
      }
      for (const NetWho& who : all) {
        VIADUCT_TRY(NetPath * path, add_path(who, *networks, cable));
        const std::uint64_t bytes = options.quick ? 8 << 20 : 64 << 20;
        measurements.push_back([=] { return path->stream(kSize, bytes).gigabits; });
      }
    }
    return measurements;
  });
  if (!lab) {
    suite.note("not measured: " + lab.error().message());
    return suite.run(options, 1);
  }
  // Each way of the lossy cable is beside both of the whole one, whose rows are what it is compared with.
  const auto add = [&](const char* who, Kind kind, std::size_t index) {
    suite.add({kCase, who, kind, "bandwidth", "Gbit/s", Better::higher, [&lab, index] { return lab->measure(index); }});
  };
  add("session, 1 % lost", Kind::us, 2);
  add("session, nothing lost", Kind::peer, 0);
  add("TCP, 1 % lost", Kind::peer, 3);
  add("TCP, nothing lost", Kind::peer, 1);
  suite.expect({kCase, "bandwidth", "session, 1 % lost", "session, nothing lost", Better::higher, 0.6});
  suite.expect({kCase, "bandwidth", "session, 1 % lost", "TCP, 1 % lost", Better::higher, 3});
  suite.note("frames are cut before they leave (no segmentation offload), so that each is lost by itself");
  return suite.run(options, 15);
}

}  // namespace viaduct::bench
