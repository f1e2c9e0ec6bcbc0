// `viaduct bench nic-udp`: the adapter's firmware alone, between a host and a MAC that cost nothing; UDP datagrams of
// 18 to 1472 bytes sent, received, and both at once, on one processor and on two (the parallel Tigon firmware, figures
// 6, 8 and 10).
#include <fmt/format.h>
#include <viaduct/nic.hpp>

#include <thread>

#include "base/clock.hpp"
#include "base/topology.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::uint32_t kHeaders = 14 + 20 + 8;  // Ethernet, IP, UDP
constexpr std::uint32_t kSizes[] = {18, 100, 200, 400, 600, 800, 1000, 1200, 1472};

enum class Traffic { send, receive, both };
struct Way {
  const char* name;
  Traffic traffic;
};
constexpr Way kWays[] = {{"send", Traffic::send}, {"receive", Traffic::receive}, {"bidirectional", Traffic::both}};

constexpr const char* kLimit = "1 Gb/s Ethernet";
constexpr const char* kRelease = "RELEASE, 1 processor";
constexpr const char* kParallel = "PARALLEL, 2 processors";
constexpr const char* kDynamic = "DYNAMIC, 2 processors";
constexpr const char* kApart = "two RELEASE, apart";

// Frames per second that fit on the wire of the paper: frame, checksum, preamble and gap.
double ethernet_limit(std::uint32_t datagram, Traffic traffic) {
  return 1e9 / 8 / (datagram + kHeaders + 4 + 20) / 1e6 * (traffic == Traffic::both ? 2 : 1);
}

class NicUdp {
 public:
  explicit NicUdp(const Options& options) : options_(options) {}

  Result<Report> run() {
    cores_ = Topology::machine().processors();
    for (const std::uint32_t size : kSizes)
      for (const Way& way : kWays) add_case(size, way);
    if (cores_.size() < 2) suite_.note("PARALLEL and DYNAMIC need two processors; this machine has one");
    suite_.note("apart: two adapters of one processor each, which share nothing: what two processors are worth here");
    suite_.note("host and MAC cost nothing: rates are the firmware's own, every byte copied once each way");
    return suite_.run(options_, 21);
  }

 private:
  void add_case(std::uint32_t size, const Way& way) {
    const std::string name = fmt::format("{} B {}", size, way.name);
    const auto add = [&](const char* who, Kind kind, std::function<double()> sample) {
      suite_.add({name, who, kind, "packets", "million/s", Better::higher, std::move(sample)});
    };
    add(kLimit, Kind::peer, [size, traffic = way.traffic] { return ethernet_limit(size, traffic); });
    const auto measured = [this, size, traffic = way.traffic](nic::Partition partition, unsigned processors) {
      return [=, this] { return rate(size, traffic, partition, processors); };
    };
    // One processor is what two are compared with.
    add(kRelease, way.traffic == Traffic::both ? Kind::peer : Kind::us, measured(nic::Partition::release, 1));
    if (way.traffic != Traffic::both && size == 18)  // 4 million a second
      suite_.expect({name, "packets", kRelease, kLimit, Better::higher, 4 / ethernet_limit(size, way.traffic)});
    if (cores_.size() < 2) return;
    add(kParallel, Kind::us, measured(nic::Partition::parallel, 2));
    add(kDynamic, Kind::us, measured(nic::Partition::dynamic, 2));
    if (way.traffic != Traffic::both) return;
    add(kApart, Kind::floor, [this, size] { return rate_apart(size); });
    suite_.expect({name, "packets", kParallel, kApart, Better::higher, 0.8});
  }

  // One processor goes where this thread is not: it only sleeps, but its timers would be felt.
  int core(unsigned processor) const { return cores_[cores_.size() - 1 - processor]; }

  std::unique_ptr<nic::Adapter> adapter(std::uint32_t size, Traffic traffic, nic::Partition partition,
                                        std::vector<int> cores) const {
    nic::Config config;
    config.name = "bench";
    config.partition = partition;
    config.cores = std::move(cores);
    config.null_host = nic::NullTraffic{traffic == Traffic::receive ? 0 : size + kHeaders};
    nic::Failure why;
    return nic::Adapter::create(config,
                                nic::make_null_mac({.frame_length = size + kHeaders,
                                                    .frames_to_receive = traffic == Traffic::send ? 0 : UINT64_MAX}),
                                why);
  }

  // Million packets per second, both ways together.
  double rate(std::uint32_t size, Traffic traffic, nic::Partition partition, unsigned processors) const {
    std::vector<int> cores;
    for (unsigned i = 0; i < processors; ++i) cores.push_back(core(i));
    const auto only = adapter(size, traffic, partition, std::move(cores));
    return only == nullptr ? 0 : rate_of({only.get()});
  }
  // What this machine has for two processors that share nothing.
  double rate_apart(std::uint32_t size) const {
    const auto one = adapter(size, Traffic::both, nic::Partition::release, {core(0)});
    const auto other = adapter(size, Traffic::both, nic::Partition::release, {core(1)});
    return one == nullptr || other == nullptr ? 0 : rate_of({one.get(), other.get()});
  }

  double rate_of(std::initializer_list<const nic::Adapter*> adapters) const {
    constexpr int kMostNaps = 100;
    const auto nap = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
    nap(2);
    const auto packets = [&] {
      std::uint64_t sum = 0;
      for (const nic::Adapter* each : adapters) {
        const nic::Totals totals = each->statistics().totals;
        sum += totals.packets_sent + totals.packets_received;
      }
      return sum;
    };
    const std::uint64_t before = packets(), start = Clock::steady().now_ns();
    std::uint64_t count = 0;
    for (int naps = 0; count == 0 && naps < kMostNaps; ++naps) {  // in a crowd it may get no turn in one
      nap(options_.quick ? 5 : 10);                               // short and many: what disturbs comes in bursts
      count = packets() - before;
    }
    return static_cast<double>(count) * 1e3 / static_cast<double>(Clock::steady().now_ns() - start);
  }

  const Options options_;
  std::vector<int> cores_;
  Suite suite_{"nic-udp", "The adapter's firmware between a null host and a null MAC, UDP datagrams"};
};

}  // namespace

Result<Report> run_nic_udp(const Options& options) {
  return NicUdp(options).run();
}

}  // namespace viaduct::bench
