// `viaduct bench copy-pollution`: figure 8 of the ADCE paper: a column-wise walk over a small buffer right after a
// large copy.
#include <viaduct/copy.hpp>

#include <cstring>
#include <optional>

#include "base/topology.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kWalked = std::size_t{4} << 20;
constexpr int kWalksBefore = 20;
constexpr const char* kMetric = "walk";
constexpr const char* kWaited = "after as long a wait";

class CopyPollution {
 public:
  explicit CopyPollution(const Options& options) : options_(options) {}

  Result<Report> run() {
    start_copy_engine();
    const PinnedScope pinned(placement().mine);
    VIADUCT_TRY(Memory walked, Memory::make(kWalked));
    VIADUCT_TRY(ColdPair pair, ColdPair::make((options_.quick ? std::size_t{64} : std::size_t{512}) << 20));
    walked_.emplace(std::move(walked));
    pair_.emplace(std::move(pair));
    add(std::size_t{32} << 20);
    if (!options_.quick) add(std::size_t{192} << 20);  // enough to push 4 MB out of a very large last-level cache too
    return suite_.run(options_, 15);
  }

 private:
  void add(std::size_t copied) {
    const std::string name = "4 MB walked after " + size_name(copied);
    const auto walk_after = [this](auto&& disturb) {
      // So often that nothing is left of what the measurement before has done to the cache.
      for (int times = 0; times < kWalksBefore; ++times) walk();
      disturb();
      return nanoseconds([&] { walk(); }) / 1000;
    };
    // A cache that is shared with others loses lines by itself: so the floor waits as long as the engine copies.
    suite_.add({name, kWaited, Kind::floor, kMetric, "us", Better::lower, [this, walk_after, copied] {
                  const std::uint64_t time = engine_time(copied);
                  return walk_after([time] {
                    const std::uint64_t end = Clock::steady().now_ns() + time;
                    while (Clock::steady().now_ns() < end) continue;
                  });
                }});
    suite_.add({name, "after memcpy", Kind::peer, kMetric, "us", Better::lower, [this, walk_after, copied] {
                  return walk_after([&] {
                    pair_->next(copied);
                    std::memcpy(pair_->target(), pair_->source(), copied);
                  });
                }});
    suite_.add({name, "after the engine", Kind::us, kMetric, "us", Better::lower,
                [this, walk_after, copied] { return walk_after([&] { copy_with_engine(copied); }); }});
    suite_.expect({name, kMetric, "after the engine", kWaited, Better::lower, 1.5});
  }

  void copy_with_engine(std::size_t size) {
    pair_->next(size);
    const copy::Options stream{copy::Intent::stream, copy::Order::unordered, 0, copy::Choice::any};
    (void)copy::run(pair_->source(), pair_->target(), size, stream);
  }

  std::uint64_t engine_time(std::size_t size) {
    return static_cast<std::uint64_t>(nanoseconds([&] { copy_with_engine(size); }));
  }

  // Down the columns of a matrix with rows of a page and a line: every line once, each on another page.
  void walk() {
    constexpr std::size_t kRow = 4096 + 64;
    const volatile char* const data = reinterpret_cast<const volatile char*>(walked_->data());
    for (std::size_t column = 0; column < kRow; column += 64)
      for (std::size_t at = column; at < kWalked; at += kRow) (void)data[at];
  }

  Options options_;
  Suite suite_{"copy-pollution", "What a copy leaves of the cache (figure 8)"};
  std::optional<Memory> walked_;
  std::optional<ColdPair> pair_;
};

}  // namespace

Result<Report> run_copy_pollution(const Options& options) {
  return CopyPollution(options).run();
}

}  // namespace viaduct::bench
