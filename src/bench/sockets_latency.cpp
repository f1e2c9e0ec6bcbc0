// `viaduct bench sockets-latency`: messages there and back through sockets, by a plain program on kernel TCP, on UNIX
// sockets, and on kernel TCP accelerated.
#include "bench/sockets_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {1, 8, 64, 1024, 4096};
constexpr std::size_t kSmall = 64;  // up to here goals are stated

class SocketsLatency {
 public:
  explicit SocketsLatency(const Options& options)
      : sockets_("sockets-latency", "Plain sockets there and back, two processes, each on its processor", options) {}

  Result<Report> run() {
    idle_ = sockets_.quick() ? 100 : 2000;
    VIADUCT_TRY(line_, ConduitLink::make(*make_cache_line()));
    const std::string crowded = fmt::format("viaduct, epoll, {} idle", idle_);
    PlainSetup spinning{.server_way = "spinning", .client_way = "spinning"};
    PlainSetup epoll = kAccelerated;
    epoll.server_way = "epoll";
    PlainSetup epoll_idle = epoll;
    epoll_idle.idle = idle_;
    VIADUCT_CHECK(add(SocketsSuite::kTcp, Kind::peer, {}, 200));
    VIADUCT_CHECK(add(kTcpEpoll, Kind::peer, {.server_way = "epoll"}, 200));
    VIADUCT_CHECK(add(SocketsSuite::kTcpSpinning, Kind::peer, spinning, 1'000));
    VIADUCT_CHECK(add(SocketsSuite::kUnix, Kind::peer, {.unix_socket = true}, 200));
    VIADUCT_CHECK(add(SocketsSuite::kUs, Kind::us, kAccelerated, 20'000));
    VIADUCT_CHECK(add(kEpoll, Kind::us, epoll, 20'000));
    VIADUCT_CHECK(add(crowded, Kind::us, epoll_idle, 20'000));
    for (const std::size_t size : kSizes) add_case(size, crowded);
    return sockets_.run(15);
  }

 private:
  struct Entry {
    std::string who;
    Kind kind;
    PlainPair* pair;
    unsigned count;
  };

  Status add(const std::string& who, Kind kind, const PlainSetup& setup, unsigned count) {
    VIADUCT_TRY(PlainPair * pair, sockets_.start(setup));
    entries_.push_back({who, kind, pair, sockets_.scaled(count)});
    return {};
  }

  void add_case(std::size_t size, const std::string& crowded) {
    const std::string name = size_name(size);
    Suite& suite = sockets_.suite();
    suite.add({name, SocketsSuite::kLine, Kind::floor, kMetric, "us", Better::lower,
               [this] { return line_->one_way_ns(sockets_.scaled(50'000), 8) * 2 / 1000; }});
    for (const Entry& each : entries_)
      suite.add({name, each.who, each.kind, kMetric, "us", Better::lower,
                 [pair = each.pair, size, count = each.count] { return pair->round_trip_us(size, count); }});
    if (size > kSmall) return;
    suite.expect({name, kMetric, SocketsSuite::kUs, SocketsSuite::kLine, Better::lower, 2});
    suite.expect({name, kMetric, kEpoll, SocketsSuite::kLine, Better::lower, 2.5});
    suite.expect({name, kMetric, crowded, SocketsSuite::kLine, Better::lower, 2.5});
  }

  static constexpr const char* kMetric = "round trip";
  static constexpr const char* kTcpEpoll = "TCP, epoll";
  static constexpr const char* kEpoll = "viaduct, epoll";

  SocketsSuite sockets_;
  unsigned idle_ = 0;
  std::unique_ptr<ConduitLink> line_;
  std::vector<Entry> entries_;
};

}  // namespace

Result<Report> run_sockets_latency(const Options& options) {
  return SocketsLatency(options).run();
}

}  // namespace viaduct::bench
