// `viaduct bench copy-overlap`: figure 6 of the ADCE paper: how much of a copy disappears behind computation,
// (Tcopy + Tcompute - Ttotal) / Tcopy, hot and cold, with one channel on the other processor.
#include <viaduct/copy.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/topology.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

// Computation in registers only, so that it takes nothing from the copy but time.
void compute(std::uint64_t steps) {
  std::uint64_t value = steps;
  for (std::uint64_t i = 0; i < steps; ++i) asm volatile("imul %0, %0" : "+r"(value));
}

class CopyOverlap {
 public:
  explicit CopyOverlap(const Options& options) : options_(options) {}

  Result<Report> run() {
    start_copy_engine();
    const PinnedScope pinned(placement().mine);
    VIADUCT_TRY(ColdPair cold, ColdPair::make((options_.quick ? std::size_t{128} : std::size_t{512}) << 20));
    VIADUCT_TRY(ColdPair hot, ColdPair::make(std::size_t{32} << 20));
    cold_.emplace(std::move(cold));
    hot_.emplace(std::move(hot));
    double best = 1e18;
    for (int i = 0; i < 5; ++i) best = std::min(best, nanoseconds([] { compute(1'000'000); }));
    steps_per_ns_ = 1e6 / best;
    for (const std::size_t size : {64u << 10, 256u << 10, 1u << 20, 4u << 20, 16u << 20}) {
      add(size, "hot", *hot_, false);
      add(size, "cold", *cold_, true);
    }
    return suite_.run(options_, 11);
  }

 private:
  void add(std::size_t size, const std::string& temperature, ColdPair& pair, bool walk) {
    const std::string name = size_name(size) + ", " + temperature;
    suite_.add({name, kFull, Kind::floor, kMetric, "share", Better::higher, [] { return 1.0; }});
    suite_.add({name, "memcpy", Kind::peer, kMetric, "share", Better::higher,
                [this, size, &pair, walk] { return overlap(size, pair, walk, false); }});
    suite_.add({name, kEngine, Kind::us, kMetric, "share", Better::higher,
                [this, size, &pair, walk] { return overlap(size, pair, walk, true); }});
    if (size == (64 << 10)) suite_.expect({name, kMetric, kEngine, kFull, Better::higher, 0.8});
    if (size >= (1 << 20)) suite_.expect({name, kMetric, kEngine, kFull, Better::higher, 0.95});
  }

  // The median of several; each takes Tcopy anew, right beside Ttotal.
  double overlap(std::size_t size, ColdPair& pair, bool walk, bool engine) {
    const int count = options_.quick ? 5 : size >= (4 << 20) ? 9 : 41;
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(one_overlap(size, pair, walk, engine));
    std::nth_element(values.begin(), values.begin() + count / 2, values.end());
    return values[static_cast<std::size_t>(count / 2)];
  }

  double one_overlap(std::size_t size, ColdPair& pair, bool walk, bool engine) {
    const copy::Options on_channel{copy::Intent::stream, copy::Order::unordered, 0, copy::Choice::cpu};
    const auto begin = [&] {
      if (walk) pair.next(size);
      if (engine) return copy::start(pair.source(), pair.target(), size, on_channel);
      std::memcpy(pair.target(), pair.source(), size);
      return copy::Operation();
    };
    const double copying = nanoseconds([&] { (void)begin().wait(); });
    // Whoever waits helps, so Tcopy is that of two processors; the channel alone needs up to twice as long.
    const auto steps = static_cast<std::uint64_t>((2.5 * copying + 2'000) * steps_per_ns_);
    const double computing = nanoseconds([&] { compute(steps); });
    const double total = nanoseconds([&] {
      copy::Operation operation = begin();
      compute(steps);
      (void)operation.wait();
    });
    return (copying + computing - total) / copying;
  }

  static constexpr const char* kMetric = "overlap";
  static constexpr const char* kFull = "full overlap";
  static constexpr const char* kEngine = "engine, one channel";

  Options options_;
  Suite suite_{"copy-overlap", "Copying behind computation (figure 6): 1 is all of it"};
  std::optional<ColdPair> cold_;
  std::optional<ColdPair> hot_;
  double steps_per_ns_ = 1;
};

}  // namespace

Result<Report> run_copy_overlap(const Options& options) {
  return CopyOverlap(options).run();
}

}  // namespace viaduct::bench
