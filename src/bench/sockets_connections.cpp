// `viaduct bench sockets-connections`: short connections, many idle ones, one processor for both sides, and one side
// that is not accelerated.
#include <algorithm>

#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

// The rows of another run of the same benchmark behind those of this one.
void append(Report& report, Report more) {
  std::move(more.rows.begin(), more.rows.end(), std::back_inserter(report.rows));
  std::move(more.ratios.begin(), more.ratios.end(), std::back_inserter(report.ratios));
  std::move(more.goals.begin(), more.goals.end(), std::back_inserter(report.goals));
  std::move(more.notes.begin(), more.notes.end(), std::back_inserter(report.notes));
}

class SocketsConnections {
 public:
  explicit SocketsConnections(const Options& options)
      : sockets_("sockets-connections", "Connections of plain sockets: short, idle, unequal, on one processor",
                 options),
        once_("sockets-connections", "", options) {}

  Result<Report> run() {
    VIADUCT_CHECK(add_visits());
    add_one_processor();
    add_one_side();
    VIADUCT_CHECK(add_idle());
    Report report = sockets_.run(15);
    add_many_visits();
    add_memory();
    Options single = sockets_.options();
    single.rounds = 1;
    append(report, once_.suite().run(single, 1));
    return report;
  }

 private:
  struct Entry {
    const char* who;
    Kind kind;
    PlainSetup setup;
  };

  void add(const char* name, const char* who, Kind kind, const char* metric, const char* unit, Better better,
           std::function<double()> sample) {
    sockets_.suite().add({name, who, kind, metric, unit, better, std::move(sample)});
  }

  // Where a difference of a few in a hundred is asked for.
  template <class Run>
  static double best_of_runs(Run run) {
    double best = run();
    for (int i = 1; i < kRuns; ++i) best = std::min(best, run());
    return best;
  }

  Status add_visits() {
    const Entry rows[] = {{SocketsSuite::kTcp, Kind::peer, {}},
                          {SocketsSuite::kUnix, Kind::peer, {.unix_socket = true}},
                          {SocketsSuite::kUs, Kind::us, kAccelerated}};
    for (const auto& row : rows) {
      VIADUCT_TRY(PlainPair * pair, sockets_.start(row.setup));
      if (row.kind == Kind::us) visitor_ = pair;
      add(kVisit, row.who, row.kind, kEach, "us", Better::lower,
          [pair, n = sockets_.scaled(600)] { return best_of_runs([=] { return pair->visit_us(n); }); });
    }
    sockets_.suite().expect({kVisit, kEach, SocketsSuite::kUs, SocketsSuite::kTcp, Better::lower, 1.05});
    return {};
  }

  template <class Run>
  static double by_new_pair(const PlainSetup& setup, Run run) {
    const auto pair = SocketsSuite::new_pair(setup);
    (void)run(*pair);
    return best_of_runs([&] { return run(*pair); });
  }

  void add_both_metrics(const char* name, const std::vector<Entry>& entries) {
    for (const Entry& each : entries)
      add(name, each.who, each.kind, kRoundTrip, "us", Better::lower, [setup = each.setup, n = sockets_.scaled(500)] {
        return by_new_pair(setup, [n](PlainPair& pair) { return pair.round_trip_us(64, n); });
      });
    for (const Entry& each : entries)
      add(name, each.who, each.kind, kBandwidth, "GB/s", Better::higher,
          [setup = each.setup, n = sockets_.scaled(400)] {
            return 65536 / by_new_pair(setup, [n](PlainPair& pair) { return pair.per_message_ns(65536, n, 65536); });
          });
  }

  void add_one_processor() {
    PlainSetup tcp{.one_processor = true}, us = kAccelerated;
    us.one_processor = true;
    add_both_metrics(kShared, {{SocketsSuite::kTcp, Kind::peer, tcp}, {SocketsSuite::kUs, Kind::us, us}});
    sockets_.suite().expect({kShared, kRoundTrip, SocketsSuite::kUs, SocketsSuite::kTcp, Better::lower, 1});
    sockets_.suite().expect({kShared, kBandwidth, SocketsSuite::kUs, SocketsSuite::kTcp, Better::higher, 1});
  }

