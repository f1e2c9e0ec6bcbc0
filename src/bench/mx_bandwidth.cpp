// `viaduct bench mx-bandwidth`: streams of messages between two endpoints.
#include <algorithm>

#include "base/segment.hpp"
#include "base/topology.hpp"
#include "bench/conduit_mx.hpp"
#include "bench/message_pipe.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {8, 1024, 4096, 32768, 65536, 262144, 1 << 20, std::size_t{4} << 20};

class MxBandwidth {
 public:
  explicit MxBandwidth(const Options& options)
      : mx_("mx-bandwidth", "Streams between two MX endpoints, two processes, each on its processor", options) {}

  Result<Report> run() {
    start_copy_engine();
    VIADUCT_TRY(const auto ordinary, mx_.connect(kMx, Kind::us, make_mx({})));
    VIADUCT_TRY(const auto mapped, mx_.connect("MX, engine memory", Kind::us, make_mx({.engine_memory = true})));
    VIADUCT_TRY(const auto raw, mx_.connect("raw channel", Kind::us, make_raw_channel()));
    std::vector<ViaSuite::Entry> peers;
    if (auto fabric = make_fabric(); fabric) {
      VIADUCT_TRY(const auto entry, mx_.connect(ViaSuite::kFabric, Kind::peer, std::move(fabric)));
      peers.push_back(entry);
    } else {
      mx_.suite().note(fmt::format("{} was not measured: {}", ViaSuite::kFabric, fabric.error().message()));
    }
    VIADUCT_TRY(const auto local, mx_.connect("UNIX socket", Kind::peer, make_unix(Waits::sleeping)));
    for (const std::size_t size : kSizes) {
      for (const auto& entry : {ordinary, mapped, raw}) mx_.add_stream(entry, size, count_for(size));
      for (const auto& entry : peers) mx_.add_stream(entry, size, count_for(size));
      mx_.add_stream(local, size, count_for(size) / 4 + 1);
      if (size < 32768) continue;
      VIADUCT_CHECK(add_two_copies(size));
      mx_.suite().expect({size_name(size), ViaSuite::kBandwidth, kMx, kTwoCopies, Better::higher, 0.8});
    }
    const PinnedScope pinned(placement().mine);
    return mx_.run(15);
  }

 private:
  static std::uint32_t count_for(std::size_t size) {
    constexpr std::size_t kBytes = std::size_t{64} << 20, kMost = 20'000, kLeast = 8;
    return static_cast<std::uint32_t>(std::clamp(kBytes / size, kLeast, kMost));
  }

  // The floor of what goes through shared memory: both copies overlap.
  Status add_two_copies(std::size_t size) {
    const std::size_t bytes = TwoCopies::bytes();
    VIADUCT_TRY(Segment places, Segment::create({"viaduct-bench", layout_hash("bench mx"), 2 * bytes}));
    std::byte* const memory = places.payload().data();
    places_.push_back(std::move(places));
    floors_.push_back(
        std::make_unique<Link>(std::make_unique<TwoCopies>(memory), std::make_unique<TwoCopies>(memory + bytes), size));
    VIADUCT_CHECK(floors_.back()->connect(false, placement().theirs));
    mx_.suite().add({size_name(size), kTwoCopies, Kind::floor, ViaSuite::kBandwidth, "GB/s", Better::higher,
                     [link = floors_.back().get(), size, n = mx_.scaled(count_for(size))] {
                       return static_cast<double>(size) / link->per_message_ns(n);
                     }});
    return {};
  }

  static constexpr const char* kMx = "MX";
  static constexpr const char* kTwoCopies = "two bare copies";
  ViaSuite mx_;
  std::vector<Segment> places_;
  std::vector<std::unique_ptr<Link>> floors_;
};

}  // namespace

Result<Report> run_mx_bandwidth(const Options& options) {
  return MxBandwidth(options).run();
}

}  // namespace viaduct::bench
