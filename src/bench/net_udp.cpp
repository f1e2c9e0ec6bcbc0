// `viaduct bench net-latency` and `net-bandwidth`: sessions over UDP between two network namespaces joined by veth,
// against kernel TCP, and against bare UDP as the floor.
#include <fmt/format.h>
#include <sys/mman.h>

#include "base/topology.hpp"
#include "bench/net_links.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"
#include "bench/veth_lab.hpp"

namespace viaduct::bench {

namespace {

constexpr const char* kUs = "session over UDP, spinning";
constexpr const char* kUsAsleep = "session over UDP, sleeping";
constexpr const char* kTcp = "TCP, spinning";
constexpr const char* kTcpAsleep = "TCP, blocking";
constexpr const char* kBare = "bare UDP, spinning";
constexpr unsigned kMtus[] = {1500, 9000};
constexpr std::size_t kSizes[] = {64 << 10, 1 << 20};

struct Who {
  const char* name;
  Kind kind;
  std::function<Result<std::unique_ptr<NetLink>>(const NetEnds&, std::uint16_t port)> make;
};
const Who kUsSpinning{kUs, Kind::us,
                      [](const NetEnds& ends, std::uint16_t port) { return make_session_link(ends, true, port); }};
const Who kUsSleeping{kUsAsleep, Kind::us,
                      [](const NetEnds& ends, std::uint16_t port) { return make_session_link(ends, false, port); }};
const Who kTcpSpinning{kTcp, Kind::peer, [](const NetEnds& ends, std::uint16_t) { return make_tcp_link(ends, true); }};
const Who kTcpBlocking{kTcpAsleep, Kind::peer,
                       [](const NetEnds& ends, std::uint16_t) { return make_tcp_link(ends, false); }};
const Who kBareUdp{kBare, Kind::floor, [](const NetEnds& ends, std::uint16_t) { return make_bare_udp_link(ends); }};

// A link and the partner process that has its far end.
class Pair {
 public:
  static Result<std::unique_ptr<Pair>> make(const Who& who, const TwoNetworks& networks, int cable) {
    static std::uint16_t port = 47200;
    auto pair = std::make_unique<Pair>();
    VIADUCT_TRY(pair->link_, who.make({TwoNetworks::address(cable, true), TwoNetworks::address(cable, false),
                                       [&networks](bool left) { networks.enter(left); }},
                                      port++));
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error::from_errno("share a page with a partner");
    pair->far_ = new (memory) FarEnd{};
    NetLink& link = *pair->link_;
    FarEnd& far = *pair->far_;
    VIADUCT_TRY(Partner partner,
                Partner::fork(placement().theirs, [&link, &far](std::uint64_t what) { link.serve(what != 0, far); }));
    pair->partner_.emplace(std::move(partner));
    return pair;
  }

  double round_trip(std::uint32_t count) {
    return with_partner(false, [&] { return link_->round_trip(count); });
  }
  double gigabits(std::size_t size, std::uint64_t bytes) {
    return with_partner(true, [&] { return link_->stream(size, bytes, *far_) * 8 / 1e9; });
  }

 private:
  template <class Measure>
  double with_partner(bool stream, Measure&& measure) {
    far_->stop = 0;
    far_->bytes = far_->last_ns = 0;
    partner_->start(stream ? 1 : 0);
    const double value = measure();
    far_->stop.store(1, std::memory_order_release);
    partner_->finish();
    return value;
  }

  std::unique_ptr<NetLink> link_;
  FarEnd* far_ = nullptr;
  std::optional<Partner> partner_;
};

// As long as the process that measures.
Result<Pair*> add_pair(const Who& who, const TwoNetworks& networks, int cable) {
  VIADUCT_TRY(std::unique_ptr<Pair> pair, Pair::make(who, networks, cable));
  return pair.release();
}

Result<TwoNetworks*> join_networks(std::span<const unsigned> mtus) {
  (void)pin_this_thread(placement().mine);
  VIADUCT_TRY(TwoNetworks made, TwoNetworks::make());
  auto* const networks = new TwoNetworks(std::move(made));
  for (std::size_t i = 0; i < mtus.size(); ++i) VIADUCT_CHECK(networks->add_cable(static_cast<int>(i), mtus[i]));
  return networks;
}

}  // namespace

Result<Report> run_net_latency(const Options& options) {
  Suite suite("net-latency", "4 bytes there and back between two network namespaces, each end on its own processor");
  const std::vector<Who> all{kUsSpinning, kTcpSpinning, kBareUdp, kUsSleeping, kTcpBlocking};
  auto lab = Lab::fork([&]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks(std::span(kMtus).first(1)));
    Lab::Measurements measurements;
    for (const Who& who : all) {
      VIADUCT_TRY(Pair * pair, add_pair(who, *networks, 0));
      const std::uint32_t count = options.quick ? 100 : 1'000;
      measurements.push_back([=] { return pair->round_trip(count); });
    }
    return measurements;
  });
  if (!lab) {
    suite.note("not measured: " + lab.error().message());
    return suite.run(options, 1);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    suite.add({i < 3 ? "4 B, spinning" : "4 B, sleeping", all[i].name, all[i].kind, "round trip", "us", Better::lower,
               [&lab, i] { return lab->measure(i); }});
  }
  suite.expect({"4 B, spinning", "round trip", kUs, kBare, Better::lower, 1.3});
  suite.expect({"4 B, spinning", "round trip", kUs, kTcp, Better::lower, 1.0});
  suite.expect({"4 B, sleeping", "round trip", kUsAsleep, kTcpAsleep, Better::lower, 1.1});
  return suite.run(options, 31);
}

Result<Report> run_net_bandwidth(const Options& options) {
  Suite suite("net-bandwidth", "One stream between two network namespaces, each end on its own processor");
  const std::vector<Who> all{kUsSpinning, kTcpBlocking, kBareUdp};
  auto lab = Lab::fork([&]() -> Result<Lab::Measurements> {
    VIADUCT_TRY(const TwoNetworks* networks, join_networks(kMtus));
    Lab::Measurements measurements;
    for (int cable = 0; cable < static_cast<int>(std::size(kMtus)); ++cable) {
      std::vector<Pair*> pairs;
      for (const Who& who : all) {
        VIADUCT_TRY(Pair * pair, add_pair(who, *networks, cable));
        pairs.push_back(pair);
      }
      for (const std::size_t size : kSizes) {
        const std::uint64_t bytes = options.quick ? 4 << 20 : 64 << 20;
        for (Pair* pair : pairs) measurements.push_back([=] { return pair->gigabits(size, bytes); });
      }
    }
    return measurements;
  });
  if (!lab) {
    suite.note("not measured: " + lab.error().message());
    return suite.run(options, 1);
  }
  std::size_t index = 0;
  for (const unsigned mtu : kMtus) {
    for (const std::size_t size : kSizes) {
      const std::string name = fmt::format("{} KB, MTU {}", size >> 10, mtu);
      for (const Who& who : all) {
        suite.add({name, who.name, who.kind, "bandwidth", "Gbit/s", Better::higher,
                   [&lab, index] { return lab->measure(index); }});
        ++index;
      }
      suite.expect({name, "bandwidth", kUs, kTcpAsleep, Better::higher, 1.5});
      suite.expect({name, "bandwidth", kUs, kBare, Better::higher, 0.6});
    }
  }
  suite.note(
      "ours: puts into the other side's memory, a few under way; bare UDP: what arrives, in super-datagrams of 65 KB");
  return suite.run(options, 15);
}

}  // namespace viaduct::bench
