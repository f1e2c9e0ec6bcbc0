// `viaduct bench mx-latency`: how long a message takes between two endpoints, and what matching costs.
#include <iterator>

#include "base/topology.hpp"
#include "bench/conduit_mx.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {0, 8, 64, 1024, 4096, 16384, 32768, 65536, std::size_t{4} << 20};

class MxLatency {
 public:
  explicit MxLatency(const Options& options)
      : mx_("mx-latency", "Messages between two MX endpoints, two processes, each on its processor", options) {}

  Result<Report> run() {
    VIADUCT_CHECK(add_messages());
    VIADUCT_CHECK(add_matching());
    const PinnedScope pinned(placement().mine);
    return mx_.run(15);
  }

 private:
  Status add_messages() {
    VIADUCT_TRY(const auto line, mx_.connect(kLine, Kind::floor, make_cache_line()));
    VIADUCT_TRY(const auto polling, mx_.connect(kMx, Kind::us, make_mx({})));
    VIADUCT_TRY(const auto waiting, mx_.connect("MX, waiting", Kind::us, make_mx({.waits = true})));
    VIADUCT_TRY(const auto mapped, mx_.connect("MX, engine memory", Kind::us, make_mx({.engine_memory = true})));
    VIADUCT_TRY(const auto raw, mx_.connect("raw channel", Kind::us, make_raw_channel()));
    std::vector<ViaSuite::Entry> peers;
    if (auto fabric = make_fabric(); fabric) {
      VIADUCT_TRY(const auto entry, mx_.connect(ViaSuite::kFabric, Kind::peer, std::move(fabric)));
      peers.push_back(entry);
    } else {
      mx_.suite().note(fmt::format("{} was not measured: {}", ViaSuite::kFabric, fabric.error().message()));
    }
    VIADUCT_TRY(const auto tcp, mx_.connect(ViaSuite::kTcp, Kind::peer, make_tcp(Waits::sleeping)));
    for (const std::size_t size : kSizes) {
      const std::uint32_t count = size <= 1024 ? 5'000 : size <= 65536 ? 500 : 20;
      if (size <= 8) mx_.add_one_way(line, size, count);
      for (const auto& entry : {polling, waiting}) mx_.add_one_way(entry, size, count);
      if (size > 32768) mx_.add_one_way(mapped, size, count);
      if (size <= 32768) mx_.add_one_way(raw, size, count);
      for (const auto& entry : peers) mx_.add_one_way(entry, size, count);
      if (size > 0) mx_.add_one_way(tcp, size, size <= 1024 ? 100 : count / 5 + 1);
    }
    mx_.suite().expect({size_name(0), ViaSuite::kOneWay, kMx, kLine, Better::lower, 2.2});
    return {};
  }

  // Messages whose tags differ from those of all others that wait.
  Status add_matching() {
    struct Row {
      const char* case_name;
      MxOptions few, many;
    };
    for (const Row& row : {Row{"8 B, receives posted", {.posted = kFew}, {.posted = kMany}},
                           Row{"8 B, messages unexpected", {.unexpected = kFew}, {.unexpected = kMany}}}) {
      VIADUCT_TRY(const auto few, mx_.connect(kWithFew, Kind::floor, make_mx(row.few)));
      VIADUCT_TRY(const auto many, mx_.connect(kWithMany, Kind::us, make_mx(row.many)));
      for (const auto& entry : {few, many})
        mx_.suite().add({row.case_name, entry.who, entry.kind, ViaSuite::kOneWay, "us", Better::lower,
                         [link = entry.link, n = mx_.scaled(5'000)] { return link->one_way_ns(n, 8) / 1000; }});
      mx_.suite().expect({row.case_name, ViaSuite::kOneWay, kWithMany, kWithFew, Better::lower, 2.0});
    }
    return {};
  }

  static constexpr std::uint32_t kFew = 10, kMany = 10'000;
  static constexpr const char* kLine = "cache line";
  static constexpr const char* kMx = "MX, polling";
  static constexpr const char* kWithFew = "MX, with 10";
  static constexpr const char* kWithMany = "MX, with 10000";
  ViaSuite mx_;
};

}  // namespace

Result<Report> run_mx_latency(const Options& options) {
  return MxLatency(options).run();
}

}  // namespace viaduct::bench
