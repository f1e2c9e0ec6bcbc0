// `viaduct bench sockets-messages` and `sockets-bandwidth`: streams through sockets, one way, by a plain program.
#include <algorithm>

#include "base/segment.hpp"
#include "bench/message_pipe.hpp"
#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint64_t kLayout = layout_hash("bench sockets");
constexpr std::size_t kSmallRing = std::size_t{512} << 10;
constexpr std::size_t kLargeRing = std::size_t{4} << 20;  // what a stream has just written has left its core's cache

// The floor: the byte ring by itself, in two processes of ours.
class BareRing {
 public:
  static Result<std::unique_ptr<BareRing>> make(std::size_t message, std::size_t size) {
    std::unique_ptr<BareRing> ring(new BareRing);
    std::unique_ptr<Pipe> ways[2];
    for (auto& way : ways) {
      VIADUCT_TRY(Segment segment, Segment::create({"viaduct-bench", kLayout, byte_ring_bytes(size)}));
      ring->segments_.push_back(std::move(segment));
      way = std::make_unique<BytePipe>(ring->segments_.back().payload().first(byte_ring_bytes(size)), size);
    }
    ring->link_ = std::make_unique<Link>(std::move(ways[0]), std::move(ways[1]), message);
    VIADUCT_CHECK(ring->link_->connect(false, placement().theirs));
    return ring;
  }
  double per_message_ns(std::uint64_t count) { return link_->per_message_ns(count); }

 private:
  BareRing() = default;
  std::vector<Segment> segments_;
  std::unique_ptr<Link> link_;
};

constexpr const char* kFloor = "bare ring";

class SocketsMessages {
 public:
  explicit SocketsMessages(const Options& options)
      : sockets_("sockets-messages", "8 B messages through plain sockets, one way", options) {}

