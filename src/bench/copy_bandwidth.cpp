// `viaduct bench copy-bandwidth`: figure 5 of the ADCE paper: a window of 128 copies is issued, then waited for.
#include <viaduct/copy.hpp>

#include <cstring>
#include <optional>
#include <vector>

#include "base/topology.hpp"
#include "bench/copy_buffers.hpp"
#include "bench/partner.hpp"
#include "bench/suite.hpp"

namespace viaduct::bench {

namespace {

constexpr int kWindow = 128;

class CopyBandwidth {
 public:
  explicit CopyBandwidth(const Options& options) : options_(options) {}

  Result<Report> run() {
    start_copy_engine();
    const PinnedScope pinned(placement().mine);
    VIADUCT_TRY(ColdPair buffers, ColdPair::make((options_.quick ? std::size_t{160} : std::size_t{768}) << 20));
    buffers_.emplace(std::move(buffers));
    for (const std::size_t size : {4u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20}) add(size);
    return suite_.run(options_, 9);
  }

 private:
  // As in the paper the window walks on through the buffers: small messages stay in the cache, large ones do not.
  void add(std::size_t size) {
    const std::string name = size_name(size) + ", window of 128";
    const auto measured = [this, size](auto&& window) {
      const double time = nanoseconds([&] { window(); });
      return static_cast<double>(size) * kWindow / time;
    };
    suite_.add({name, "memcpy", Kind::peer, "bandwidth", "GB/s", Better::higher, [this, size, measured] {
                  return measured([&] {
                    for (int i = 0; i < kWindow; ++i)
                      advance(size), std::memcpy(buffers_->target(), buffers_->source(), size);
                  });
                }});
    const copy::Options stream{copy::Intent::stream, copy::Order::unordered, 0, copy::Choice::any};
    for (const auto& [who, options] : {std::pair{"engine", copy::Options{}}, std::pair{"engine, stream", stream}})
      suite_.add({name, who, Kind::us, "bandwidth", "GB/s", Better::higher, [this, size, measured, options = options] {
                    return measured([&] {
                      std::vector<copy::Operation> window;
                      window.reserve(kWindow);
                      for (int i = 0; i < kWindow; ++i)
                        advance(size),
                            window.push_back(copy::start(buffers_->source(), buffers_->target(), size, options));
                      for (copy::Operation& operation : window) (void)operation.wait();
                    });
                  }});
  }

  // Messages of up to 64 KB go round in 1 MB, which the cache holds.
  void advance(std::size_t size) {
    if (size > (64 << 10)) buffers_->next(size);
  }

  Options options_;
  Suite suite_{"copy-bandwidth", "A window of asynchronous copies (figure 5)"};
  std::optional<ColdPair> buffers_;
};

}  // namespace

Result<Report> run_copy_bandwidth(const Options& options) {
  return CopyBandwidth(options).run();
}

}  // namespace viaduct::bench
