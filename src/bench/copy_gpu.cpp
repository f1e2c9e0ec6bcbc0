// `viaduct bench copy-gpu`: host-to-host copies by a GPU's copy engines: latency against memcpy, and overlap.
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

constexpr const char* kGpu = "engine, GPU";
constexpr const char* kMemcpy = "memcpy";
constexpr const char* kFull = "full overlap";

const copy::Options kOnGpu{copy::Intent::stream, copy::Order::unordered, 0, copy::Choice::cuda};
const copy::Options kOnCpu{copy::Intent::stream, copy::Order::unordered, 0, copy::Choice::cpu};

// Registers only: the copy loses nothing but the processor.
void compute_for(double ns) {
  const std::uint64_t until = Clock::steady().now_ns() + static_cast<std::uint64_t>(ns);
  while (Clock::steady().now_ns() < until) continue;
}

class CopyGpu {
 public:
  explicit CopyGpu(const Options& options) : options_(options) {}

  Result<Report> run() {
    start_copy_engine();
    char probe[2] = {};
    if (const std::error_code fault = copy::run(probe, probe + 1, 1, kOnGpu)) {
      std::string why = fault.message();
      for (const copy::ChannelReport& channel : copy::report_channels())
        if (channel.name.starts_with("cuda")) why = channel.detail;
      suite_.note("nothing is measured: " + why);
      return suite_.run(options_, 1);
    }
    const PinnedScope pinned(placement().mine);
    VIADUCT_TRY(Memory source, Memory::make(kLargest));
    VIADUCT_TRY(Memory target, Memory::make(kLargest));
    source_.emplace(std::move(source));
    target_.emplace(std::move(target));
    for (const std::size_t size :
         {std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{16} << 20, std::size_t{64} << 20, kLargest}) {
      add_latency(size);
      add_overlap(size);
    }
    suite_.expect({"64 MB", "latency", kGpu, kMemcpy, Better::lower, 1 / 4.0});
    suite_.expect({"64 MB", "overlap", kGpu, kFull, Better::higher, 0.95});
    return suite_.run(options_, 11);
  }

 private:
  void add_latency(std::size_t size) {
    const auto add = [&](const char* who, Kind kind, auto&& work) {
      suite_.add({size_name(size), who, kind, "latency", "us", Better::lower,
                  [work] { return (work(), nanoseconds([&] { work(); })) / 1000; }});
    };
    add(kMemcpy, Kind::peer, [this, size] { std::memcpy(target_->data(), source_->data(), size); });
    add("engine, CPU, stream", Kind::peer,
        [this, size] { (void)copy::run(source_->data(), target_->data(), size, kOnCpu); });
    add(kGpu, Kind::us, [this, size] { (void)copy::run(source_->data(), target_->data(), size, kOnGpu); });
  }

  void add_overlap(std::size_t size) {
    suite_.add({size_name(size), kFull, Kind::floor, "overlap", "share", Better::higher, [] { return 1.0; }});
    suite_.add({size_name(size), kGpu, Kind::us, "overlap", "share", Better::higher, [this, size] {
                  const auto begin = [&] { return copy::start(source_->data(), target_->data(), size, kOnGpu); };
                  const double copying = nanoseconds([&] { (void)begin().wait(); });
                  const double computing = 1.2 * copying;
                  const double total = nanoseconds([&] {
                    copy::Operation operation = begin();
                    compute_for(computing);
                    (void)operation.wait();
                  });
                  return (copying + computing - total) / copying;
                }});
  }

  static constexpr std::size_t kLargest = std::size_t{256} << 20;

  Options options_;
  Suite suite_{"copy-gpu", "Host-to-host copies by a GPU's copy engines"};
  std::optional<Memory> source_;
  std::optional<Memory> target_;
};

}  // namespace

Result<Report> run_copy_gpu(const Options& options) {
  return CopyGpu(options).run();
}

}  // namespace viaduct::bench