  Result<Report> run() {
    VIADUCT_TRY(ring_, BareRing::make(8, kSmallRing));
    VIADUCT_TRY(PlainPair * tcp, sockets_.start({}));
    VIADUCT_TRY(PlainPair * local, sockets_.start({.unix_socket = true}));
    VIADUCT_TRY(PlainPair * us, sockets_.start(kAccelerated));
    struct {
      const char* name;
      std::size_t at_once;
    } const cases[] = {{kEach, 8}, {"8 B messages, received in bulk", 65536}};
    for (const auto& one : cases) {
      const auto add = [&](const char* who, Kind kind, PlainPair* pair, unsigned count) {
        sockets_.suite().add({one.name, who, kind, kRate, kUnit, Better::higher,
                              [pair, n = sockets_.scaled(count), at_once = one.at_once] {
                                return 1e3 / pair->per_message_ns(8, n, at_once);
                              }});
      };
      sockets_.suite().add({one.name, kFloor, Kind::floor, kRate, kUnit, Better::higher,
                            [this] { return 1e3 / ring_->per_message_ns(sockets_.scaled(500'000)); }});
      add(SocketsSuite::kTcp, Kind::peer, tcp, 20'000);
      add(SocketsSuite::kUnix, Kind::peer, local, 20'000);
      add(SocketsSuite::kUs, Kind::us, us, 1'000'000);
      if (one.at_once == 8) sockets_.suite().expect({kEach, kRate, SocketsSuite::kUs, kFloor, Better::higher, 0.7});
    }
    return sockets_.run(15);
  }

 private:
  static constexpr const char* kEach = "8 B messages";
  static constexpr const char* kRate = "rate";
  static constexpr const char* kUnit = "million/s";
  SocketsSuite sockets_;
  std::unique_ptr<BareRing> ring_;
};

class SocketsBandwidth {
 public:
  explicit SocketsBandwidth(const Options& options)
      : sockets_("sockets-bandwidth", "Streams through plain sockets, two processes, each on its processor", options) {}

  Result<Report> run() {
    for (const std::size_t size : {std::size_t{4} << 10, kLarge, std::size_t{1} << 20}) VIADUCT_CHECK(add_case(size));
    Report report = sockets_.run(10);
    add_worst(report);
    return report;
  }

 private:
  Status add_case(std::size_t size) {
    const std::string name = size_name(size) + " writes";
    const auto add = [&](const char* who, Kind kind, std::function<double()> per_message_ns) {
      sockets_.suite().add({name, who, kind, kBandwidth, "GB/s", Better::higher,
                            [size, run = std::move(per_message_ns)] { return static_cast<double>(size) / run(); }});
    };
    const auto count = [&](std::size_t bytes) {
      return std::max(2u, static_cast<unsigned>((sockets_.quick() ? bytes / 10 : bytes) / size));
    };
    VIADUCT_TRY(auto ring, BareRing::make(size, kLargeRing));
    rings_.push_back(std::move(ring));
    const unsigned slow = count(std::size_t{64} << 20), fast = count(std::size_t{512} << 20);
    add(kFloor, Kind::floor, [ring = rings_.back().get(), fast] { return ring->per_message_ns(fast); });
    // Every run is a new pair of processes: a stream that is slow from its start on must show, too.
    const auto add_pair = [&](const char* who, Kind kind, const PlainSetup& setup, unsigned messages) {
      add(who, kind, [size, setup, messages] {
        const auto pair = SocketsSuite::new_pair(setup);
        (void)pair->per_message_ns(size, messages / 10 + 2, size);
        return pair->per_message_ns(size, messages, size);
      });
    };
    add_pair(SocketsSuite::kTcp, Kind::peer, {}, slow);
    add_pair(SocketsSuite::kUnix, Kind::peer, {.unix_socket = true}, slow);
    add_pair(SocketsSuite::kUs, Kind::us, kAccelerated, fast);
    if (size >= kLarge) sockets_.suite().expect({name, kBandwidth, SocketsSuite::kUs, kFloor, Better::higher, 0.7});
    return {};
  }

  static double worst_of(const Row& row) { return *std::min_element(row.samples.begin(), row.samples.end()); }

  // The slowest run of each case against the median one. Where the floor has had one like it, the machine has.
  static void add_worst(Report& report) {
    constexpr double kAtLeast = 0.5;
    const std::string metric = "worst run", median = "median run";
    const std::vector<Row> rows = report.rows;
    for (const Row& row : rows) {
      if (row.kind != Kind::us) continue;
      const double worst = worst_of(row);
      report.rows.push_back({row.case_name, row.who, Kind::us, metric, row.unit, row.better, {worst}});
      report.rows.push_back({row.case_name, median, Kind::floor, metric, row.unit, row.better, {row.median()}});
      const double ratio = worst / row.median();
      report.ratios.push_back({row.case_name, metric, row.who, median, ratio});
      GoalResult result{{row.case_name, metric, row.who, median, Better::higher, kAtLeast}, ratio, ratio >= kAtLeast};
      for (const Row& floor : rows) {
        if (floor.kind != Kind::floor || floor.case_name != row.case_name) continue;
        const double floors = worst_of(floor) / floor.median();
        report.notes.push_back(
            fmt::format("{}: the worst run of the {} was {:.2f}x its median", row.case_name, floor.who, floors));
        if (!result.met && floors < kAtLeast) result.floor = floors;
      }
      report.goals.push_back(result);
    }
  }

  static constexpr const char* kBandwidth = "bandwidth";
  static constexpr std::size_t kLarge = 64 << 10;  // from here on goals are stated
  SocketsSuite sockets_;
  std::vector<std::unique_ptr<BareRing>> rings_;
};

}  // namespace

Result<Report> run_sockets_messages(const Options& options) {
  return SocketsMessages(options).run();
}

Result<Report> run_sockets_bandwidth(const Options& options) {
  return SocketsBandwidth(options).run();
}

}  // namespace viaduct::bench
