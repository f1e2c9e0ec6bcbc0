// Every number of the paper's text and tables that concerns the Tigon, against the model.
#include <fmt/format.h>

#include <algorithm>

#include "nic/model/figures.hpp"
#include "nic/model/services.hpp"

namespace viaduct::nic::model {

namespace {

class Comparing {
 public:
  explicit Comparing(std::uint64_t packets) : packets_(packets), card_(tigon()), figures_(card_, packets) {}

  Comparisons all() {
    profile();
    microbenchmarks();
    ping();
    services();
    order();
    result_.points = figures_.points();
    return std::move(result_);
  }

 private:
  void row(std::string what, std::string unit, double paper, double model, Basis basis, bool throughput = true,
           std::string remark = {}) {
    result_.rows.push_back({std::move(what), std::move(unit), paper, model, basis, throughput, std::move(remark)});
  }
  void predicted(std::string what, std::string unit, double paper, double model, std::string remark = {}) {
    row(std::move(what), std::move(unit), paper, model, Basis::predicted, true, std::move(remark));
  }
  void holds(std::string what, bool so) { result_.orderings.push_back({std::move(what), so}); }

  void profile();
  void microbenchmarks();
  void ping();
  void services();
  void order();
  void order_of_rates();
  bool at_all_sizes(Test test, Who who, Who over, double factor = 0.995) const {
    return std::all_of(kSizes.begin(), kSizes.end(),
                       [&](std::uint32_t size) { return figures_.ratio(test, who, over, size) >= factor; });
  }