  // Spinning, so that three in a hundred are not lost in the time a processor takes to wake up.
  void add_one_side() {
    PlainSetup none{.server_way = "spinning", .client_way = "spinning"}, server = none, client = none;
    server.server_accelerated = true;
    client.client_accelerated = true;
    add_both_metrics(
        kOneSide, {{SocketsSuite::kTcp, Kind::peer, none}, {kServer, Kind::us, server}, {kClient, Kind::us, client}});
    for (const char* who : {kServer, kClient}) {
      sockets_.suite().expect({kOneSide, kRoundTrip, who, SocketsSuite::kTcp, Better::lower, 1.03});
      sockets_.suite().expect({kOneSide, kBandwidth, who, SocketsSuite::kTcp, Better::higher, 0.97});
    }
  }

  Status add_idle() {
    idle_ = sockets_.quick() ? 200 : 10'000;
    PlainSetup epoll = kAccelerated;
    epoll.server_way = "epoll";
    VIADUCT_TRY(PlainPair * alone, sockets_.start(epoll));
    VIADUCT_TRY(crowd_, sockets_.start(epoll));
    memory_before_ = crowd_->memory_kb();
    crowd_->open_idle(idle_);
    memory_after_ = crowd_->memory_kb();
    crowded_ = fmt::format("8 B, epoll server, {} idle", idle_);
    for (const auto& [who, kind, pair] :
         {std::tuple{kAlone, Kind::floor, alone}, {SocketsSuite::kUs, Kind::us, crowd_}})
      sockets_.suite().add({crowded_, who, kind, kRoundTrip, "us", Better::lower,
                            [pair = pair, n = sockets_.scaled(20'000)] { return pair->round_trip_us(8, n); }});
    sockets_.suite().expect({crowded_, kRoundTrip, SocketsSuite::kUs, kAlone, Better::lower, 1.1});
    return {};
  }

  void add_memory() {
    const unsigned accelerated = crowd_->accelerated() - 1;
    if (accelerated < idle_)
      once_.suite().note(
          fmt::format("{} of {} idle connections are accelerated: there are not descriptors enough for the others",
                      accelerated, idle_));
    const double each = (memory_after_ - memory_before_) / accelerated;
    once_.suite().add(
        {crowded_, SocketsSuite::kUs, Kind::us, "memory each", "KB", Better::lower, [each] { return each; }});
    once_.expect_number(crowded_, "memory each", "KB", Better::lower, SocketsSuite::kUs, 64);
  }

  // Ports run out where something keeps them too long.
  void add_many_visits() {
    if (sockets_.quick()) return;
    constexpr unsigned kCount = 100'000;
    constexpr unsigned kAtOnce = 10'000;
    double us = 0;
    for (unsigned done = 0; done < kCount; done += kAtOnce) us += visitor_->visit_us(kAtOnce) / (kCount / kAtOnce);
    once_.suite().add(
        {"100,000 in a row", SocketsSuite::kUs, Kind::us, kEach, "us", Better::lower, [us] { return us; }});
  }

  static constexpr int kRuns = 5;
  static constexpr const char* kVisit = "connect, 64 B there and back, close";
  static constexpr const char* kEach = "each";
  static constexpr const char* kShared = "both on one processor";
  static constexpr const char* kOneSide = "one side not accelerated";
  static constexpr const char* kServer = "viaduct, server only";
  static constexpr const char* kClient = "viaduct, client only";
  static constexpr const char* kAlone = "viaduct, none idle";
  static constexpr const char* kRoundTrip = "round trip";
  static constexpr const char* kBandwidth = "bandwidth";

  SocketsSuite sockets_;
  SocketsSuite once_;
  PlainPair* visitor_ = nullptr;
  PlainPair* crowd_ = nullptr;
  unsigned idle_ = 0;
  std::string crowded_;
  double memory_before_ = 0, memory_after_ = 0;
};

}  // namespace

Result<Report> run_sockets_connections(const Options& options) {
  return SocketsConnections(options).run();
}

}  // namespace viaduct::bench
