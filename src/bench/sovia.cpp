// `viaduct bench sovia`: sections 4.1 to 4.3 and table 4 of the SOVIA paper on our provider: what each part of the
// protocol costs and brings, beside the paper's figures; and which parts these measurements would choose.
#include <algorithm>

#include "base/topology.hpp"
#include "bench/sovia_conduit.hpp"
#include "bench/sovia_memory.hpp"
#include "bench/sovia_table.hpp"
#include "bench/sovia_verdict.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {4, 64, 512, 2048, 8192, 32768};
constexpr std::size_t kFewSizes[] = {4, 2048, 32768};

class Sovia {
 public:
  explicit Sovia(const Options& options)
      : via_("sovia", "A stream over virtual interfaces by the SOVIA protocol, two processes, each on its processor",
             options) {}

  Result<Report> run() {
    {
      const PinnedScope pinned(placement().mine);
      copy_limit_ = measure_copy_limit();
    }
    table_ = sovia_table(copy_limit_);
    VIADUCT_CHECK(connect_all());
    add_all();
    expect_all();
    const PinnedScope pinned(placement().mine);
    Report report = via_.run(25);
    describe(report);
    compare_with_paper(report, table_);
    choose_defaults(report, copy_limit_);
    return report;
  }

 private:
  // How many messages a sample takes depends on what one costs: nobody is to take much longer than the others.
  struct Entry {
    ViaSuite::Entry entry;
    std::uint32_t round_trips;
    std::uint32_t messages;
  };

  Status connect_all() {
    for (const SoviaConfiguration& row : table_) {
      const SoviaOptions& options = row.options;
      const bool threads = options.handling != SoviaOptions::Handling::application;
      const bool one_by_one = options.window == 1;
      VIADUCT_TRY(const ViaSuite::Entry entry, via_.connect(row.name, Kind::us, make_sovia(options)));
      entries_.push_back({entry, threads ? 100u : 2000u, threads ? 300u : one_by_one ? 4000u : 20'000u});
    }
    VIADUCT_TRY(const ViaSuite::Entry native, via_.connect(kNativeVipl, Kind::peer, ViplOptions{}));
    VIADUCT_TRY(const ViaSuite::Entry tcp, via_.connect(ViaSuite::kTcp, Kind::peer, make_tcp(Waits::sleeping)));
    entries_.push_back({native, 2000, 20'000});
    entries_.push_back({tcp, 100, 4000});
    return {};
  }

  void add_all() {
    const auto sizes = via_.quick() ? std::span<const std::size_t>(kFewSizes) : std::span<const std::size_t>(kSizes);
    constexpr std::size_t kMostBytes = std::size_t{16} << 20;
    for (const std::size_t size : sizes)
      for (const Entry& row : entries_)
        via_.add_one_way(row.entry, size, size > 4096 ? row.round_trips / 4 : row.round_trips);
    for (const std::size_t size : sizes)
      for (const Entry& row : entries_)
        add_stream(row.entry, size, static_cast<std::uint32_t>(std::min<std::size_t>(row.messages, kMostBytes / size)));
  }

  // In the paper's unit, which also shows streams of 4 bytes.
  void add_stream(const ViaSuite::Entry& entry, std::size_t size, std::uint32_t count) {
    via_.suite().add({size_name(size), entry.who, entry.kind, ViaSuite::kBandwidth, "Mb/s", Better::higher,
                      [link = entry.link, size, n = via_.scaled(count)] {
                        return static_cast<double>(size) * 8000 / link->per_message_ns(n, size);
                      }});
  }

  void expect_all() {
    const std::string small = size_name(kSizes[0]), large = size_name(kSizes[std::size(kSizes) - 1]);
    via_.suite().expect({small, ViaSuite::kOneWay, kSoviaDacks, kNativeVipl, Better::lower, 1.6});
    via_.suite().expect({small, ViaSuite::kBandwidth, kSoviaCombine, kNativeVipl, Better::higher, 2});
    via_.suite().expect({large, ViaSuite::kBandwidth, kSoviaDacks, kNativeVipl, Better::higher, 0.4});
  }

  void describe(Report& report) {
    for (const SoviaConfiguration& row : table_) report.notes.push_back(fmt::format("{}: {}", row.name, row.parts));
    if (table_.back().name != std::string_view(kSoviaApart))
      report.notes.push_back(fmt::format("{} (figure 9) was not measured: it takes four processors", kSoviaApart));
    report.notes.push_back(fmt::format(
        "R registers, B copies, H copies up to {}: so far copying is cheaper than registering, measured at the start",
        size_name(copy_limit_)));
  }

  ViaSuite via_;
  std::size_t copy_limit_ = 0;
  std::vector<SoviaConfiguration> table_;
  std::vector<Entry> entries_;
};

}  // namespace

Result<Report> run_sovia(const Options& options) {
  return Sovia(options).run();
}

}  // namespace viaduct::bench
