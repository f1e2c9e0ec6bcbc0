// `viaduct bench via-registration`: figure 6 and tables 2 and 3 of the SOVIA paper: registering memory for a message,
// or copying the message into memory that is registered already.
#include <viaduct/adma.h>

#include <cmath>

#include "base/topology.hpp"
#include "bench/via_suite.hpp"

namespace viaduct::bench {

namespace {

constexpr std::size_t kSizes[] = {4, 1024, 4096, 16384, 65536, std::size_t{1} << 20, std::size_t{4} << 20};
constexpr std::size_t kSentSizes[] = {4, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768};
constexpr std::size_t kColdBytes = std::size_t{64} << 20;

class ViaRegistration {
 public:
  explicit ViaRegistration(const Options& options)
      : via_("via-registration", "Registering memory, or copying it into memory that is registered", options) {}
  ~ViaRegistration() {
    if (opened_) adapter_.close();
    adma_free(owned_);
  }

  Result<Report> run() {
    VIADUCT_CHECK(connect_senders());
    VIADUCT_CHECK(make_memory());
    for (const std::size_t size : kSizes) add_registration(size);
    for (const std::size_t size : kSentSizes)
      for (const ViaSuite::Entry& entry : senders_) via_.add_one_way(entry, size, 2'000);
    const PinnedScope pinned(placement().mine);
    Report report = via_.run(25);
    note_break_even(report, kRegister, kCached, kTime);
    note_break_even(report, kRegister, kUncached, kTime);
    note_break_even(report, kEachTime, kCopied, ViaSuite::kOneWay);
    return report;
  }

 private:
  Status make_memory() {
    VIADUCT_TRY(Memory ordinary, Memory::make(kSizes[std::size(kSizes) - 1]));
    VIADUCT_TRY(Memory target, Memory::make(kSizes[std::size(kSizes) - 1]));
    VIADUCT_TRY(Memory cold, Memory::make(kColdBytes));
    ordinary_ = std::make_unique<Memory>(std::move(ordinary));
    target_ = std::make_unique<Memory>(std::move(target));
    cold_ = std::make_unique<Memory>(std::move(cold));
    owned_ = adma_alloc(ordinary_->size());
    if (owned_ == nullptr) return Error(ENOMEM, "memory of the copy engine");
    return {};
  }

  void add_registration(std::size_t size) {
    const std::string name = size_name(size);
    const int few = via_.quick() ? 200 : 1000;
    const auto registered = [this, size, few](void* at) {
      open_adapter();
      return nanoseconds([&] {
               for (int i = 0; i < few; ++i) adapter_.deregister_memory(at, adapter_.register_memory(at, size));
             }) /
             few / 1000;
    };
    const int copies = repetitions(size, std::size_t{via_.quick() ? 1u : 16u} << 20);
    via_.suite().add({name, kRegister, Kind::us, kTime, "us", Better::lower,
                      [this, registered] { return registered(ordinary_->data()); }});
    via_.suite().add({name, "register, provider's memory", Kind::us, kTime, "us", Better::lower,
                      [this, registered] { return registered(owned_); }});
    via_.suite().add({name, kCached, Kind::peer, kTime, "us", Better::lower,
                      [this, size, copies] { return copy_us(size, copies, 0); }});
    via_.suite().add({name, kUncached, Kind::peer, kTime, "us", Better::lower,
                      [this, size, copies] { return copy_us(size, copies, std::max<std::size_t>(size, 4096)); }});
  }

  // Into the same place, as in the paper; from the same place too, or from one that is `step` further each time.
  double copy_us(std::size_t size, int copies, std::size_t step) {
    std::size_t at = 0;
    const double all = nanoseconds([&] {
      for (int i = 0; i < copies; ++i) {
        std::memcpy(target_->data(), (step == 0 ? ordinary_ : cold_)->data() + at, size);
        asm volatile("" ::"r"(target_->data()) : "memory");
        at = at + step + size > kColdBytes ? 0 : at + step;
      }
    });
    return all / copies / 1000;
  }

  Status connect_senders() {
    using Source = ViplOptions::Source;
    const auto add = [&](const char* who, Kind kind, Source source) -> Status {
      VIADUCT_TRY(const ViaSuite::Entry entry, via_.connect(who, kind, ViplOptions{.source = source}));
      senders_.push_back(entry);
      return {};
    };
    VIADUCT_CHECK(add(kEachTime, Kind::us, Source::registered_each_time));
    VIADUCT_CHECK(add(kCopied, Kind::peer, Source::copied));
    return add("send, registered before", Kind::floor, Source::registered);
  }

  // From which size on the first is the cheaper one.
  static void note_break_even(Report& report, const std::string& first, const std::string& second,
                              const std::string& metric) {
    std::string since;
    for (const Ratio& ratio : report.ratios) {
      if (ratio.us != first || ratio.against != second || ratio.metric != metric) continue;
      if (ratio.ratio >= 1)
        since.clear();
      else if (since.empty())
        since = ratio.case_name;
    }
    report.notes.push_back(since.empty() ? fmt::format("'{}' is never cheaper than '{}' here", first, second)
                                         : fmt::format("'{}' is cheaper than '{}' from {} on", first, second, since));
  }

  void open_adapter() {
    if (!std::exchange(opened_, true)) adapter_.open();
  }

  static constexpr const char* kTime = "time";
  static constexpr const char* kRegister = "register and deregister";
  static constexpr const char* kCached = "memcpy, cached";
  static constexpr const char* kUncached = "memcpy, uncached";
  static constexpr const char* kEachTime = "register, send, deregister";
  static constexpr const char* kCopied = "copy, send";

  ViaSuite via_;
  std::vector<ViaSuite::Entry> senders_;
  ViplAdapter adapter_;
  bool opened_ = false;
  std::unique_ptr<Memory> ordinary_;
  std::unique_ptr<Memory> target_;
  std::unique_ptr<Memory> cold_;
  void* owned_ = nullptr;
};

}  // namespace

Result<Report> run_via_registration(const Options& options) {
  return ViaRegistration(options).run();
}

}  // namespace viaduct::bench
