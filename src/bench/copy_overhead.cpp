// `viaduct bench copy-overhead`: figure 7 of the ADCE paper: where the time of an asynchronous copy goes. A user-level
// engine has no kernel transition and, on the CPU, no pinning; what is left is handing over, starting and noticing the
// end.
#include <viaduct/copy.hpp>

#include <optional>

#include "base/topology.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

const copy::Options kOnChannel{copy::Intent::stream, copy::Order::unordered, 0, copy::Choice::cpu};

class CopyOverhead {
 public:
  explicit CopyOverhead(const Options& options) : options_(options) {}

  Result<Report> run() {
    start_copy_engine();
    const PinnedScope pinned(placement().mine);
    VIADUCT_TRY(ColdPair pair, ColdPair::make((options_.quick ? std::size_t{64} : std::size_t{512}) << 20));
    pair_.emplace(std::move(pair));
    for (const std::size_t size : {4u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20}) add(size);
    return suite_.run(options_, 11);
  }

 private:
  struct Split {
    double submitting = 0;  // inside start()
    double starting = 0;    // until the worker has begun: a copy of 64 bytes, less its submission
    double noticing = 0;    // asking about a copy that has ended
    double whole = 0;
  };

  void add(std::size_t size) {
    const auto part = [&](const char* who, Kind kind, double Split::*member) {
      suite_.add({size_name(size) + ", cold", who, kind, "time", "us", Better::lower,
                  [this, size, member] { return measure(size).*member / 1000; }});
    };
    part("the whole copy", Kind::floor, &Split::whole);
    part("submitting", Kind::us, &Split::submitting);
    part("starting", Kind::us, &Split::starting);
    part("noticing the end", Kind::us, &Split::noticing);
  }

  Split measure(std::size_t size) {
    constexpr int kCount = 20;
    Split sum;
    for (int i = 0; i < kCount; ++i) {
      pair_->next(size);
      copy::Operation operation;
      const double submitting =
          nanoseconds([&] { operation = copy::start(pair_->source(), pair_->target(), size, kOnChannel); });
      const double rest = nanoseconds([&] {
        while (operation.ready_bytes() < size) continue;
      });
      sum.submitting += submitting;
      sum.whole += submitting + rest;
      sum.noticing += nanoseconds([&] { (void)operation.wait(); });
      copy::Operation tiny;
      sum.starting += nanoseconds([&] {
        tiny = copy::start(pair_->source(), pair_->target(), 64, kOnChannel);
        while (tiny.ready_bytes() < 64) continue;
      });
    }
    sum.starting = sum.starting > sum.submitting ? sum.starting - sum.submitting : 0;
    return {sum.submitting / kCount, sum.starting / kCount, sum.noticing / kCount, sum.whole / kCount};
  }

  Options options_;
  Suite suite_{"copy-overhead",
               "Where the time of an asynchronous copy goes (figure 7); ratios are shares of the whole"};
  std::optional<ColdPair> pair_;
};

}  // namespace

Result<Report> run_copy_overhead(const Options& options) {
  return CopyOverhead(options).run();
}

}  // namespace viaduct::bench
