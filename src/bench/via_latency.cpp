// `viaduct bench via-latency`: figure 5 of the SOVIA paper: how long a message takes, by the way in which its arrival
// is noticed; what waiting costs the processor; and what idle VIs cost an active one.
#include <algorithm>
#include <iterator>

#include "base/topology.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {4, 64, 512, 4096, 32768};

class ViaLatency {
 public:
  explicit ViaLatency(const Options& options)
      : options_(options),
        via_("via-latency", "Messages over virtual interfaces, two processes, each on its processor", options),
        idle_("via-latency", "") {}

  Result<Report> run() {
    VIADUCT_CHECK(add_messages());
    VIADUCT_CHECK(add_idle_vis());
    VIADUCT_CHECK(add_idle_time());
    const PinnedScope pinned(placement().mine);
    Report report = via_.run(25);
    Options few = options_;
    few.rounds = options_.rounds > 0 ? std::min(options_.rounds, 3) : 3;  // each waits for long
    Report idle = idle_.run(few, few.rounds);
    std::move(idle.rows.begin(), idle.rows.end(), std::back_inserter(report.rows));
    std::move(idle.ratios.begin(), idle.ratios.end(), std::back_inserter(report.ratios));
    std::move(idle.goals.begin(), idle.goals.end(), std::back_inserter(report.goals));
    return report;
  }

 private:
  using Completion = ViplOptions::Completion;
  struct Row {
    ViaSuite::Entry entry;
    std::uint32_t small;  // repetitions per sample of messages up to 4 KB
    std::size_t most = 32768;
  };

  Status add_messages() {
    std::vector<Row> rows;
    const auto add = [&](const char* who, Kind kind, auto what, std::uint32_t small, std::size_t most) -> Status {
      VIADUCT_TRY(const ViaSuite::Entry entry, via_.connect(who, kind, std::move(what)));
      rows.push_back({entry, small, most});
      return {};
    };
    constexpr std::size_t kAll = 32768;
    VIADUCT_CHECK(add(kLine, Kind::floor, make_cache_line(), 10'000, 64));
    VIADUCT_CHECK(add(kPolling, Kind::us, ViplOptions{}, 5'000, kAll));
    VIADUCT_CHECK(add("VIPL blocking", Kind::us, ViplOptions{.completion = Completion::blocking}, 5'000, kAll));
    VIADUCT_CHECK(
        add("VIPL completion queue", Kind::us, ViplOptions{.completion = Completion::completion_queue}, 5'000, kAll));
    VIADUCT_CHECK(add("VIPL notify", Kind::us, ViplOptions{.completion = Completion::notify}, 2'000, kAll));
    VIADUCT_CHECK(
        add("VIPL reliable reception", Kind::us, ViplOptions{.level = VIP_SERVICE_RELIABLE_RECEPTION}, 5'000, kAll));
    VIADUCT_CHECK(add("raw channel", Kind::us, make_raw_channel(), 5'000, kAll));
    if (auto fabric = make_fabric(); fabric)
      VIADUCT_CHECK(add(ViaSuite::kFabric, Kind::peer, std::move(fabric), 3'000, kAll));
    else
      via_.suite().note(fmt::format("{} was not measured: {}", ViaSuite::kFabric, fabric.error().message()));
    VIADUCT_CHECK(add(ViaSuite::kTcp, Kind::peer, make_tcp(Waits::sleeping), 100, kAll));
    VIADUCT_CHECK(add("TCP, spinning", Kind::peer, make_tcp(Waits::spinning), 500, kAll));
    VIADUCT_CHECK(add("UNIX socket", Kind::peer, make_unix(Waits::sleeping), 100, kAll));
    for (const std::size_t size : kSizes)
      for (const Row& row : rows)
        if (size <= row.most) via_.add_one_way(row.entry, size, size > 4096 ? row.small / 10 : row.small);
    const std::string small = size_name(kSizes[0]);
    via_.suite().expect({small, ViaSuite::kOneWay, kPolling, kLine, Better::lower, 1.8});
    return {};
  }

  // Both have an adapter of their own in both processes; they differ in what else is on the completion queue.
  Status add_idle_vis() {
    const std::uint32_t count = via_.quick() ? 200 : 2000;
    const std::string name = fmt::format("4 B, {} idle VIs", count);
    const auto add = [&](const char* who, Kind kind, std::uint32_t idle) -> Status {
      VIADUCT_TRY(const ViaSuite::Entry entry,
                  via_.connect(who, kind, ViplOptions{.completion = Completion::completion_queue, .idle_vis = idle}));
      via_.suite().add({name, who, kind, ViaSuite::kOneWay, "us", Better::lower,
                        [link = entry.link, n = via_.scaled(5'000)] { return link->one_way_ns(n, 4) / 1000; }});
      return {};
    };
    if (const Status added = add(kCrowded, Kind::us, count); !added.ok()) {
      via_.suite().note(fmt::format("{}: not measured: {}", name, added.error().message()));
      return {};
    }
    VIADUCT_CHECK(add(kAlone, Kind::floor, 0));
    via_.suite().expect({name, ViaSuite::kOneWay, kCrowded, kAlone, Better::lower, 1.10});
    return {};
  }

  Status add_idle_time() {
    const unsigned wait = via_.quick() ? 50 : 1000;
    const std::string name = fmt::format("waiting {} ms for nothing", wait);
    const auto add = [&](const char* who, Kind kind, Completion completion) -> Status {
      VIADUCT_TRY(std::unique_ptr<ViplConduit> conduit, make_vipl({.completion = completion}));
      ViplConduit* const waiting = conduit.get();
      VIADUCT_TRY(const ViaSuite::Entry entry, via_.connect(who, kind, std::unique_ptr<Conduit>(std::move(conduit))));
      // A poller uses all there is: a tenth of the time shows it.
      const unsigned part = completion == Completion::polling ? 10 : 1;
      idle_.add({name, who, kind, kUsed, "ms", Better::lower, [link = entry.link, waiting, wait, part] {
                   link->open();
                   return waiting->idle_processor_ms(wait / part) * part;
                 }});
      if (kind == Kind::us) idle_.expect({name, kUsed, who, kPolling, Better::lower, 0.01});
      return {};
    };
    VIADUCT_CHECK(add("VIPL blocking", Kind::us, Completion::blocking));
    VIADUCT_CHECK(add("VIPL completion queue", Kind::us, Completion::completion_queue));
    VIADUCT_CHECK(add("VIPL notify", Kind::us, Completion::notify));
    return add(kPolling, Kind::floor, Completion::polling);
  }

  static constexpr const char* kLine = "cache line";
  static constexpr const char* kPolling = "VIPL polling";
  static constexpr const char* kCrowded = "VIPL, idle ones beside it";
  static constexpr const char* kAlone = "VIPL, alone";
  static constexpr const char* kUsed = "processor time";

  Options options_;
  ViaSuite via_;
  Suite idle_;
};

}  // namespace

Result<Report> run_via_latency(const Options& options) {
  return ViaLatency(options).run();
}

}  // namespace viaduct::bench