  const std::uint64_t packets_;
  const Card card_;
  const Figures figures_;
  Comparisons result_;
};

// Figure 5: RELEASE, scratch pads disabled, as many 64-byte frames sent as received. Where the text gives a range (4 to
// 6 %) its middle stands for it.
void Comparing::profile() {
  const Outcome outcome = run(card_, release_sram_both(), udp_both(18), packets_);
  const auto share = [&](Event event) { return 100 * outcome.profile[static_cast<unsigned>(event)]; };
  const auto add = [&](Event event, double paper, const char* remark = "") {
    row(fmt::format("Figure 5, {}", name_of(event)), "%", paper, share(event), Basis::calibrated, false, remark);
  };
  add(Event::send_data_ready, 30);
  add(Event::receive_complete, 30);
  add(Event::dma_read_complete, 14);
  add(Event::dma_write_complete, 6, "\"over twice\" cheaper than DMA Read Complete, and what is left to 100 %");
  for (const Event event : {Event::mailbox, Event::send_descriptors_ready, Event::receive_descriptors_ready,
                            Event::update_receive_return_producer})
    add(event, 5, "4 to 6 %");
  add(Event::update_send_consumer, 0.6);
  double b = 0;
  for (unsigned i = 0; i < kEvents; ++i)
    if (parallel_assignment()[i] == 1) b += 100 * outcome.profile[i];
  row("share of that profile on the busier processor", "%", 53, b, Basis::calibrated, false);
}

void Comparing::microbenchmarks() {
  const auto& f = figures_;
  row("both ways, 1472 B, RELEASE", "Mb/s", 938, f.at(Test::both, kRelease, 1472), Basis::calibrated);
  row("send, 1200 B, RELEASE: on the Ethernet limit", "Mb/s", ethernet_megabits(1200), f.at(Test::send, kRelease, 1200),
      Basis::calibrated);
  predicted("Ethernet limit, both ways, 1472 B", "Mb/s", 1914, 2 * ethernet_megabits(1472));
  predicted("both ways, 1472 B, PARALLEL", "Mb/s", 1553, f.at(Test::both, kParallel, 1472));
  predicted("both ways, 600 B, PARALLEL", "Mb/s", 1000, f.at(Test::both, kParallel, 600));
  predicted("both ways, 1472 B, PARALLEL over RELEASE", "x", 1.65, f.ratio(Test::both, kParallel, kRelease, 1472));
  predicted("both ways, 18 B, PARALLEL over RELEASE", "x", 2.57, f.ratio(Test::both, kParallel, kRelease, 18));
  predicted("both ways, parallelization alone, least", "x", 1.37, f.least(Test::both, kParallelBoth, kReleaseBoth));
  predicted("both ways, parallelization alone, most", "x", 1.95, f.most(Test::both, kParallelBoth, kReleaseBoth));
  predicted("both ways, scratch pads, most", "x", 1.70, f.most(Test::both, kParallel, kParallelBoth));

  predicted("send, 800 B, PARALLEL over RELEASE", "x", 1.32, f.ratio(Test::send, kParallel, kRelease, 800));
  predicted("send, 1000 B, PARALLEL: on the Ethernet limit", "Mb/s", ethernet_megabits(1000),
            f.at(Test::send, kParallel, 1000));
  predicted("send, 800 B, scratch pads", "x", 1.89, f.ratio(Test::send, kParallel, kParallelBoth, 800));
  predicted("send, parallelization alone, most", "x", 1.13, f.most(Test::send, kParallelBoth, kReleaseBoth));

  predicted("receive, 1000 B, PARALLEL: on the Ethernet limit", "Mb/s", ethernet_megabits(1000),
            f.at(Test::receive, kParallel, 1000));
  predicted("receive, scratch pads, most", "x", 1.66, f.most(Test::receive, kParallel, kParallelBoth));
  predicted("receive, parallelization alone", "x", 1.18, f.mean(Test::receive, kParallelBoth, kReleaseBoth));
}

void Comparing::ping() {
  const auto add = [&](const char* what, double paper, Who who, Who over, const char* remark = "") {
    row(what, "x", paper, figures_.mean(Test::ping, who, over), Basis::predicted, false, remark);
  };
  add("ping, PARALLEL over RELEASE, mean of all sizes", 0.94, kParallel, kRelease);
  add("ping, PARALLEL (SRAM-BOTH) over RELEASE (SRAM-BOTH), mean", 0.90, kParallelBoth, kReleaseBoth,
      "in the model only Mailbox overlaps with anything while one packet is on its way");
  add("ping, PARALLEL over PARALLEL (SRAM-BOTH), mean", 0.92, kParallel, kParallelBoth);
}

void Comparing::services() {
  double least = 1e9, most = 0;
  const auto gains = [&](const char* what, double from, double to, const char* remark) {
    predicted(fmt::format("{}, PARALLEL over RELEASE, least", what), "x", from, least, remark);
    predicted(fmt::format("{}, PARALLEL over RELEASE, most", what), "x", to, most, remark);
    least = 1e9, most = 0;
  };
  const auto compare = [&](const char* what, const auto& trace, const char* unit, auto measure, const char* remark) {
    const double before = measure(release()), after = measure(parallel());
    row(fmt::format("{}, {}, RELEASE", what, trace.name), unit, trace.release, before, Basis::calibrated);
    predicted(fmt::format("{}, {}, PARALLEL", what, trace.name), unit, trace.parallel, after, remark);
    least = std::min(least, after / before);
    most = std::max(most, after / before);
  };
  for (const WebTrace& trace : web_traces())
    compare(
        "thttpd", trace, "Mb/s", [&](const Variant& v) { return web_megabits(card_, v, trace, packets_); },
        trace.asic < 900 ? "the server is the bound (870 even with the ASIC), and is not modelled" : "");
  gains("thttpd", 1.48, 1.73, "as the text says; by the paper's own table it is 1.28 to 1.51");
  for (const RouterTrace& trace : router_traces())
    compare(
        "Click", trace, "kpkt/s", [&](const Variant& v) { return routed_kpps(card_, v, trace, packets_); }, "");
  gains("Click", 1.32, 2.07, "");
}

void Comparing::order() {
  const auto& f = figures_;
  for (const auto& [test, name] :
       {std::pair{Test::send, "send"}, {Test::receive, "receive"}, {Test::both, "both ways"}}) {
    holds(fmt::format("{}: PARALLEL at least RELEASE at every size", name), at_all_sizes(test, kParallel, kRelease));
    holds(fmt::format("{}: RELEASE at least RELEASE (SRAM-BOTH)", name), at_all_sizes(test, kRelease, kReleaseBoth));
    holds(fmt::format("{}: PARALLEL (SRAM-BOTH) above RELEASE (SRAM-BOTH)", name),
          at_all_sizes(test, kParallelBoth, kReleaseBoth, 1.01));
    holds(fmt::format("{}: SRAM-CODE and SRAM-DATA between PARALLEL and SRAM-BOTH", name),
          at_all_sizes(test, kParallel, kParallelCode) && at_all_sizes(test, kParallel, kParallelData, 0.99) &&
              at_all_sizes(test, kParallelCode, kParallelBoth) && at_all_sizes(test, kParallelData, kParallelBoth));
  }
  for (const auto& [test, name] : {std::pair{Test::send, "send"}, {Test::receive, "receive"}})
    holds(fmt::format("{}: the scratch pads give more than parallelization", name),
          f.most(test, kParallel, kParallelBoth) > f.most(test, kParallelBoth, kReleaseBoth));
  holds(
      "parallelization alone gives more both ways than either way",
      f.least(Test::both, kParallelBoth, kReleaseBoth) > std::max(f.most(Test::send, kParallelBoth, kReleaseBoth),
                                                                  f.most(Test::receive, kParallelBoth, kReleaseBoth)));
  holds("both ways, below 600 B: PARALLEL more than doubles RELEASE",
        std::all_of(kSizes.begin(), kSizes.begin() + 4,
                    [&](std::uint32_t size) { return f.ratio(Test::both, kParallel, kRelease, size) > 2; }));
  for (const Who over : {kRelease, kParallelBoth})
    holds(fmt::format("ping: PARALLEL below {} at every size", variant_of(over).name),
          at_all_sizes(Test::ping, over, kParallel, 1.0));
  holds("ping: PARALLEL (SRAM-BOTH) not above RELEASE (SRAM-BOTH)",
        at_all_sizes(Test::ping, kReleaseBoth, kParallelBoth, 1.0));
  order_of_rates();
}

// Where a curve leaves the Ethernet limit, and that it is a straight line below.
void Comparing::order_of_rates() {
  const auto& f = figures_;
  const auto steady = [&](Test test, Who who, std::uint32_t low, std::uint32_t high, double by) {
    return f.packets_per_s(test, who, high) > (1 - by) * f.packets_per_s(test, who, low);
  };
  holds("send: RELEASE leaves the Ethernet limit between 1200 and 1000 B",
        f.on_limit(Test::send, kRelease, 1200) && !f.on_limit(Test::send, kRelease, 1000));
  holds("send: PARALLEL leaves it between 1000 and 600 B",
        f.on_limit(Test::send, kParallel, 1000) && !f.on_limit(Test::send, kParallel, 600));
  holds("send: below it, packets per second do not depend on the size",
        steady(Test::send, kRelease, 18, 800, 0.06) && steady(Test::send, kParallel, 18, 600, 0.06));
  holds("receive: RELEASE never reaches the Ethernet limit",
        std::none_of(kSizes.begin(), kSizes.end(),
                     [&](std::uint32_t size) { return f.on_limit(Test::receive, kRelease, size); }));
  holds("receive: PARALLEL leaves it between 1000 and 800 B",
        f.on_limit(Test::receive, kParallel, 1000) && !f.on_limit(Test::receive, kParallel, 800));
  holds("both ways: PARALLEL handles fewer packets per second above 600 B than below",
        !steady(Test::both, kParallel, 18, 1200, 0.15) && !steady(Test::both, kParallel, 1200, 1472, 0.05));
  holds("both ways, 1472 B: PARALLEL stays below the Ethernet limit",
        f.at(Test::both, kParallel, 1472) < 1.98 * ethernet_megabits(1472));
  double last = 0;
  bool rising = true;
  for (const RouterTrace& trace : router_traces()) {
    const double rate = routed_kpps(card_, parallel(), trace, packets_);
    rising &= rate > last && rate > routed_kpps(card_, release(), trace, packets_);
    last = rate;
  }
  holds("Click: MEM above AIX above ADV, PARALLEL above RELEASE", rising);
}

}  // namespace

Comparisons compare_with_paper(std::uint64_t packets) {
  return Comparing(packets).all();
}

}  // namespace viaduct::nic::model
