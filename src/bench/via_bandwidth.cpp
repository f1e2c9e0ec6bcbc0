// `viaduct bench via-bandwidth`: figures 7 and 8 of the SOVIA paper: streams of messages, 4 B to 4 MB.
#include <algorithm>
#include <array>
#include <optional>

#include "base/segment.hpp"
#include "base/topology.hpp"
#include "bench/bare_loop.hpp"
#include "bench/message_pipe.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {4, 64, 1024, 4096, 32768, 65536, 131072, 262144, 1 << 20, std::size_t{4} << 20};
constexpr std::size_t kLarge = 32768;    // from here on there are goals
constexpr std::size_t kOneCopy = 65536;  // from here on both sides copy one half

class ViaBandwidth {
 public:
  explicit ViaBandwidth(const Options& options)
      : via_("via-bandwidth", "Streams over virtual interfaces, two processes, each on its processor", options) {}

  Result<Report> run() {
    start_copy_engine();
    VIADUCT_CHECK(connect_all());
    for (const std::size_t size : kSizes) {
      for (const Row& row : rows_)
        if (size >= row.least) via_.add_stream(row.entry, size, count_for(size, row.bytes));
      if (size < kLarge) continue;
      const std::string name = size_name(size);
      VIADUCT_CHECK(add_two_copies(name, size));
      const bool one_copy = size >= kOneCopy && placement().mine != placement().theirs;
      if (one_copy) VIADUCT_CHECK(add_one_copy(name, size));
      via_.suite().expect({name, ViaSuite::kBandwidth, kSend, kTwoCopies, Better::higher, 0.8});
      via_.suite().expect({name, ViaSuite::kBandwidth, kProvider, one_copy ? kByTwo : kTwoCopies, Better::higher,
                           one_copy ? 0.6 : 0.8});
    }
    via_.suite().note(fmt::format(
        "'{}': ordinary memory, as the peers use it; from 64 KB on both sides let the kernel copy one half", kSend));
    via_.suite().note(fmt::format("'{}': buffers from adma_alloc(), which both sides can map", kProvider));
    const PinnedScope pinned(placement().mine);
    return via_.run(25);
  }

 private:
  struct Row {
    ViaSuite::Entry entry;
    std::size_t bytes;  // moved per sample
    std::size_t least = 4;
  };

  static std::uint32_t count_for(std::size_t size, std::size_t bytes) {
    constexpr std::size_t kMost = 50'000, kLeast = 8;
    return static_cast<std::uint32_t>(std::clamp(bytes / size, kLeast, kMost));
  }

  // Floors. Ordinary memory can be copied twice through shared memory, and both copies overlap.
  Status add_two_copies(const std::string& name, std::size_t size) {
    const std::size_t bytes = TwoCopies::bytes();
    VIADUCT_TRY(Segment places, Segment::create({"viaduct-bench", layout_hash("bench via"), 2 * bytes}));
    std::byte* const memory = places.payload().data();
    places_.push_back(std::move(places));
    floors_.push_back(
        std::make_unique<Link>(std::make_unique<TwoCopies>(memory), std::make_unique<TwoCopies>(memory + bytes), size));
    VIADUCT_CHECK(floors_.back()->connect(false, placement().theirs));
    via_.suite().add({name, kTwoCopies, Kind::floor, ViaSuite::kBandwidth, "GB/s", Better::higher,
                      [link = floors_.back().get(), size, n = via_.scaled(count_for(size, std::size_t{64} << 20))] {
                        return static_cast<double>(size) / link->per_message_ns(n);
                      }});
    return {};
  }

  // What both have mapped is copied once, by both processors; as everybody does here, from and into the same place.
  Status add_one_copy(const std::string& name, std::size_t size) {
    if (!loop_) {
      loop_ = std::make_unique<BareLoop>(placement().theirs);
      for (auto& end : ends_) {
        VIADUCT_TRY(Memory memory, Memory::make(Conduit::kMostBytes));
        end.emplace(std::move(memory));
      }
    }
    via_.suite().add({name, kByTwo, Kind::floor, ViaSuite::kBandwidth, "GB/s", Better::higher,
                      [this, size, n = via_.scaled(count_for(size, std::size_t{64} << 20))] {
                        const BareLoop::Awake awake(*loop_);
                        const double time = nanoseconds([&] {
                          for (std::uint32_t i = 0; i < n; ++i)
                            loop_->copy_by_two(BareLoop::Way::through_caches, ends_[0]->data(), ends_[1]->data(), size);
                        });
                        return static_cast<double>(size) * n / time;
                      }});
    return {};
  }

  Status connect_all() {
    const auto add = [&](const char* who, Kind kind, auto what, std::size_t megabytes, std::size_t least) -> Status {
      VIADUCT_TRY(const ViaSuite::Entry entry, via_.connect(who, kind, std::move(what)));
      rows_.push_back({entry, megabytes << 20, least});
      return {};
    };
    using Transfer = ViplOptions::Transfer;
    VIADUCT_CHECK(add(kSend, Kind::us, ViplOptions{}, 64, 4));
    VIADUCT_CHECK(add(kProvider, Kind::us, ViplOptions{.engine_memory = true}, 64, 4));
    VIADUCT_CHECK(
        add("VIPL send, blocking", Kind::us, ViplOptions{.completion = ViplOptions::Completion::blocking}, 64, 4));
    VIADUCT_CHECK(
        add("VIPL RDMA write", Kind::us, ViplOptions{.transfer = Transfer::rdma_write, .engine_memory = true}, 64, 4));
    VIADUCT_CHECK(
        add("VIPL RDMA read", Kind::us, ViplOptions{.transfer = Transfer::rdma_read, .engine_memory = true}, 64, 4));
    VIADUCT_CHECK(
        add("VIPL RDMA write, ordinary memory", Kind::us, ViplOptions{.transfer = Transfer::rdma_write}, 32, 1024));
    VIADUCT_CHECK(add("raw channel", Kind::us, make_raw_channel(), 64, 4));
    if (auto fabric = make_fabric(); fabric)
      VIADUCT_CHECK(add(ViaSuite::kFabric, Kind::peer, std::move(fabric), 32, 4));
    else
      via_.suite().note(fmt::format("{} was not measured: {}", ViaSuite::kFabric, fabric.error().message()));
    VIADUCT_CHECK(add(ViaSuite::kTcp, Kind::peer, make_tcp(Waits::sleeping), 16, 4));
    return add("UNIX socket", Kind::peer, make_unix(Waits::sleeping), 16, 4);
  }

  static constexpr const char* kTwoCopies = "two bare copies";
  static constexpr const char* kByTwo = "bare loop, two threads";
  static constexpr const char* kSend = "VIPL send";
  static constexpr const char* kProvider = "VIPL send, provider memory";

  ViaSuite via_;
  std::vector<Row> rows_;
  std::vector<Segment> places_;
  std::vector<std::unique_ptr<Link>> floors_;
  std::array<std::optional<Memory>, 2> ends_;
  std::unique_ptr<BareLoop> loop_;
};

}  // namespace

Result<Report> run_via_bandwidth(const Options& options) {
  return ViaBandwidth(options).run();
}

}  // namespace viaduct::bench
